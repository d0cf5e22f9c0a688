"""The LanceDB folder itself: opening, reading, writing and rewriting its tables."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dualtrace_local.errors import StoreError

from .tables import TABLES, arrow, is_any, schema

if TYPE_CHECKING:
    import pyarrow as pa
    from lancedb.db import DBConnection
    from lancedb.table import Table

Say = Callable[[str], None]

UNREADABLE = (RuntimeError, ValueError, OSError)
"""What LanceDB raises for a damaged file, a full disk or a lost table: it has no classes of its own for them."""

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
        self._open: dict[str, Table] = {}

    @cached_property
    def _database(self) -> DBConnection:
        import lancedb

        return lancedb.connect(str(self.path), read_consistency_interval=timedelta(0))

    def table(self, name: str) -> Table:
        """LanceDB's own table, opened when it is first asked for: an older or damaged store may lack others."""
        if name not in self._open:
            self._open[name] = self._database.open_table(name)
        return self._open[name]

    def create(self, dimension: int, metadata: Mapping[str, str], embedder: Mapping[str, str], tables: Sequence[str] | None = None) -> None:
        """Make empty tables, all by default, the ledger last; ``metadata`` goes into its schema, ``embedder`` into that of ``vectors``."""
        said = {"sessions": metadata, "vectors": embedder}
        for name in TABLES if tables is None else tables:
            if (self.path / f"{name}.lance").exists():  # what a making that was cut off left
                self._database.drop_table(name)
            self._database.create_table(name, schema=schema(name, dimension, said.get(name)))

    @property
    def metadata(self) -> dict[str, str]:
        """What the schemas say: version and secret in the ledger's, the embedding model in that of ``vectors``, which can change alone."""
        found: dict[bytes, bytes] = {}
        for name in ("sessions", "vectors"):
            found |= self.table(name).schema.metadata or {}
        return {k.decode(): v.decode() for k, v in found.items()}

    def read(self, table: str, columns: Sequence[str] = (), where: str = "") -> pa.Table:
        """Rows of ``table``: the named columns, all of them by default."""
        query = self.table(table).search()
        if where:
            query = query.where(where)
        return (query.select(list(columns)) if columns else query).to_arrow()

    def rows(self, table: str, columns: Sequence[str] = (), where: str = "") -> list[dict[str, Any]]:
        """The same as dicts."""
        found: list[dict[str, Any]] = self.read(table, columns, where).to_pylist()
        return found

    def columns(self, table: str) -> list[str]:
        """Names of the columns."""
        return list(self.table(table).schema.names)

    def count(self, table: str, where: str = "") -> int:
        """Number of rows."""
        return int(self.table(table).count_rows(where or None))

    def prepared(self, table: str, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
        """Rows in the table's schema, checked before anything is written."""
        return arrow(rows, self.table(table).schema)

    def add(self, table: str, prepared: pa.Table) -> None:
        """Append rows in one version; nothing happens when there are none."""
        if prepared.num_rows:
            self.table(table).add(prepared)

    def delete(self, table: str, column: str, hashes: Collection[str]) -> None:
        """Delete the rows whose ``column`` is one of these hashes."""
        keys = sorted(hashes)
        for start in range(0, len(keys), 500):
            self.table(table).delete(is_any(column, keys[start : start + 500]))

    def update(self, table: str, prepared: pa.Table) -> None:
        """Replace the rows that have the ids of these, in one version."""
        if prepared.num_rows:
            key = "key" if table == "sessions" else "id"
            self.table(table).merge_insert(key).when_matched_update_all().execute(prepared)

    def rewrite(self, table: str, rows: pa.Table, kind: pa.Schema | None = None) -> None:
        """Put ``rows`` in the place of everything in ``table``, in one version and in new files; ``kind`` is another schema."""
        indexed = table == "vectors" and self.words_indexed
        made = rows.select((kind or rows.schema).names).cast(kind or self.table(table).schema)
        self.put(table, made)
        if indexed and made.num_rows:
            self.index_words()

    def put(self, table: str, rows: pa.Table) -> None:
        """Make ``table`` of these rows and their schema, in the place of what is there."""
        there = (self.path / f"{table}.lance").is_dir()
        self._open[table] = self._database.create_table(table, rows, mode="overwrite" if there else "create")

    def clean(self) -> None:
        """Compact all tables, and remove every old version and every file that the newest does not name. A reader of an old one fails."""
        for table in map(self.table, TABLES):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # it warns of just that
                for _ in range(2):  # compacting leaves the version before it
                    table.optimize(cleanup_older_than=timedelta(0), delete_unverified=True)

    def unnamed(self) -> list[Path]:
        """Data files that the newest version of no table names, and indexes that no table has; none after ``clean``."""
        found: list[Path] = []
        for name in TABLES:
            place = self.path / f"{name}.lance"
            newest = min(f for f in (place / "_versions").glob("*.manifest") if MANIFEST.fullmatch(f.name)).read_bytes()
            found += [f for f in (place / "data").glob("*") if f.name.encode() not in newest]
            indexes = sorted((place / "_indices").glob("*"))
            found += indexes if len(indexes) != len(self.table(name).list_indices()) else []
        return found

    def words_counted(self) -> tuple[int, int] | None:
        """Rows that the word index holds and those still waiting for it; None when there is none."""
        names = [i.name for i in self.table("vectors").list_indices() if i.columns == ["terms"]]
        stats = self.table("vectors").index_stats(names[0]) if names else None
        return (int(stats.num_indexed_rows), int(stats.num_unindexed_rows)) if stats else None

    def tidy(self, least: int = FRAGMENTS) -> bool:
        """Compact the tables that have gathered ``least`` small files. True when one was; a failure waits for the next time."""
        done = False
        for table in map(self.table, TABLES):
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
            self.table("vectors").create_index("terms", config=as_they_are)

    @property
    def words_indexed(self) -> bool:
        """Whether ``by_words`` can be used."""
        return any(i.columns == ["terms"] for i in self.table("vectors").list_indices())

    def by_words(self, words: Sequence[str], where: str, limit: int) -> list[dict[str, Any]]:
        """Rows of ``vectors`` with the highest BM25 score over the whole table, with ``_score``."""
        query = self.table("vectors").search(" ".join(words), query_type="fts", fts_columns="terms")
        query = query.where(where, prefilter=True).select(["owner_id", "_score"]).limit(limit)
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
