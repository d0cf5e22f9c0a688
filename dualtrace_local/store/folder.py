"""The LanceDB folder itself: opening, reading and writing its tables, finding out what is damaged, and putting that right."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dualtrace_local.errors import StoreError

from .durable import DAMAGED, FOLDER_MODE
from .tables import SCANNED, TABLES, arrow, is_any, schema

if TYPE_CHECKING:
    import pyarrow as pa
    from lancedb.db import DBConnection
    from lancedb.table import Table

Say = Callable[[str], None]

UNREADABLE = (RuntimeError, ValueError, OSError)
"""What LanceDB raises for a damaged file, a full disk or a lost table: it has no classes of its own for them."""

STEPS_BACK = 4
"""Versions of a table that one commit can write, tidying included; only these can be torn by a loss of power."""

FRAGMENTS = 20
"""Files of a table from which it is compacted (LanceDB's advice: about every 20 writes)."""

KEPT = timedelta(minutes=10)
"""Old versions stay this long, for readers in the middle of something and for stepping back."""

MANIFEST = re.compile(r"\d{20}\.manifest")
NEWEST = 2**64 - 1
"""Manifest files are named NEWEST minus the version, so that the newest sorts first."""


class Folder:
    """The open tables of a store. Every operation sees the newest version on disk."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @cached_property
    def _database(self) -> DBConnection:
        import lancedb

        return lancedb.connect(str(self.path), read_consistency_interval=timedelta(0))

    @cached_property
    def _tables(self) -> dict[str, Table]:
        return {name: self._database.open_table(name) for name in TABLES}

    def create(self, dimension: int, metadata: Mapping[str, str]) -> None:
        """Make the tables that are not there yet, the ledger last; ``metadata`` goes into its schema."""
        for name in TABLES:
            kind = schema(name, dimension, metadata if name == "sessions" else None)
            self._database.create_table(name, schema=kind, exist_ok=True)

    @property
    def metadata(self) -> dict[str, str]:
        """What the ledger's schema says about the store."""
        found = self._tables["sessions"].schema.metadata or {}
        return {k.decode(): v.decode() for k, v in found.items()}

    def read(self, table: str, columns: Sequence[str] = (), where: str = "") -> pa.Table:
        """Rows of ``table``: the named columns, all of them by default."""
        query = self._tables[table].search()
        if where:
            query = query.where(where)
        return (query.select(list(columns)) if columns else query).to_arrow()

    def rows(self, table: str, columns: Sequence[str] = (), where: str = "") -> list[dict[str, Any]]:
        """The same as dicts."""
        found: list[dict[str, Any]] = self.read(table, columns, where).to_pylist()
        return found

    def columns(self, table: str) -> list[str]:
        """Names of the columns."""
        return list(self._tables[table].schema.names)

    def count(self, table: str, where: str = "") -> int:
        """Number of rows."""
        return int(self._tables[table].count_rows(where or None))

    def prepared(self, table: str, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
        """Rows in the table's schema, checked before anything is written."""
        return arrow(rows, self._tables[table].schema)

    def add(self, table: str, prepared: pa.Table) -> None:
        """Append rows in one version; nothing happens when there are none."""
        if prepared.num_rows:
            self._tables[table].add(prepared)

    def delete(self, table: str, column: str, hashes: Collection[str]) -> None:
        """Delete the rows whose ``column`` is one of these hashes."""
        keys = sorted(hashes)
        for start in range(0, len(keys), 500):
            self._tables[table].delete(is_any(column, keys[start : start + 500]))

    def tidy(self, least: int = FRAGMENTS) -> bool:
        """Compact the tables that have gathered ``least`` small files. True when one was; a failure waits for the next time."""
        done = False
        for table in self._tables.values():
            try:
                if table.stats()["fragment_stats"]["num_small_fragments"] >= least:
                    table.optimize(cleanup_older_than=KEPT)
                    done = True
            except UNREADABLE:
                continue
        return done

    # ------------------------------------------------------------------------------------------- LanceDB's own ranking

    def index_words(self) -> None:
        """Index the words of ``vectors`` (already stemmed: LanceDB only splits at spaces), once; tidying keeps it up to date."""
        from lancedb.index import FTS

        as_they_are = FTS(
            base_tokenizer="whitespace",
            lower_case=False,
            stem=False,
            remove_stop_words=False,
            ascii_folding=False,
            max_token_length=None,
            with_position=False,
        )
        if not self.words_indexed:
            self._tables["vectors"].create_index("terms", config=as_they_are)

    @property
    def words_indexed(self) -> bool:
        """Whether ``by_words`` can be used."""
        return any(i.columns == ["terms"] for i in self._tables["vectors"].list_indices())

    def by_vector(self, vector: NDArray[np.float32], where: str, limit: int) -> list[dict[str, Any]]:
        """Rows of ``vectors`` with the highest cosine, exact, with ``_distance`` = 1 - cosine."""
        query = self._tables["vectors"].search(vector, vector_column_name="vector").distance_type("cosine")
        query = query.where(where, prefilter=True).select(["owner_id", "session_key", "_distance"]).limit(limit)
        found: list[dict[str, Any]] = query.to_list()
        return found

    def by_words(self, words: Sequence[str], where: str, limit: int) -> list[dict[str, Any]]:
        """Rows of ``vectors`` with the highest BM25 score over the whole table, with ``_score`` and their vector."""
        query = self._tables["vectors"].search(" ".join(words), query_type="fts", fts_columns="terms")
        query = query.where(where, prefilter=True).select(["owner_id", "session_key", "vector", "_score"]).limit(limit)
        found: list[dict[str, Any]] = query.to_list()
        return found


@contextmanager
def told(path: Path, doing: str) -> Iterator[None]:
    """Turn what LanceDB and the file system raise into one StoreError line without any stored text."""
    try:
        yield
    except UNREADABLE as problem:
        reason = getattr(problem, "strerror", None) or " ".join(str(problem).split("/")[0].split())[:160]
        msg = f"store {path}: {doing} failed: {reason}; what was committed is safe, repeat the command when the cause is gone"
        raise StoreError(msg) from problem


# ----------------------------------------------------------------------------------------------------------- repair


@dataclass(frozen=True)
class Findings:
    """What is wrong with a store.

    ``unreadable``: tables whose newest version cannot be read; ``lost``: ledger keys whose memories or rounds are not all there;
    ``orphans``: session keys of rows without a ledger row (a commit that was cut off; readers never see them).
    """

    unreadable: tuple[str, ...] = ()
    lost: frozenset[str] = frozenset()
    orphans: frozenset[str] = frozenset()


def examine(path: Path) -> Findings:
    """Read the ids of every table and compare them with the ledger; changes nothing."""
    scans: dict[str, pa.Table] = {}
    for name in reversed(TABLES):  # the ledger first: what is committed meanwhile has its rows already
        if (scan := _scan(path, name)) is not None:
            scans[name] = scan
    if unreadable := tuple(name for name in TABLES if name not in scans):
        return Findings(unreadable)
    ledger = {row["key"]: row for row in scans["sessions"].to_pylist()}
    present: set[str] = set()
    lost: set[str] = set()
    for table in ("memories", "rounds"):
        counted = scans[table].group_by("session_key").aggregate([([], "count_all")]).to_pylist()
        counts = {row["session_key"]: row["count_all"] for row in counted}
        present |= counts.keys()
        lost |= {key for key, row in ledger.items() if row[table] != counts.get(key, 0)}
    present |= set(scans["vectors"]["session_key"].to_pylist())
    return Findings(lost=frozenset(lost), orphans=frozenset(present - ledger.keys()))


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
    stepped = [f"{table} (opened version {_step_back(path, table)})" for table in found.unreadable]
    if stepped:
        found = examine(path)
    folder = Folder(path)
    folder.delete("sessions", "key", found.lost)
    for table in ("memories", "rounds", "vectors"):
        folder.delete(table, "session_key", found.lost | found.orphans)
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
