"""What is wrong with a store, and putting it right: torn versions, cut-off commits, changes and erasures that a kill left half done."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from dualtrace_local.errors import StoreError

from .changes import catch_up
from .durable import DAMAGED, FOLDER_MODE
from .erase import MARKER, erase
from .folder import MANIFEST, NEWEST, UNREADABLE, Folder, Say
from .sums import prune_sums
from .tables import SCANNED, TABLES

if TYPE_CHECKING:
    import pyarrow as pa

STEPS_BACK = 4
"""Versions of a table that one commit can write, tidying included; only these can be torn by a loss of power."""


@dataclass(frozen=True)
class Findings:
    """What is wrong with a store.

    ``unreadable``: tables whose newest version cannot be read; ``lost``: ledger keys whose memories or rounds are not all there;
    ``orphans``: session keys of rows without a ledger row (a commit that was cut off; readers never see them); ``overdue``: ids of
    memories whose row is behind their newest version; ``unerased``: something that was forgotten is still in a table.
    """

    unreadable: tuple[str, ...] = ()
    lost: frozenset[str] = frozenset()
    orphans: frozenset[str] = frozenset()
    overdue: frozenset[str] = frozenset()
    unerased: bool = False

    @property
    def harmful(self) -> bool:
        """Whether a reader has to have it put right first."""
        return bool(self.unreadable or self.lost)

    @property
    def unfinished(self) -> bool:
        """Whether an order of the owner's was cut off in the middle."""
        return bool(self.overdue) or self.unerased


def examine(path: Path) -> Findings:
    """Read the ids of every table and compare them with the ledger; changes nothing."""
    scans: dict[str, pa.Table] = {}
    for name in reversed(TABLES):  # the ledger first: what is committed meanwhile has its rows already
        if (scan := _scan(path, name)) is not None:
            scans[name] = scan
    if unreadable := tuple(name for name in TABLES if name not in scans):
        return Findings(unreadable)
    ledger = {row["key"]: row for row in scans["sessions"].to_pylist()}
    gone = scans["forgotten"].to_pylist()
    whole = {row["key"] for row in gone if row["kind"] == "session"}
    present: set[str] = set()
    lost: set[str] = set()
    for table, kind in (("memories", "memory"), ("rounds", "round")):
        counted = scans[table].group_by("session_key").aggregate([([], "count_all")]).to_pylist()
        counts = {row["session_key"]: row["count_all"] for row in counted}
        present |= counts.keys()
        if single := [row for row in gone if row["kind"] == kind]:
            there = set(scans[table]["id"].to_pylist())
            for row in single:
                counts[row["session_key"]] = counts.get(row["session_key"], 0) + (row["key"] not in there)
        lost |= {key for key, row in ledger.items() if row[table] != counts.get(key, 0)}
    present |= set(scans["vectors"]["session_key"].to_pylist())
    return Findings(
        lost=frozenset(lost - whole),
        orphans=frozenset(present - ledger.keys() - whole),
        overdue=_overdue(scans),
        unerased=(path / MARKER).exists()
        or bool(whole & (present | ledger.keys()))
        or _remains(scans, {row["key"] for row in gone} - whole),
    )


def _overdue(scans: dict[str, pa.Table]) -> frozenset[str]:
    newest: dict[str, int] = {}
    for row in scans["versions"].to_pylist():
        newest[row["memory_id"]] = max(row["number"], newest.get(row["memory_id"], 0))
    if not newest:
        return frozenset()
    return frozenset(row["id"] for row in scans["memories"].to_pylist() if row["version"] < newest.get(row["id"], 0))


def _remains(scans: dict[str, pa.Table], keys: set[str]) -> bool:
    if not keys:
        return False
    columns = (("memories", "id"), ("rounds", "id"), ("vectors", "owner_id"), ("versions", "memory_id"))
    return any(not keys.isdisjoint(scans[table][column].to_pylist()) for table, column in columns)


def _scan(path: Path, table: str) -> pa.Table | None:
    """The ids in the newest version of one table, or None when it cannot be read. Opened anew, past every cache."""
    import lancedb

    try:
        opened = lancedb.connect(str(path), read_consistency_interval=timedelta(0)).open_table(table)
        return opened.search().select(list(SCANNED[table])).to_arrow()
    except UNREADABLE:
        return None


def put_right(path: Path, found: Findings, say: Say) -> None:
    """Step unreadable tables back, drop ledger rows that lost theirs, purge orphans. The caller holds the writer lock.

    Says one line when something was damaged. Raises StoreError, with every file where it was, when a table has no readable
    version near enough.
    """
    prune_sums(path)
    stepped = [f"{table} (opened version {_step_back(path, table)})" for table in found.unreadable]
    if stepped:
        prune_sums(path, damaged=True)
        found = examine(path)
    folder = Folder(path)
    folder.delete("sessions", "key", found.lost)
    for table in ("memories", "rounds", "vectors"):
        folder.delete(table, "session_key", found.lost | found.orphans)
    if found.unerased:
        erase(folder)
    if found.overdue:
        catch_up(folder, found.overdue)
    again = f"; {len(found.lost)} sessions have lost rows and will be taught again" if found.lost else ""
    if stepped:
        say(f"store {path}: newest version unreadable, moved to {DAMAGED}/: {', '.join(stepped)}{again}")
    elif found.lost:
        say(f"store {path}: the ledger did not fit the tables{again}")


def _step_back(path: Path, table: str) -> int:
    """Move the newest manifests away until the table can be read; the version that is open then."""
    versions = path / f"{table}.lance" / "_versions"
    newest_first = sorted(f for f in versions.glob("*.manifest") if MANIFEST.fullmatch(f.name))
    (path / DAMAGED).mkdir(mode=FOLDER_MODE, exist_ok=True)
    moved: list[tuple[Path, Path]] = []
    for manifest, older in pairwise(newest_first[: STEPS_BACK + 1]):
        place = path / DAMAGED / f"{table}-{manifest.name}"
        while place.exists():
            place = place.with_name(f"{place.name}.again")
        os.replace(manifest, place)  # noqa: PTH105 - Path.replace, said plainly
        moved.append((manifest, place))
        if _scan(path, table) is not None:
            return NEWEST - int(older.stem)
    for manifest, place in moved:
        place.replace(manifest)
    msg = f"store {path}: table {table} has no readable version; bring the folder back from a copy, or move it away and teach again"
    raise StoreError(msg)
