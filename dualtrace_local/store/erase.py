"""Physical removal. ``forgotten`` names what has to go and is written first; everything else follows from it and can be repeated.

LanceDB's ``delete`` only marks rows, and compaction leaves files with few marks alone (measured: text, ids and vectors stay on disk).
So every table is written anew without the rows, and then all that the new versions do not name is removed.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from dualtrace_local.errors import StoreError

from .durable import ASIDE, DAMAGED, FILE_MODE, crashpoint, flush_folder
from .folder import Folder
from .tables import TABLES

if TYPE_CHECKING:
    import pyarrow as pa

MARKER = ".forgetting"
"""Lies in the store's folder from the order to the proof: old files may still hold what no row holds any more."""

OWNER = {"memories": "id", "rounds": "id", "versions": "memory_id", "vectors": "owner_id"}
"""The column that holds the id of a memory or round."""


def intend(folder: Folder, rows: Collection[Mapping[str, Any]]) -> None:
    """Write down what has to go. Keys of parts of a session that goes whole are dropped, so that nothing finer is known of it."""
    (folder.path / MARKER).touch(FILE_MODE)
    flush_folder(folder.path)
    whole = {row["key"] for row in rows if row["kind"] == "session"}
    new = {row["key"] for row in rows}
    kept = [r for r in folder.rows("forgotten") if r["key"] not in new and (r["kind"] == "session" or r["session_key"] not in whole)]
    folder.rewrite("forgotten", folder.prepared("forgotten", [*kept, *rows]))
    crashpoint("forget-intent")


def allow(folder: Folder, session_keys: Collection[str]) -> None:
    """Let these sessions come back."""
    kept = [r for r in folder.rows("forgotten") if r["session_key"] not in session_keys]
    folder.rewrite("forgotten", folder.prepared("forgotten", kept))


def erase(folder: Folder) -> None:
    """Remove everything that ``forgotten`` names from all tables and from the disk. Raises StoreError when files cannot be removed."""
    gone = folder.rows("forgotten")
    whole = {row["key"] for row in gone if row["kind"] == "session"}
    touched = {row["session_key"] for row in gone} - whole
    single = {row["key"] for row in gone} - whole
    for table in TABLES:
        if table != "forgotten":
            folder.rewrite(table, _rest(folder.read(table), table, whole, single, touched))
            crashpoint(f"forget-{table}")
    folder.clean()
    for aside in (DAMAGED, ASIDE):
        shutil.rmtree(folder.path / aside, ignore_errors=True)
    crashpoint("forget-clean")
    if left := folder.unnamed():
        msg = f"store {folder.path}: {len(left)} old files could not be removed ({left[0].name} ...); close other programs and repeat"
        raise StoreError(msg)
    (folder.path / MARKER).unlink(missing_ok=True)


def _rest(rows: pa.Table, table: str, whole: Collection[str], single: Collection[str], touched: Collection[str]) -> pa.Table:
    """What stays. The gate's quotes go from all of a session of which a part goes: they may be those of that part."""
    import pyarrow as pa
    import pyarrow.compute as pc

    def among(column: str, keys: Collection[str]) -> pa.ChunkedArray:
        return pc.is_in(rows[column], value_set=pa.array(sorted(keys), pa.string()))

    key = "key" if table == "sessions" else "session_key"
    kept = pc.invert(among(key, whole))
    if table in OWNER:
        kept = pc.and_(kept, pc.invert(among(OWNER[table], single)))
    if table in ("memories", "sessions") and touched:
        bare = [
            _without_basis(text) if k in touched else text
            for k, text in zip(*map(pa.ChunkedArray.to_pylist, (rows[key], rows["evidence"])), strict=True)
        ]
        rows = rows.set_column(rows.schema.get_field_index("evidence"), rows.schema.field("evidence"), pa.array(bare, pa.string()))
    return rows.filter(kept)


def _without_basis(evidence: str) -> str:
    return json.dumps(json.loads(evidence) | {"basis": []}, ensure_ascii=False, separators=(",", ":"))
