"""A store's rows as plain objects, session by session and without vectors: what an archive holds, and the way back.

Everything that can be worked out is left out and worked out again: scope hashes, totals, keys, vectors. Ids are checked, texts masked.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

from pydantic import TypeAdapter, ValidationError

from dualtrace_local.errors import DataError
from dualtrace_local.masking import mask_value
from dualtrace_local.records import Memory, Scope

from .changes import change_record
from .folder import Folder
from .tables import (
    COMPONENTS,
    EVIDENCE,
    HEX,
    columns_of,
    is_any,
    is_scope,
    ledger_record,
    memory_record,
    memory_row,
    round_record,
    round_row,
    scope_hash,
)

WORKED_OUT = frozenset({"scope", "total"})
"""Columns that an archive does not hold."""

NESTED: dict[str, TypeAdapter[Any]] = {
    "components": COMPONENTS,
    "evidence": EVIDENCE,
    "dropped_sentences": TypeAdapter(tuple[str, ...]),
}
"""Columns that hold JSON; an archive holds it as JSON, not as text."""

PARTS = ("memories", "versions", "rounds")
"""Tables whose rows belong to one session, in the order of an archive."""


@dataclass
class Bundle:
    """One session of an archive: its ledger row and the rows of ``PARTS``."""

    session: dict[str, Any]
    parts: dict[str, list[dict[str, Any]]] = field(default_factory=lambda: {table: [] for table in PARTS})

    @property
    def key(self) -> str:
        """The session's key."""
        return str(self.session["key"])


def archived(folder: Folder, scope: Scope, keys: Mapping[str, str], gone: frozenset[str]) -> Iterator[dict[str, Any]]:
    """The lines about one scope: each session of ``keys`` followed by its parts, then its questions' haystacks, then what was forgotten."""
    within = is_scope(scope)
    held = {table: _grouped(folder, table, within, gone) for table in PARTS}
    sessions = sorted((r for r in folder.rows("sessions", where=within) if r["key"] in keys), key=itemgetter("date", "key"))
    for row in sessions:
        yield _line("sessions", row)
        for table in PARTS:
            for part in held[table].get(row["key"], ()):
                yield _line(table, part)
    known = {row["key"] for row in sessions}
    stacks: dict[str, list[str]] = {}
    for row in sorted(folder.rows("haystacks"), key=itemgetter("question_id", "position")):
        if row["session_key"] in known:
            stacks.setdefault(row["question_id"], []).append(row["session_key"])
    for question, session_keys in stacks.items():
        yield {"table": "haystacks", "question_id": question, "session_keys": session_keys}
    for row in sorted(folder.rows("forgotten", where=within), key=itemgetter("key")):
        yield _line("forgotten", row)


def _grouped(folder: Folder, table: str, within: str, gone: frozenset[str]) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    order = itemgetter("memory_id", "number") if table == "versions" else itemgetter("ordinal")
    for row in sorted(folder.rows(table, where=within), key=order):
        if row["id"] not in gone and row.get("memory_id") not in gone:
            found.setdefault(row["session_key"], []).append(row)
    return found


def _line(table: str, row: Mapping[str, Any]) -> dict[str, Any]:
    return {"table": table, **{k: json.loads(v) if k in NESTED else v for k, v in row.items() if k not in WORKED_OUT}}


# -------------------------------------------------------------------------------------------------------- the way back


def row_of(line: Mapping[str, Any]) -> dict[str, Any]:
    """The row of one line, with what is worked out. Raises DataError, without any text, for a line that no export wrote."""
    table = line["table"]
    wanted = columns_of(table)
    missing = sorted(wanted.keys() - WORKED_OUT - line.keys())
    if missing or (more := sorted(line.keys() - wanted.keys() - {"table"})):
        raise DataError(f"{', '.join(missing or more)} {'missing' if missing else 'unknown'} in a line of {table}")
    row: dict[str, Any] = {}
    for name, kind in wanted.items():
        if name in WORKED_OUT:
            continue
        value = line[name]
        if name in NESTED:
            try:
                NESTED[name].validate_python(value)
            except ValidationError as problem:
                raise DataError(f"{name} does not have the shape that an export writes") from problem
            value = json.dumps(mask_value(value), ensure_ascii=False, separators=(",", ":"))
        elif not isinstance(value, kind) or isinstance(value, bool):
            raise DataError(f"{name} is a {type(value).__name__}, not a {kind.__name__}")
        row[name] = mask_value(value)  # an export holds no credential; a file that somebody changed may
    for name in ("key", "id", "session_key", "memory_id"):
        if name in row and not HEX.fullmatch(row[name]):
            raise DataError(f"{name} is not an id; ids are hexadecimal")
    row["scope"] = scope_hash(Scope(row["user"], row["project"]))
    return row


def checked(bundle: Bundle) -> list[Memory]:
    """The memories of a bundle whose ids are what they must be; rows get their totals. Raises DataError for ids that are not."""
    key, scope = bundle.key, bundle.session["scope"]
    ledger_record(bundle.session)
    memories: dict[str, Memory] = {}
    for table in PARTS:
        for row in bundle.parts[table]:
            if row["session_key"] != key or row["scope"] != scope:
                raise DataError(f"a line of {table} belongs to another session or scope")
    for row in bundle.parts["memories"]:
        memory = memory_record(row)
        memories[memory.id] = memory
        row.update(memory_row(memory) if memory.id == row["id"] else _false_id("memory"))
    for row in bundle.parts["rounds"]:
        item = round_record(row)
        row.update(round_row(item) if item.id == row["id"] else _false_id("round"))
    for row in bundle.parts["versions"]:
        about = memories.get(row["memory_id"])
        if about is None or change_record(row, about).id != row["id"]:
            _false_id("version")
    return list(memories.values())


def _false_id(what: str) -> dict[str, Any]:
    raise DataError(f"the id of a {what} does not fit what it says; the line was changed")


def newer_versions(folder: Folder, bundle: Bundle) -> list[dict[str, Any]]:
    """Versions that go on where the store's own end, for a session that the store has. Where both went on apart, the store's stay."""
    rows = bundle.parts["versions"]
    there = folder.rows("versions", ["id", "memory_id"], is_any("session_key", [bundle.key]))
    own: dict[str, set[str]] = {}
    for row in there:
        own.setdefault(row["memory_id"], set()).add(row["id"])
    theirs: dict[str, set[str]] = {}
    for row in rows:
        theirs.setdefault(row["memory_id"], set()).add(row["id"])
    follow = {m for m, ids in theirs.items() if own.get(m, set()) < ids}
    return [row for row in rows if row["memory_id"] in follow and row["id"] not in own.get(row["memory_id"], set())]
