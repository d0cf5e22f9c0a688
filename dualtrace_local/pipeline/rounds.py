"""Vectors of rounds. Teaching does not make them; they are made, once, when a condition first ranks verbatim rounds."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from dualtrace_local.config import Condition
from dualtrace_local.errors import StoreBusyError
from dualtrace_local.records import Scope
from dualtrace_local.store import Selection, Store

from .parts import Parts

MANY = 256
"""Rounds from which the embedding is shown as a stage of its own; it takes seconds then (about 40 a second on two CPU cores)."""


def embed_rounds(path: Path, parts: Parts, scope: Scope, conditions: Iterable[Condition]) -> None:
    """Make and keep the vectors that are missing in the store at ``path``, when one of ``conditions`` ranks rounds.

    An interruption costs the batch in hand. A store that another process writes to is left alone: each search then makes what it
    lacks, in memory.
    """
    if all(condition.key != "round" for condition in conditions):
        return
    selection, say = Selection(scope), parts.listener.say
    with Store.open(path, parts.embedder, say=say) as reader:
        lacking = reader.lacking(selection, "round")
    if not lacking:
        return
    try:
        with Store.open(path, parts.embedder, write=True, say=say) as writer:
            if lacking < MANY:
                writer.keys(selection, "round")
                return
            parts.listener.stage("embed rounds", lacking)
            try:
                writer.keys(selection, "round", parts.listener.advance)
            finally:
                parts.listener.end()
    except StoreBusyError:
        say(f"{path} is being written to by another process; the vectors of {lacking} rounds are made for this command alone")
