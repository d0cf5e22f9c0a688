"""The owner corrects a memory: edit, verify, retract, undo. Each is a version with who and when; nothing is overwritten."""

from __future__ import annotations

import os
import pwd
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from dualtrace_local.domains.personal import FOOTER
from dualtrace_local.errors import ConfigError, DataError, StoreError
from dualtrace_local.masking import mask
from dualtrace_local.records import OWNER, Component, Memory, Scope
from dualtrace_local.store import Change, Store, undone

from .parts import Parts

LONGEST, LONGEST_ANCHOR = 2000, 64
"""Characters of one corrected text, and of an anchor."""

KINDS = ("discrete", "compositional", "relational")
STALE = "the fact was corrected"
"""Why there is no scene after an edit of the fact alone: the old one holds the old details."""

_SLUG = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")


@dataclass(frozen=True)
class Edit:
    """What is to be said instead; None leaves a part as it is. ``fact`` is a sentence a component, an empty ``scene`` removes it."""

    fact: Sequence[str] | None = None
    scene: str | None = None
    anchor: str | None = None
    category: str | None = None
    info_type: str | None = None


def edited(memory: Memory, edit: Edit) -> Memory:
    """``memory`` as ``edit`` wants it, credentials masked.

    Raises DataError for what cannot be kept, ConfigError when nothing changes.
    """
    made = memory
    if edit.fact is not None:
        made = replace(made, components=_components(memory, [_said(text, "--fact") for text in edit.fact]))
        if made.components != memory.components and edit.scene is None:
            made = replace(made, scene="", scene_refused=STALE if memory.scene else memory.scene_refused)
    if edit.scene is not None:
        made = replace(made, scene=_scene(edit.scene), scene_refused="" if edit.scene.strip() else "removed by the owner")
    if edit.anchor is not None:
        if len(edit.anchor) > LONGEST_ANCHOR or not _SLUG.fullmatch(mask(edit.anchor)):
            raise DataError(
                f"{edit.anchor!r} is not an anchor; write small letters, digits and hyphens, as in spare-key, at most {LONGEST_ANCHOR}"
            )
        made = replace(made, anchor=edit.anchor)
    if edit.category is not None:
        made = replace(made, category=_said(edit.category, "--category"))
    if edit.info_type is not None:
        made = replace(made, info_type=edit.info_type)
    if made == memory:
        raise ConfigError("nothing would change; give --fact, --scene, --anchor, --category or --type with something new")
    return replace(made, version=memory.version + 1)


def _said(text: str, option: str) -> str:
    said = mask(" ".join(text.split()))
    if not said or len(said) > LONGEST:
        raise DataError(f"{option} has {len(said):,} characters; write 1 to {LONGEST:,}")
    try:
        said.encode()
    except UnicodeEncodeError as problem:
        raise DataError(f"{option} is not valid Unicode at character {problem.start + 1}; write it again") from problem
    return said


def _components(memory: Memory, texts: Sequence[str]) -> tuple[Component, ...]:
    """Sentences that stay keep the user's words; a new one rests on the owner's correction, and on dates that it still names."""
    if not texts:
        raise DataError("a fact needs at least one sentence; `dualtrace memory retract` takes a memory out of all answers")
    known = {c.text: c for c in memory.components}
    events = tuple(dict.fromkeys(e for c in memory.components for e in c.events))
    return tuple(
        known.get(text)
        or Component(text, text, -1, OWNER, events=tuple(e for e in events if e.spoken in text or (e.day and e.day in text)))
        for text in texts
    )


def _scene(text: str) -> str:
    if not text.strip():
        return ""
    moment = _said(text, "--scene").removesuffix(FOOTER).rstrip()
    return f"{moment if moment.startswith('Picture:') else f'Picture: {moment}'} {FOOTER}"


@dataclass(frozen=True)
class Stamp:
    """What is done, by whom, when (local time)."""

    action: str
    by: str
    at: datetime


def change(path: Path, parts: Parts, scope: Scope, memory_id: str, stamp: Stamp, made: Callable[[Store, Memory], Memory]) -> Change:
    """Keep what ``made`` makes of a memory as its next version.

    Raises StoreError for a store inside a run, which measures what was taught, and when there is no such memory.
    """
    if (path.parent / "run.json").is_file():
        raise StoreError(
            f"{path} belongs to the run {path.parent.name}, which measures what was taught; correct memories in a store of your own"
        )
    with Store.open(path, parts.embedder, write=True, say=parts.listener.say) as store:
        before = store.memory(memory_id, scope)
        after = Change(made(store, before), stamp.action, mask(stamp.by), stamp.at.isoformat(timespec="seconds"))
        store.change(before, after)
    return after


def with_status(status: str) -> Callable[[Store, Memory], Memory]:
    """A change of the status alone. Raises ConfigError when it is that already."""

    def made(_: Store, memory: Memory) -> Memory:
        if memory.status == status:
            raise ConfigError(f"memory {memory.id[:12]} is {status} already")
        return replace(memory, status=status, version=memory.version + 1)

    return made


def back(number: int) -> Callable[[Store, Memory], Memory]:
    """Undo change ``number``."""
    return lambda store, memory: undone(store.history([memory]), number)


def whoami() -> str:
    """The name of the account on this machine, its number when it has none."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())
