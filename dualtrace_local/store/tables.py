"""The tables: their schemas, records to rows and back, and the one helper that builds every filter.

Names of people and projects, external ids and question ids never reach a filter: columns that are filtered hold hex hashes, fixed
words or ISO dates. Dates are ISO text (empty when undated), so that they sort as text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter

from dualtrace_local.errors import StoreError
from dualtrace_local.records import RETRACTED, Component, Encoded, Evidence, Memory, Round, Scope, Tier, digest_of, plain

from .keys import Kind

if TYPE_CHECKING:
    import pyarrow as pa

FORMAT = 2
"""Version of the store's format; any other is refused. 1 had no corrections and compressed text, see ``migrate``."""

HEX = re.compile(r"[0-9a-f]{1,64}\Z")
ALWAYS = 9
"""Evidence total of what the user asked to remember, and of rounds: above every minimum."""

COMPONENTS = TypeAdapter(tuple[Component, ...])
EVIDENCE = TypeAdapter(Evidence)
_REASONS = TypeAdapter(tuple[str, ...])
READABLE = {"lance-encoding:compression": "none"}
"""Text columns are not compressed, so that a search of the files' bytes sees what is in them: the proof of ``forget`` rests on it."""

_LEDGER_SAME = ("key", "external_id", "status", "fingerprint", "source", "record", "memories", "with_scene", "rounds")
_MEMORY_SAME = ("session_key", "ordinal", "anchor", "info_type", "category", "scene", "scene_refused", "status", "version")


@dataclass(frozen=True)
class Outcome:
    """What teaching decided about a session. ``status``: ``taught``, ``dropped``, ``empty``; ``fingerprint``: of the teaching."""

    encoded: Encoded
    status: str
    fingerprint: str


@dataclass(frozen=True)
class LedgerRow:
    """One session of the ledger. ``memories``, ``with_scene`` and ``rounds`` are counts; ``evidence`` holds the gate's scores."""

    key: str
    external_id: str
    date: datetime | None
    scope: Scope
    tier: Tier
    evidence: Evidence
    status: str
    fingerprint: str
    source: str
    record: int
    memories: int
    with_scene: int
    rounds: int
    dropped_sentences: tuple[str, ...] = ()


NOT_RETRACTED = f"status != '{RETRACTED}'"
"""Filter on ``memories``."""


@dataclass(frozen=True)
class Selection:
    """Which memories a search may see.

    ``session_keys`` None means every session of the scope; ``minimum`` is the lowest evidence total (what the user
    asked to remember is always seen); sessions dated after ``hide_after`` are hidden, undated ones are not.
    """

    scope: Scope
    session_keys: frozenset[str] | None = None
    minimum: int = 0
    hide_after: datetime | None = None

    def where(self, table: str = "vectors") -> str:
        """As a filter on ``memories`` (retracted ones are never selected), ``rounds`` or ``vectors``."""
        parts = [is_scope(self.scope)]
        if table == "memories":
            parts.append(NOT_RETRACTED)
        if self.session_keys is not None:
            parts.append(is_any("session_key", self.session_keys))
        if self.minimum:
            parts.append(f"total >= {int(self.minimum)}")
        if self.hide_after is not None:
            parts.append(f"date <= '{self.hide_after.isoformat()}'")
        return " AND ".join(parts)


def is_any(column: str, hashes: Collection[str]) -> str:
    """Filter: ``column`` is one of these hex hashes. Anything else is a StoreError, never part of a filter."""
    wrong = next((h for h in hashes if not HEX.match(h)), None)
    if wrong is not None:
        msg = f"{wrong!r} is not an id of this store; ids are hexadecimal"
        raise StoreError(msg)
    if not hashes:
        return "1 = 0"
    quoted = ", ".join(f"'{h}'" for h in sorted(hashes))
    return f"{column} IN ({quoted})"


def is_scope(scope: Scope) -> str:
    """Filter: belongs to exactly this user and project, whatever their names are."""
    return is_any("scope", [scope_hash(scope)])


@lru_cache(maxsize=64)
def scope_hash(scope: Scope) -> str:
    """Hex hash of a scope. Raises StoreError for a name that is not valid Unicode."""
    return hashed("scope", scope.user, scope.project)


def hashed(*parts: str) -> str:
    """Hex hash of names from outside, for filters. Raises StoreError when one is not valid Unicode."""
    try:
        return digest_of(*parts)
    except UnicodeEncodeError as problem:
        msg = f"the name {problem.object!a} of a {parts[0]} is not valid Unicode text; choose another"
        raise StoreError(msg) from problem


# --------------------------------------------------------------------------------------------------------- schemas

_TEXT = {
    "sessions": "key scope user project external_id date tier evidence status fingerprint source dropped_sentences",
    "memories": "id session_key scope user project date anchor info_type category tier evidence components scene scene_refused status",
    "versions": "id memory_id session_key scope user project action by at anchor info_type category components scene scene_refused status",
    "rounds": "id session_key scope user project date said answered",
    "haystacks": "question question_id session_key",
    "forgotten": "key kind session_key scope user project",
    "vectors": "id owner_id kind session_key scope date digest text terms",
}
_NUMBERS = {
    "sessions": "record memories with_scene rounds",
    "memories": "ordinal total version",
    "versions": "number",
    "rounds": "ordinal",
    "haystacks": "position",
    "vectors": "total",
}
TABLES = ("memories", "versions", "rounds", "vectors", "haystacks", "forgotten", "sessions")
"""In the order they are made: the ledger last, so that a folder with a ledger is a whole store."""

SCANNED = {
    "sessions": ("key", "memories", "rounds"),
    "memories": ("id", "session_key", "version"),
    "versions": ("id", "memory_id", "session_key", "number"),
    "rounds": ("id", "session_key"),
    "vectors": ("id", "owner_id", "kind", "session_key"),
    "haystacks": ("question", "session_key"),
    "forgotten": ("key", "kind", "session_key"),
}
"""Columns read at every opening, to prove that the newest version of a table can be read."""


def columns_of(table: str) -> dict[str, type]:
    """The columns of a table without vectors, with the type of their values."""
    return dict.fromkeys(_TEXT[table].split(), str) | dict.fromkeys(_NUMBERS.get(table, "").split(), int)


def schema(table: str, dimension: int, metadata: Mapping[str, str] | None = None) -> pa.Schema:
    """The Arrow schema of ``table``; no column may be null."""
    import pyarrow as pa

    columns = [pa.field(name, pa.string(), nullable=False, metadata=READABLE) for name in _TEXT[table].split()]
    columns += [pa.field(name, pa.int64(), nullable=False) for name in _NUMBERS.get(table, "").split()]
    if table == "vectors":
        columns.append(pa.field("cut", pa.bool_(), nullable=False))
        columns.append(pa.field("vector", pa.list_(pa.float32(), dimension), nullable=False))
    return pa.schema(columns, metadata=dict(metadata or {}))


def arrow(rows: Iterable[Mapping[str, Any]], kind: pa.Schema) -> pa.Table:
    """Rows as an Arrow table. Raises StoreError, without quoting any text, when one is not valid Unicode."""
    import pyarrow as pa

    try:
        return pa.Table.from_pylist(list(rows), schema=kind)
    except UnicodeEncodeError as problem:
        msg = "a session holds a lone surrogate (half a character), which cannot be stored; repair the source and teach it again"
        raise StoreError(msg) from problem


# ------------------------------------------------------------------------------------------------- records and rows


def _dumped(value: object) -> str:
    return json.dumps(plain(value), ensure_ascii=False, separators=(",", ":"))


def _iso(date: datetime | None) -> str:
    return date.isoformat() if date else ""


def _date(text: str) -> datetime | None:
    return datetime.fromisoformat(text) if text else None


def _belongs(scope: Scope) -> dict[str, str]:
    return {"scope": scope_hash(scope), "user": scope.user, "project": scope.project}


def total_of(evidence: Evidence) -> int:
    """What a condition's minimum is compared with."""
    return ALWAYS if evidence.override == "remember" else evidence.total


def ledger_row(outcome: Outcome) -> dict[str, Any]:
    """The row of ``sessions``."""
    encoded, session = outcome.encoded, outcome.encoded.session
    return {
        "key": session.key,
        **_belongs(session.scope),
        "external_id": session.external_id,
        "date": _iso(session.date),
        "tier": encoded.tier.value,
        "evidence": _dumped(encoded.evidence),
        "status": outcome.status,
        "fingerprint": outcome.fingerprint,
        "source": session.source,
        "record": session.record,
        "memories": len(encoded.memories),
        "with_scene": sum(bool(m.scene) for m in encoded.memories),
        "rounds": len(encoded.rounds),
        "dropped_sentences": _dumped(encoded.dropped_sentences),
    }


def ledger_record(row: Mapping[str, Any]) -> LedgerRow:
    """The record of a row of ``sessions``."""
    same = {n: row[n] for n in _LEDGER_SAME}
    return LedgerRow(
        **same,
        date=_date(row["date"]),
        scope=Scope(row["user"], row["project"]),
        tier=Tier(row["tier"]),
        evidence=EVIDENCE.validate_json(row["evidence"]),
        dropped_sentences=_REASONS.validate_json(row["dropped_sentences"]),
    )


def memory_row(memory: Memory) -> dict[str, Any]:
    """The row of ``memories``."""
    return {
        "id": memory.id,
        "session_key": memory.session_key,
        **_belongs(memory.scope),
        "date": _iso(memory.date),
        "anchor": memory.anchor,
        "info_type": memory.info_type,
        "category": memory.category,
        "tier": memory.tier.value,
        "evidence": _dumped(memory.evidence),
        "components": _dumped(memory.components),
        "scene": memory.scene,
        "scene_refused": memory.scene_refused,
        "status": memory.status,
        "version": memory.version,
        "ordinal": memory.ordinal,
        "total": total_of(memory.evidence),
    }


def memory_record(row: Mapping[str, Any]) -> Memory:
    """The record of a row of ``memories``."""
    same = {n: row[n] for n in _MEMORY_SAME}
    return Memory(
        **same,
        scope=Scope(row["user"], row["project"]),
        date=_date(row["date"]),
        tier=Tier(row["tier"]),
        evidence=EVIDENCE.validate_json(row["evidence"]),
        components=COMPONENTS.validate_json(row["components"]),
    )


def round_row(item: Round) -> dict[str, Any]:
    """The row of ``rounds``; ``said`` is the user's side, ``answered`` the assistant's."""
    return {
        "id": item.id,
        "session_key": item.session_key,
        **_belongs(item.scope),
        "date": _iso(item.date),
        "said": item.user,
        "answered": item.assistant,
        "ordinal": item.ordinal,
    }


def round_record(row: Mapping[str, Any]) -> Round:
    """The record of a row of ``rounds``."""
    scope = Scope(row["user"], row["project"])
    return Round(row["session_key"], row["ordinal"], scope, _date(row["date"]), row["said"], row["answered"])


def forgotten_row(kind: str, key: str, session_key: str, scope: Scope) -> dict[str, Any]:
    """The row of ``forgotten``; ``kind`` is ``session``, ``memory`` or ``round`` and says what ``key`` is of."""
    return {"key": key, "kind": kind, "session_key": session_key, **_belongs(scope)}


@dataclass(frozen=True)
class Key:
    """One text that a memory or a round is found by, before it is embedded. ``total`` and ``date`` are its session's."""

    owner_id: str
    kind: Kind
    session_key: str
    scope: Scope
    date: datetime | None
    total: int
    text: str

    @property
    def id(self) -> str:
        """Id of its row in ``vectors``."""
        return digest_of("vector", self.owner_id, self.kind)


def key_row(key: Key, text: str, digest: str, words: Iterable[str], vector: NDArray[np.float32]) -> dict[str, Any]:
    """The row of ``vectors``; ``text`` is what the embedder read of the key's text, ``digest`` its hash, ``words`` are of all of it."""
    return {
        "id": key.id,
        "owner_id": key.owner_id,
        "kind": key.kind,
        "session_key": key.session_key,
        "scope": scope_hash(key.scope),
        "date": _iso(key.date),
        "digest": digest,
        "text": text,
        "terms": " ".join(words),
        "total": key.total,
        "cut": text != key.text,
        "vector": vector,
    }
