"""Corrections by the owner. Each is a row of ``versions``, whole and dated; the memory's own row and its keys follow it.

``versions`` is written first: what a killed process left undone is done from it when the store is next opened for writing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dualtrace_local.errors import StoreError
from dualtrace_local.records import Memory, digest_of, plain

from .durable import crashpoint
from .folder import Folder
from .tables import COMPONENTS, is_any, memory_record, memory_row

FIELDS = ("anchor", "info_type", "category", "components", "scene", "scene_refused", "status")
"""What a change can change."""

_KEPT = ("session_key", "scope", "user", "project", *FIELDS)


@dataclass(frozen=True)
class Change:
    """One version of a memory: what it is since then, and what was done, by whom and when.

    ``action`` is ``taught``, ``edit``, ``verify``, ``retract`` or ``undo 2``; ``at`` is ISO local time, empty like ``by`` for ``taught``.
    """

    memory: Memory
    action: str
    by: str = ""
    at: str = ""

    @property
    def number(self) -> int:
        """0 as taught, then one more each time."""
        return self.memory.version

    @property
    def id(self) -> str:
        """32 hex characters: hash of all of it."""
        said = [plain(getattr(self.memory, name)) for name in FIELDS]
        return digest_of("version", self.memory.id, self.number, self.action, self.by, self.at, said)


def change_row(change: Change) -> dict[str, Any]:
    """The row of ``versions``."""
    row = memory_row(change.memory)
    about = {"id": change.id, "memory_id": change.memory.id, "number": change.number, "action": change.action}
    return about | {"by": change.by, "at": change.at} | {name: row[name] for name in _KEPT}


def change_record(row: Mapping[str, Any], memory: Memory) -> Change:
    """The record of a row of ``versions`` about ``memory``, whose date and evidence no change touches."""
    said = {name: row[name] for name in FIELDS} | {"components": COMPONENTS.validate_json(row["components"])}
    return Change(replace(memory, **said, version=row["number"]), row["action"], row["by"], row["at"])


def history(folder: Folder, memories: Sequence[Memory]) -> list[Change]:
    """All versions of these memories, each memory's in order, as taught first; none of one that was never changed."""
    by_id = {m.id: m for m in memories}
    rows = [r for r in folder.rows("versions") if r["memory_id"] in by_id]
    return [change_record(r, by_id[r["memory_id"]]) for r in sorted(rows, key=lambda r: (r["memory_id"], r["number"]))]


def write(folder: Folder, before: Memory, change: Change) -> None:
    """Make ``change`` the newest version of ``before``; its keys are gone then and are to be made anew."""
    first = [] if before.version else [Change(before, "taught")]
    folder.add("versions", folder.prepared("versions", [change_row(c) for c in (*first, change)]))
    crashpoint("after-version")
    _follow(folder, [change.memory])


def catch_up(folder: Folder, ids: Collection[str]) -> None:
    """Bring the rows of these memories to their newest version."""
    memories = [memory_record(r) for r in folder.rows("memories", where=is_any("id", ids))]
    newest = {change.memory.id: change.memory for change in history(folder, memories)}
    _follow(folder, list(newest.values()))


def _follow(folder: Folder, memories: Sequence[Memory]) -> None:
    """The keys go first: a row of the new version without its keys is completed at an opening, old keys of a new row were not seen."""
    folder.delete("vectors", "owner_id", {m.id for m in memories})
    crashpoint("after-old-keys")
    folder.update("memories", folder.prepared("memories", [memory_row(m) for m in memories]))
    crashpoint("after-new-row")


def undone(versions: Sequence[Change], number: int) -> Memory:
    """The newest of ``versions`` with all that change ``number`` changed put back, whatever was changed elsewhere since.

    Raises StoreError when there is no such change, or a later one changed the same again.
    """
    if not 0 < number < len(versions):
        msg = f"there is no change {number} to undo; `dualtrace memory history` shows the {max(0, len(versions) - 1)} that there are"
        raise StoreError(msg)
    before, after, now = versions[number - 1].memory, versions[number].memory, versions[-1].memory
    changed = [name for name in FIELDS if getattr(before, name) != getattr(after, name)]
    if again := [name for name in changed if getattr(now, name) != getattr(after, name)]:
        msg = f"{', '.join(again)} changed again after change {number}; undo the later change first"
        raise StoreError(msg)
    return replace(now, **{name: getattr(before, name) for name in changed}, version=now.version + 1)
