"""A store as sorted rows: equal for equal stores, whatever the batches, the order of teaching or the versions on disk."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from operator import itemgetter
from typing import Any

from .folder import Folder
from .keys import TAUGHT_KINDS

ORDER = {
    "sessions": ("key",),
    "memories": ("id",),
    "versions": ("memory_id", "number"),
    "rounds": ("id",),
    "vectors": ("owner_id", "kind"),
    "haystacks": ("question_id", "position"),
    "forgotten": ("key",),
}
LEFT_OUT = frozenset({"scope", "source", "record", "vector", "terms", "total"})
"""Worked out from other columns, floats (a digest of the text stands for them), where a session happened to be read first."""

JSON = frozenset({"evidence", "components", "dropped_sentences"})


def dump(folder: Folder, whole: Collection[str]) -> Iterator[dict[str, Any]]:
    """Rows of the committed sessions ``whole`` and of the other tables, each with its ``table``."""
    for table, by in ORDER.items():
        rows = folder.rows(table, [c for c in folder.columns(table) if c not in LEFT_OUT])
        for row in sorted(rows, key=itemgetter(*by)):
            unfinished = row.get("session_key", "") not in whole and table in ("memories", "versions", "rounds", "vectors")
            made_on_demand = row.get("kind", "") not in ("", *TAUGHT_KINDS)
            if not unfinished and not made_on_demand:
                yield {"table": table, **{k: json.loads(v) if k in JSON else v for k, v in row.items()}}
