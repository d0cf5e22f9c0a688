"""Care for a whole store: another embedding model, an older format, small files."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dualtrace_local.embed import Embedder
from dualtrace_local.errors import StoreError
from dualtrace_local.records import ACTIVE

from .durable import ASIDE, FOLDER_MODE, WriterLock, crashpoint, settle, size_of
from .folder import UNREADABLE, Folder, Say, told
from .opening import identity
from .store import Store
from .tables import FORMAT, TABLES, Key, is_any, memory_record, round_record, schema
from .vectors import AT_ONCE, Made, Vectors, memory_key, round_key

if TYPE_CHECKING:
    import pyarrow as pa


def optimize(path: Path, say: Say) -> tuple[int, int]:
    """Put small files together and remove old versions now; bytes before and after. A reader in the middle of something fails."""
    with Store.open(path, None, write=True, say=say):
        before = size_of(path)
        with told(path, "optimizing"):
            Folder(path).clean()
            settle(path, {})
    return before, size_of(path)


# --------------------------------------------------------------------------------------------------------- reembed


def reembed(path: Path, embedder: Embedder, say: Say, made: Made = lambda _: None) -> int:
    """Move a store to another embedding model; the number of vectors, 0 when it has this model already.

    The new vectors grow beside the old ones, which serve until all are there; then one write puts them in their place. Cut off, the same
    command goes on. The text of every key is embedded anew, each text once.
    """
    with Store.open(path, None, write=True, say=say):
        folder = Folder(path)
        wanted = identity(embedder)
        if wanted == {name: folder.metadata[name] for name in wanted}:
            return 0
        with told(path, "embedding"):
            aside = _aside(path / ASIDE, embedder)
            total = folder.count("vectors")
            made(_drop_stale(folder, aside))
            maker = Vectors(aside, embedder)
            for keys in _keys(folder, aside):
                aside.add("vectors", aside.prepared("vectors", maker.rows(keys)))
                crashpoint("reembed-batch")
                made(len(keys))
            settle(path, {})
            crashpoint("reembed-before-swap")
            folder.rewrite("vectors", aside.read("vectors"), schema("vectors", embedder.dimension, wanted))
            crashpoint("reembed-after-swap")
            shutil.rmtree(path / ASIDE)
            settle(path, {})
    return total


def _aside(place: Path, embedder: Embedder) -> Folder:
    """The folder of the new vectors: what an earlier start left, when it was for this very model."""
    folder, wanted = Folder(place), identity(embedder)
    try:
        there = {k.decode(): v.decode() for k, v in (folder.table("vectors").schema.metadata or {}).items()}
    except UNREADABLE:
        there = {}
    if there != wanted:
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(FOLDER_MODE)
        folder = Folder(place)
        folder.create(embedder.dimension, {}, wanted, ("vectors",))
    return folder


def _drop_stale(folder: Folder, aside: Folder) -> int:
    """Take out vectors of keys that were changed or removed since an earlier start; the number that stays."""
    now = {(r["id"], r["terms"]) for r in folder.rows("vectors", ["id", "terms"])}
    there = aside.rows("vectors", ["id", "terms"])
    aside.delete("vectors", "id", {r["id"] for r in there if (r["id"], r["terms"]) not in now})
    return aside.count("vectors")


def _keys(folder: Folder, aside: Folder) -> Iterator[Sequence[Key]]:
    """The keys that have no new vector yet."""
    have = set(aside.read("vectors", ["id"])["id"].to_pylist())
    rows = [r for r in folder.rows("vectors", ["id", "owner_id", "kind"]) if r["id"] not in have]
    rows.sort(key=lambda r: r["id"])
    for start in range(0, len(rows), AT_ONCE):
        batch = rows[start : start + AT_ONCE]
        owners = {r["owner_id"] for r in batch}
        memories = {r["id"]: memory_record(r) for r in folder.rows("memories", where=is_any("id", owners))}
        rounds = {r["id"]: round_record(r) for r in folder.rows("rounds", where=is_any("id", owners))}
        found = [round_key(rounds[r["owner_id"]]) for r in batch if r["owner_id"] in rounds]
        yield [*found, *(memory_key(memories[r["owner_id"]], r["kind"]) for r in batch if r["owner_id"] in memories)]


# --------------------------------------------------------------------------------------------------------- migrate


def migrate(path: Path, say: Callable[[str], None]) -> tuple[int, int]:
    """Bring a store of an older format to this one; the formats before and after, equal when there was nothing to do.

    Every table is written anew, the ledger last: cut off, the store is still of the old format and the same command begins again.
    Raises StoreError for a store of a newer format, or one with a table that cannot be read.
    """
    if not (path / "sessions.lance").is_dir():
        raise StoreError(f"there is no store in {path}")
    lock = WriterLock(path)
    try:
        with told(path, "migrating"):
            folder = Folder(path)
            before = folder.table("sessions").schema.metadata or {}
            said = {k.decode(): v.decode() for k, v in before.items()}
            version = int(said.get("version", "0"))
            if version == FORMAT:
                return version, version
            if not 0 < version < FORMAT:
                raise StoreError(f"store {path} has format version {version}, this program reads {FORMAT}; update dualtrace")
            metadata = {"version": str(FORMAT), "secret": said["secret"]}
            model = {name: said[name] for name in ("embedder", "embedder_digest", "dimension")}
            for name in TABLES:
                kind = schema(name, int(said["dimension"]), {"sessions": metadata, "vectors": model}.get(name))
                folder.put(name, _filled(folder.read(name) if (path / f"{name}.lance").is_dir() else kind.empty_table(), name, kind))
                crashpoint(f"migrate-{name}")
            folder.clean()
            settle(path, {})
            say(f"store {path}: format {version} became {FORMAT}")
            return version, FORMAT
    finally:
        lock.release()


def _filled(rows: pa.Table, table: str, kind: pa.Schema) -> pa.Table:
    """Rows with the columns that an older format did not have."""
    import pyarrow as pa

    for column in kind:
        if column.name in rows.schema.names:
            continue
        value = {"status": ACTIVE, "kind": "session"}.get(column.name, 0 if column.type == pa.int64() else "")
        filled = rows["key"] if (table, column.name) == ("forgotten", "session_key") else pa.array([value] * rows.num_rows, column.type)
        rows = rows.append_column(column, filled)
    return rows.select(kind.names).cast(kind)
