"""The store: one LanceDB folder, one writer, whole commits.

LanceDB has no commit across tables. Memories, rounds and vectors are written first and the ledger row last; rows without a ledger
row do not exist for a reader and are purged when the store is next opened for writing.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from operator import itemgetter
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dualtrace_local.embed import Embedder
from dualtrace_local.errors import StoreError
from dualtrace_local.records import Memory, Round, Scope

from .dump import dump
from .durable import DAMAGED, FOLDER_MODE, LOCK_FILE, WriterLock, crashpoint, settle, size_of
from .folder import Folder, Say, examine, put_right, told
from .keys import Kind
from .tables import (
    FORMAT,
    HEX,
    TABLES,
    LedgerRow,
    Outcome,
    Selection,
    hashed,
    is_any,
    is_scope,
    ledger_record,
    ledger_row,
    memory_record,
    memory_row,
    round_record,
    round_row,
)
from .vectors import Hit, Keys, Made, Vectors, taught_keys

IN_MEMORY = 20_000
"""Keys up to which a view is ranked in memory; from here on the words are indexed."""

DATED = itemgetter("date", "session_key", "ordinal")
"""Order in which memories and rounds are returned."""


@dataclass(frozen=True)
class StoreInfo:
    """Counts and identity of a store. ``cut`` counts key texts of which the embedding model read only the beginning."""

    version: int
    embedder: str
    embedder_digest: str
    dimension: int
    sessions: int
    memories: int
    with_scene: int
    rounds: int
    vectors: int
    cut: int
    haystacks: int
    forgotten: int
    bytes: int


class Store:
    """A taught memory on disk; made by ``Store.open``. Use as a context manager, or call ``close``."""

    def __init__(self, path: Path, embedder: Embedder | None, lock: WriterLock | None) -> None:
        self.path = path
        self._lock = lock
        self._folder = Folder(path)
        self._metadata = self._folder.metadata
        self._vectors = Vectors(self._folder, embedder) if embedder else None
        self._settled: dict[str, int] = {}
        self._check(embedder)

    @classmethod
    def open(cls, path: Path, embedder: Embedder | None, *, write: bool = False, create: bool = False, say: Say = lambda _: None) -> Self:
        """The store in ``path``.

        ``write`` takes the writer lock (StoreBusyError names the process that has it); ``create`` makes a store where there is
        none, and writes. ``embedder`` may be None where nothing is taught or searched. A damaged newest version is stepped back,
        and ``say`` gets one line.

        Raises StoreError for a folder that holds no store, one of a newer version, or one made with another embedding model.
        """
        path, write = Path(path), write or create
        new = not (path / "sessions.lance").is_dir()
        if new and not create:
            msg = f"there is no store in {path}; `dualtrace teach SOURCE --store {path}` makes one"
            raise StoreError(msg)
        with told(path, "opening"):
            if new:
                _claim(path)
            lock = WriterLock(path) if write else None
        with contextlib.ExitStack() as undo:
            if lock:
                undo.callback(lock.release)
            with told(path, "opening"):
                if new:
                    _build(path, embedder)
                _repaired(path, lock, say)
                store = cls(path, embedder, lock)
                if lock:
                    store._complete()
            undo.pop_all()
        return store

    def _check(self, embedder: Embedder | None) -> None:
        version = int(self._metadata.get("version", "0"))
        if version != FORMAT:
            newer = "a newer dualtrace wrote it; update dualtrace" if version > FORMAT else "it is not a store that dualtrace made"
            msg = f"store {self.path} has format version {version}, this program reads {FORMAT}: {newer}"
            raise StoreError(msg)
        if embedder and _identity(embedder) != {k: self._metadata[k] for k in _identity(embedder)}:
            was = f"{self._metadata['embedder']} ({self._metadata['embedder_digest'][:8]}, {self._metadata['dimension']})"
            now = f"{embedder.name} ({embedder.digest[:8]}, {embedder.dimension})"
            msg = f"store {self.path} was made with embedding model {was}, not {now}; use that model, or teach into a new store"
            raise StoreError(msg)

    def _complete(self) -> None:
        """Make key vectors that a stepped-back table lost, and bring everything to disk."""
        if self._vectors and (keys := self._vectors.missing()):
            self._folder.add("vectors", self._folder.prepared("vectors", self._vectors.rows(keys)))
        settle(self.path, self._settled)

    def close(self) -> None:
        """Give the writer lock back. Safe to call twice."""
        if self._lock:
            self._lock.release()
            self._lock = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def secret(self) -> bytes:
        """16 random bytes made with the store; what fences in prompts are derived from. In no dump."""
        return bytes.fromhex(self._metadata["secret"])

    # ------------------------------------------------------------------------------------------------------ writing

    def known(self, scope: Scope | None = None) -> dict[str, str]:
        """Session key -> teach fingerprint, of one scope or of all (keys differ between scopes anyway)."""
        found = self._folder.read("sessions", ["key", "fingerprint"], is_scope(scope) if scope else "")
        return dict(zip(found["key"].to_pylist(), found["fingerprint"].to_pylist(), strict=True))

    def forgotten(self) -> frozenset[str]:
        """Session keys that must not come back."""
        return frozenset(self._folder.read("forgotten", ["key"])["key"].to_pylist())

    def commit(self, outcomes: Sequence[Outcome]) -> int:
        """Store finished sessions, whole and on disk when this returns; the number stored.

        A session that is known, forgotten, or twice in the batch (the first counts) is passed over.
        """
        vectors = self._writer()
        passed = self.known().keys() | self.forgotten()
        fresh = {o.encoded.session.key: o for o in reversed(outcomes) if o.encoded.session.key not in passed}
        batch = [o for o in outcomes if fresh.get(o.encoded.session.key) is o]
        if not batch:
            return 0
        memories = [m for o in batch for m in o.encoded.memories]
        rounds = [r for o in batch for r in o.encoded.rounds]
        ledger = self._folder.prepared("sessions", [ledger_row(o) for o in batch])
        first = self._folder.prepared("memories", [memory_row(m) for m in memories])
        second = self._folder.prepared("rounds", [round_row(r) for r in rounds])
        third = self._folder.prepared("vectors", vectors.rows(taught_keys(memories)))
        with told(self.path, "writing"):
            self._folder.add("memories", first)
            crashpoint("after-memories")
            self._folder.add("rounds", second)
            self._folder.add("vectors", third)
            crashpoint("before-ledger")
            self._folder.add("sessions", ledger)
            crashpoint("after-ledger")
            settle(self.path, self._settled)
            crashpoint("after-fsync")
            self._tidy()
        return len(batch)

    def set_haystacks(self, haystacks: Mapping[str, Sequence[str]]) -> None:
        """Say which sessions each question may see under the official protocol, in order. The same again changes nothing."""
        self._writer()
        there = self._haystacks()
        changed = {q: list(keys) for q, keys in haystacks.items() if there.get(q) != list(keys)}
        rows = [
            {"question": hashed("question", q), "question_id": q, "session_key": key, "position": position}
            for q, keys in changed.items()
            for position, key in enumerate(keys)
        ]
        if not changed:
            return
        prepared = self._folder.prepared("haystacks", rows)
        with told(self.path, "writing"):
            self._folder.delete("haystacks", "question", {hashed("question", q) for q in changed if q in there})
            self._folder.add("haystacks", prepared)
            settle(self.path, self._settled)
            self._tidy()

    def index_words(self) -> None:
        """Make LanceDB's word index, which large views are ranked with. Done by itself from ``IN_MEMORY`` keys on."""
        self._writer()
        with told(self.path, "indexing"):
            self._folder.index_words()
            settle(self.path, self._settled)

    def _writer(self) -> Vectors:
        if self._lock is None or self._vectors is None:
            msg = f"store {self.path} is open for reading only; open it with write=True and its embedding model"
            raise StoreError(msg)
        return self._vectors

    def _tidy(self) -> None:
        tidied = self._folder.tidy()
        if self._folder.count("vectors") > IN_MEMORY and not self._folder.words_indexed:
            self._folder.index_words()
            tidied = True
        if tidied:
            settle(self.path, self._settled)

    # ------------------------------------------------------------------------------------------------------ reading

    def sessions(self, scope: Scope | None = None) -> list[LedgerRow]:
        """The ledger, by date and key."""
        rows = self._folder.rows("sessions", where=is_scope(scope) if scope else "")
        return [ledger_record(r) for r in sorted(rows, key=itemgetter("date", "key"))]

    def memories(
        self, scope: Scope, session_keys: frozenset[str] | None = None, minimum: int = 0, hide_after: datetime | None = None
    ) -> list[Memory]:
        """The memories of a selection, by date, session and ordinal; undated first."""
        whole = self.known()
        rows = self._folder.rows("memories", where=Selection(scope, session_keys, minimum, hide_after).where())
        return [memory_record(r) for r in sorted(rows, key=DATED) if r["session_key"] in whole]

    def by_id(self, ids: Collection[str], scope: Scope) -> dict[str, Memory]:
        """The memories with these ids."""
        rows = self._folder.rows("memories", where=f"{is_any('id', ids)} AND {is_scope(scope)}")
        whole = self._in_ledger({r["session_key"] for r in rows})
        return {r["id"]: memory_record(r) for r in rows if r["session_key"] in whole}

    def memory(self, prefix: str, scope: Scope) -> Memory:
        """The one memory whose id starts with ``prefix``. Raises StoreError when there is none or more than one."""
        wanted = prefix.strip().lower()
        if not HEX.match(wanted):
            msg = f"{prefix!r} is not a memory id; `dualtrace memory list` shows them"
            raise StoreError(msg)
        whole = self.known()
        rows = self._folder.rows("memories", where=f"starts_with(id, '{wanted}') AND {is_scope(scope)}")
        found = [memory_record(r) for r in rows if r["session_key"] in whole]
        if len(found) == 1:
            return found[0]
        those = ", ".join(sorted(m.id for m in found)[:3])
        fits = f"fits {len(found)} memories ({those} ...); give more of it" if found else "is not there; see `dualtrace memory list`"
        msg = f"memory {prefix} {fits}"
        raise StoreError(msg)

    def rounds(self, scope: Scope, session_keys: frozenset[str] | None = None) -> list[Round]:
        """The verbatim rounds, by date, session and ordinal; undated first."""
        whole = self.known()
        rows = self._folder.rows("rounds", where=Selection(scope, session_keys).where())
        return [round_record(r) for r in sorted(rows, key=DATED) if r["session_key"] in whole]

    def rounds_by_id(self, ids: Collection[str], scope: Scope) -> dict[str, Round]:
        """The rounds with these ids."""
        rows = self._folder.rows("rounds", where=f"{is_any('id', ids)} AND {is_scope(scope)}")
        whole = self._in_ledger({r["session_key"] for r in rows})
        return {r["id"]: round_record(r) for r in rows if r["session_key"] in whole}

    def haystack(self, question_id: str) -> tuple[str, ...]:
        """The session keys of one question, in order; empty when none were set."""
        found = self._folder.rows("haystacks", ["session_key", "position"], is_any("question", [hashed("question", question_id)]))
        return tuple(r["session_key"] for r in sorted(found, key=itemgetter("position")))

    def _haystacks(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        rows = self._folder.rows("haystacks", ["question_id", "session_key", "position"])
        for row in sorted(rows, key=itemgetter("question_id", "position")):
            found.setdefault(row["question_id"], []).append(row["session_key"])
        return found

    def info(self) -> StoreInfo:
        """Counts and identity."""
        ledger = self.sessions()
        return StoreInfo(
            version=FORMAT,
            embedder=self._metadata["embedder"],
            embedder_digest=self._metadata["embedder_digest"],
            dimension=int(self._metadata["dimension"]),
            sessions=len(ledger),
            memories=sum(r.memories for r in ledger),
            with_scene=sum(r.with_scene for r in ledger),
            rounds=sum(r.rounds for r in ledger),
            vectors=self._folder.count("vectors"),
            cut=self._folder.count("vectors", "cut"),
            haystacks=len(self._haystacks()),
            forgotten=len(self.forgotten()),
            bytes=size_of(self.path),
        )

    def dump(self) -> Iterator[dict[str, Any]]:
        """Every row of every table in one order, without what differs between equal stores.

        Left out: the secret, the numbers of vectors (a digest of their text stands for them), keys made only because somebody
        asked, and where a session was first read (``source``, ``record``), which depends on the order of files.
        """
        return dump(self._folder, self.known())

    # ---------------------------------------------------------------------------------------------------- for search

    def keys(self, selection: Selection, kind: Kind, made: Made = lambda _: None) -> Keys:
        """Keys, words and vectors of everything in the selection; what was never embedded under this kind is embedded now.

        A store that is open for writing keeps it, batch by batch, and ``made`` is told the size of each.
        """
        if self._lock is None:
            return self._searched().read(selection, kind, self.known(), keep=False, made=made)
        with told(self.path, "writing"):
            found = self._searched().read(selection, kind, self.known(), keep=True, made=made)
            settle(self.path, self._settled)
            self._tidy()
        return found

    def lacking(self, selection: Selection, kind: Kind) -> int:
        """Number of keys in the selection that were never embedded under this kind: 0 for kinds that are made when taught."""
        return self._searched().lacking(selection, kind)

    def size(self, selection: Selection, kind: Kind) -> int:
        """Number of keys in the selection, cheaply (rows of an unfinished commit may be counted too)."""
        return self._folder.count("vectors", f"{selection.where()} AND kind = '{kind}'")

    @property
    def words_indexed(self) -> bool:
        """Whether LanceDB can rank by words."""
        return self._folder.words_indexed

    def nearest(self, selection: Selection, kind: Kind, vector: NDArray[np.float32], limit: int) -> list[Hit]:
        """Highest cosine first, by LanceDB, exact."""
        return self._committed(self._searched().by_vector(selection, kind, vector, limit))

    def matching(self, selection: Selection, kind: Kind, words: Sequence[str], vector: NDArray[np.float32], limit: int) -> list[Hit]:
        """Highest BM25 score first, by LanceDB, with the word statistics of the whole table."""
        return self._committed(self._searched().by_words(selection, kind, words, vector, limit))

    def _committed(self, found: Sequence[tuple[str, Hit]]) -> list[Hit]:
        """The hits in sessions that exist for a reader."""
        whole = self._in_ledger({session for session, _ in found})
        return [hit for session, hit in found if session in whole]

    def _in_ledger(self, session_keys: Collection[str]) -> frozenset[str]:
        """Those of these sessions that have a ledger row; only they are looked up, since a ledger may be long."""
        return frozenset(self._folder.read("sessions", ["key"], is_any("key", session_keys))["key"].to_pylist())

    def _searched(self) -> Vectors:
        if self._vectors is None:
            msg = f"store {self.path} was opened without its embedding model, so it cannot be searched"
            raise StoreError(msg)
        return self._vectors


def _identity(embedder: Embedder) -> dict[str, str]:
    return {"embedder": embedder.name, "embedder_digest": embedder.digest, "dimension": str(embedder.dimension)}


def _claim(path: Path) -> None:
    """Make the folder, or accept an empty one (or one whose making was cut off). Other people's folders are refused."""
    ours = {*(f"{name}.lance" for name in TABLES), LOCK_FILE, DAMAGED}
    if path.is_dir() and (other := sorted(f.name for f in path.iterdir() if f.name not in ours)):
        msg = f"{path} holds other files ({other[0]} ...); give a folder that is empty or not there yet"
        raise StoreError(msg)
    path.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
    path.chmod(FOLDER_MODE)


def _build(path: Path, embedder: Embedder | None) -> None:
    if embedder is None:
        msg = f"store {path} cannot be made without an embedding model"
        raise StoreError(msg)
    metadata = {"version": str(FORMAT), "secret": secrets.token_hex(16), **_identity(embedder)}
    Folder(path).create(embedder.dimension, metadata)


def _repaired(path: Path, lock: WriterLock | None, say: Say) -> None:
    """Put right what is damaged; a reader takes the writer lock for it. What a cut-off commit left is a writer's business."""
    found = examine(path)
    if lock is None and not found.unreadable and not found.lost:
        return
    held = lock or WriterLock(path)
    try:
        # Without the lock, rows of a commit under way looked like orphans.
        put_right(path, found if lock else examine(path), say)
    finally:
        if lock is None:
            settle(path, {})
            held.release()
