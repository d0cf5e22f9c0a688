"""Proving a store whole: files as they were written, and every row as it must be. Nothing is changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from dualtrace_local.errors import StoreError
from dualtrace_local.records import RETRACTED, Memory, Scope, digest_of

from .changes import change_record
from .folder import Folder, Say
from .keys import TAUGHT_KINDS, key_text, terms
from .repair import examine
from .store import Store
from .sums import changed_files
from .tables import TABLES, hashed, memory_record, round_record, scope_hash, total_of

UNIT = 1e-3
"""How far the length of a vector may be from 1."""


@dataclass(frozen=True)
class Problem:
    """Where something is wrong (a file, or a table with an id) and what. No stored text is in it."""

    where: str
    what: str


@dataclass(frozen=True)
class Checked:
    """What was looked at, and what is wrong; an empty ``problems`` is a whole store. ``read``: every byte was read."""

    problems: tuple[Problem, ...]
    read: bool
    files: int
    rows: dict[str, int] = field(default_factory=dict)


def check(path: Path, say: Say, *, read: bool = False) -> Checked:
    """Compare files with their check sums (sizes alone, unless ``read``), then rows, ids, links, counts, keys, vectors and the word index.

    Files come first, and when one is not as it was written, the tables are not opened: opening steps damaged versions back. What a cut-off
    command left is finished before the rows are looked at, as by every opening for writing. Raises StoreError where there is no store.
    """
    if not (path / "sessions.lance").is_dir():
        raise StoreError(f"there is no store in {path}")
    files = sum(p.is_file() for p in path.rglob("*"))
    if damaged := tuple(Problem(name, what) for name, what in changed_files(path, read=read)):
        return Checked(damaged, read, files)
    with Store.open(path, None, write=True, say=say):
        folder = Folder(path)
        problems = tuple(_problems(folder, path))
        return Checked(problems, read, files, {table: folder.count(table) for table in TABLES})


def _problems(folder: Folder, path: Path) -> Iterator[Problem]:
    found = examine(path)
    yield from (Problem(f"sessions {key[:12]}", "its memories or rounds are not all there") for key in sorted(found.lost))
    yield from (Problem(f"session {key[:12]}", "has rows but is not in the ledger") for key in sorted(found.orphans))
    scopes = _ledger_scopes(folder)
    for table, column in (
        ("sessions", "key"),
        ("memories", "id"),
        ("versions", "id"),
        ("rounds", "id"),
        ("vectors", "id"),
        ("forgotten", "key"),
    ):
        counted = Counter(folder.read(table, [column])[column].to_pylist())
        yield from (Problem(f"{table} {key[:12]}", f"is there {n} times") for key, n in counted.items() if n > 1)
    for table in ("sessions", "memories", "versions", "rounds", "forgotten"):
        for row in folder.rows(table, ["scope", "user", "project", "key" if table in ("sessions", "forgotten") else "session_key"]):
            key = row.get("key", row.get("session_key", ""))
            if row["scope"] != scope_hash(Scope(row["user"], row["project"])) or scopes.get(key, row["scope"]) != row["scope"]:
                yield Problem(f"{table} of session {key[:12]}", "its scope does not fit its names or its session")
    yield from _memories(folder)
    for row in folder.rows("rounds"):
        if round_record(row).id != row["id"]:
            yield Problem(f"rounds {row['id'][:12]}", "its id does not fit its session and place")
    yield from _vectors(folder)
    for row in folder.rows("haystacks"):
        if row["question"] != hashed("question", row["question_id"]):
            yield Problem(f"haystacks {row['question'][:12]}", "its hash does not fit its question")
    words = folder.words_counted()
    if words and sum(words) != folder.count("vectors"):
        yield Problem("vectors, word index", f"holds {words[0]} rows and waits for {words[1]}, the table has {folder.count('vectors')}")


def _ledger_scopes(folder: Folder) -> dict[str, str]:
    found = folder.read("sessions", ["key", "scope"])
    return dict(zip(found["key"].to_pylist(), found["scope"].to_pylist(), strict=True))


def _memories(folder: Folder) -> Iterator[Problem]:
    rows = folder.rows("memories")
    memories = {row["id"]: memory_record(row) for row in rows}
    for row in rows:
        memory = memories[row["id"]]
        if memory.id != row["id"]:
            yield Problem(f"memories {row['id'][:12]}", "its id does not fit its session and place")
        if row["total"] != total_of(memory.evidence):
            yield Problem(f"memories {row['id'][:12]}", "its total does not fit its evidence")
    yield from _versions(folder, memories)


def _versions(folder: Folder, memories: Mapping[str, Memory]) -> Iterator[Problem]:
    newest: dict[str, int] = {}
    for row in sorted(folder.rows("versions"), key=lambda r: (r["memory_id"], r["number"])):
        if (about := memories.get(row["memory_id"])) is None:
            yield Problem(f"versions {row['id'][:12]}", "its memory is not there")
            continue
        change = change_record(row, about)
        if change.id != row["id"]:
            yield Problem(f"versions {row['id'][:12]}", "its id does not fit what it says")
        if row["number"] != newest.get(row["memory_id"], -1) + 1:
            yield Problem(f"versions {row['id'][:12]}", f"is number {row['number']}, the one before is not there")
        newest[row["memory_id"]] = row["number"]
        if row["number"] == about.version and change.memory != about:
            yield Problem(f"memories {about.id[:12]}", "does not say what its newest version says")
    for memory in memories.values():
        if memory.version != newest.get(memory.id, 0):
            yield Problem(f"memories {memory.id[:12]}", f"is version {memory.version}, its history ends at {newest.get(memory.id, 0)}")


def _vectors(folder: Folder) -> Iterator[Problem]:
    memories = {row["id"]: memory_record(row) for row in folder.rows("memories")}
    rounds = {row["id"]: round_record(row) for row in folder.rows("rounds")}
    dimension = int(folder.metadata["dimension"])
    there: set[tuple[str, str]] = set()
    for batch in folder.read("vectors").to_batches():
        for row in batch.to_pylist():
            owner, kind = row["owner_id"], row["kind"]
            there.add((owner, kind))
            if owner not in (rounds if kind == "round" else memories):
                yield Problem(f"vectors {row['id'][:12]}", "the memory or round that it is a key of is not there")
                continue
            text = rounds[owner].text if kind == "round" else key_text(memories[owner], kind)
            yield from (Problem(f"vectors {row['id'][:12]}", what) for what in _key(row, text, dimension))
    for memory in memories.values():
        has = {kind for kind in TAUGHT_KINDS if (memory.id, kind) in there}
        if has != (set() if memory.status == RETRACTED else set(TAUGHT_KINDS)):
            yield Problem(f"memories {memory.id[:12]}", f"is {memory.status} and has keys for: {', '.join(sorted(has)) or 'nothing'}")


def _key(row: Mapping[str, Any], text: str, dimension: int) -> Iterator[str]:
    if row["id"] != digest_of("vector", row["owner_id"], row["kind"]):
        yield "its id does not fit its owner and kind"
    if row["digest"] != digest_of("text", row["text"]):
        yield "its hash does not fit its text"
    if not text.startswith(row["text"]) or row["cut"] != (row["text"] != text) or row["terms"] != " ".join(terms(text)):
        yield "its text is not that of what it is a key of"
    vector = np.asarray(row["vector"], np.float32)
    if vector.shape != (dimension,) or not np.isfinite(vector).all() or abs(float(np.linalg.norm(vector)) - 1) > UNIT:
        yield f"its vector is not {dimension} finite numbers of length 1"
