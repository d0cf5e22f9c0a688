"""Vectors that teaching does not make, of rounds, anchors and facts without anchors: made once, when a condition first ranks by them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from dualtrace_local.config import Condition
from dualtrace_local.errors import StoreBusyError
from dualtrace_local.records import Scope
from dualtrace_local.search import kinds_of
from dualtrace_local.store import TAUGHT_KINDS, Kind, Selection, Store

from .parts import Parts

MANY = 256
"""Keys from which the embedding is shown as a stage of its own, since it takes seconds then."""

NAMES: dict[Kind, str] = {"round": "rounds", "anchor": "anchors", "fact-without-anchor": "facts"}


def embed_keys(path: Path, parts: Parts, scope: Scope, conditions: Iterable[Condition]) -> None:
    """Make and keep the vectors that are missing in the store at ``path`` and that one of ``conditions`` ranks all of.

    An interruption costs the batch in hand. A store that another process writes to is left alone: each search then makes what it
    lacks, in memory.
    """
    ranked = [c for c in conditions if c.ranked and c.sessions == "visible"]
    wanted = {kind for c in ranked for kind in kinds_of(c)} | {"anchor" for c in ranked if c.anchors}
    kinds = [kind for kind in NAMES if kind in wanted and kind not in TAUGHT_KINDS]
    if not kinds:
        return
    selection, say = Selection(scope), parts.listener.say
    with Store.open(path, parts.embedder, say=say) as reader:
        lacking = {kind: missing for kind in kinds if (missing := reader.lacking(selection, kind))}
    if not lacking:
        return
    try:
        with Store.open(path, parts.embedder, write=True, say=say) as writer:
            for kind, missing in lacking.items():
                _embed(writer, selection, kind, missing, parts)
    except StoreBusyError:
        told = " and ".join(f"{missing} {NAMES[kind]}" for kind, missing in lacking.items())
        say(f"{path} is being written to by another process; the vectors of {told} are made for this command alone")


def _embed(writer: Store, selection: Selection, kind: Kind, missing: int, parts: Parts) -> None:
    if missing < MANY:
        writer.keys(selection, kind)
        return
    parts.listener.stage(f"embed {NAMES[kind]}", missing)
    try:
        writer.keys(selection, kind, parts.listener.advance)
    finally:
        parts.listener.end()
