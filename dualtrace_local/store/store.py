"""The store: one LanceDB folder, one writer, whole commits.

LanceDB has no commit across tables. Memories, rounds and vectors are written first and the ledger row last; rows without a ledger
row do not exist for a reader and are purged when the store is next opened for writing.
"""

from __future__ import annotations

import contextlib
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

from .changes import Change, catch_up, history, write
from .dump import dump
from .durable import WriterLock, crashpoint, settle, size_of
from .erase import allow, erase, intend
from .folder import Folder, Say, told
from .keys import Kind
from .opening import build, claim, identity, of_this_format, repaired
from .proof import Needles, needles_of, rows_left
from .tables import (
    FORMAT,
    HEX,
    LedgerRow,
    Outcome,
    Selection,
    forgotten_row,
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
                claim(path)
            lock = WriterLock(path) if write else None
        with contextlib.ExitStack() as undo:
            if lock:
                undo.callback(lock.release)
            with told(path, "opening"):
                if new:
                    build(path, embedder)
                of_this_format(path)
                repaired(path, lock, say)
                store = cls(path, embedder, lock)
                if lock:
                    store._complete()
            undo.pop_all()
        return store

    def _check(self, embedder: Embedder | None) -> None:
        if embedder and identity(embedder) != {k: self._metadata[k] for k in identity(embedder)}:
            was = f"{self._metadata['embedder']} ({self._metadata['embedder_digest'][:8]}, {self._metadata['dimension']})"
            now = f"{embedder.name} ({embedder.digest[:8]}, {embedder.dimension})"
            remedy = f"use that model, or move the store to this one: `dualtrace store reembed --store {self.path}`"
            msg = f"store {self.path} was made with embedding model {was}, not {now}; {remedy}"
            raise StoreError(msg)

    def _complete(self) -> None:
        """Make key vectors that a stepped-back table lost or a correction needs, and bring everything to disk."""
        self._complete_keys()
        settle(self.path, self._settled)

    def _complete_keys(self) -> None:
        if self._vectors and (keys := self._vectors.missing()):
            self._folder.add("vectors", self._folder.prepared("vectors", self._vectors.rows(keys)))

    def _corrected(self) -> set[str]:
        return set(self._folder.read("versions", ["memory_id"])["memory_id"].to_pylist())

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
        gone = self._gone()
        found = self._folder.read("sessions", ["key", "fingerprint"], is_scope(scope) if scope else "")
        pairs = zip(found["key"].to_pylist(), found["fingerprint"].to_pylist(), strict=True)
        return {key: fingerprint for key, fingerprint in pairs if key not in gone}

    def forgotten(self) -> frozenset[str]:
        """Keys of sessions of which something was forgotten: none of them is taught where it is not in the store."""
        return frozenset(self._folder.read("forgotten", ["session_key"])["session_key"].to_pylist())

    def _gone(self) -> frozenset[str]:
        """Keys of sessions and ids of memories and rounds that were forgotten, and may still be there while they are being removed."""
        return frozenset(self._folder.read("forgotten", ["key"])["key"].to_pylist())

    def _visible(self, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Those of committed sessions that were not forgotten."""
        whole, gone = self.known(), self._gone()
        return [r for r in rows if r["session_key"] in whole and r["id"] not in gone]

    def commit(self, outcomes: Sequence[Outcome]) -> int:
        """Store finished sessions, whole and on disk when this returns; the number stored.

        A session that is known, forgotten, or twice in the batch (the first counts) is passed over. Corrections that the owner made
        before the session was lost to damage hold again.
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
            if corrected := {m.id for m in memories} & self._corrected():
                catch_up(self._folder, corrected)
                self._complete_keys()
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

    def change(self, before: Memory, change: Change) -> None:
        """Keep ``change`` as the newest version of the memory ``before``. Raises StoreError when another change came first."""
        self._writer()
        if self.by_id([before.id], before.scope, retracted=True).get(before.id) != before:
            msg = f"memory {before.id[:12]} was changed or removed meanwhile; look at it again and repeat"
            raise StoreError(msg)
        with told(self.path, "writing"):
            write(self._folder, before, change)
            self._complete_keys()
            settle(self.path, self._settled)
            self._tidy()

    def allow_again(self, session_keys: Collection[str]) -> None:
        """Take these sessions off the list of what must not come back, as far as they are not in the store."""
        self._writer()
        with told(self.path, "writing"):
            allow(self._folder, set(session_keys) - self.known().keys())
            settle(self.path, self._settled)

    def forget(self, sessions: Collection[LedgerRow], memories: Collection[Memory], rounds: Collection[Round]) -> None:
        """Remove whole sessions, and of other sessions these memories and rounds, from tables, indexes and disk.

        Only their keys stay, which keep them from coming back. When it is cut off, the next opening for writing goes on with it.
        """
        if self._lock is None:
            msg = f"store {self.path} is open for reading only; open it with write=True"
            raise StoreError(msg)
        whole, _ = _apart(sessions, memories, rounds)
        parts = [("memory", m) for m in memories if m.session_key not in whole] + [
            ("round", r) for r in rounds if r.session_key not in whole
        ]
        rows = [forgotten_row("session", row.key, row.key, row.scope) for row in sessions]
        rows += [forgotten_row(kind, part.id, part.session_key, part.scope) for kind, part in parts]
        with told(self.path, "forgetting"):
            intend(self._folder, rows)
            erase(self._folder)
            self._settled.clear()
            settle(self.path, self._settled)

    def needles(self, sessions: Collection[LedgerRow], memories: Collection[Memory], rounds: Collection[Round]) -> Needles:
        """What is to be looked for in files to prove that ``forget`` with the same arguments removed it; to be asked for before."""
        return needles_of(self._folder, *_apart(sessions, memories, rounds))

    def rows_left(self, sessions: Collection[LedgerRow], memories: Collection[Memory], rounds: Collection[Round]) -> int:
        """Rows of any table that are still of one of these."""
        return rows_left(self._folder, *_apart(sessions, memories, rounds))

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
        rows, gone = self._folder.rows("sessions", where=is_scope(scope) if scope else ""), self._gone()
        return [ledger_record(r) for r in sorted(rows, key=itemgetter("date", "key")) if r["key"] not in gone]

    def memories(
        self, scope: Scope, session_keys: frozenset[str] | None = None, minimum: int = 0, hide_after: datetime | None = None
    ) -> list[Memory]:
        """The memories of a selection as they are now, by date, session and ordinal; undated first. Retracted ones are left out."""
        rows = self._folder.rows("memories", where=Selection(scope, session_keys, minimum, hide_after).where("memories"))
        return [memory_record(r) for r in sorted(self._visible(rows), key=DATED)]

    def retracted(self, scope: Scope) -> list[Memory]:
        """The memories that the owner has retracted, in the same order."""
        rows = self._folder.rows("memories", where=f"{is_scope(scope)} AND status = 'retracted'")
        return [memory_record(r) for r in sorted(self._visible(rows), key=DATED)]

    def by_id(self, ids: Collection[str], scope: Scope, *, retracted: bool = False) -> dict[str, Memory]:
        """The memories with these ids; those that the owner has retracted only when asked for."""
        within = is_scope(scope) if retracted else Selection(scope).where("memories")
        rows = self._folder.rows("memories", where=f"{is_any('id', ids)} AND {within}")
        return {r["id"]: memory_record(r) for r in self._visible(rows)}

    def memory(self, prefix: str, scope: Scope) -> Memory:
        """The one memory whose id starts with ``prefix``, retracted or not. Raises StoreError when there is none or more than one."""
        wanted = prefix.strip().lower()
        if not HEX.match(wanted):
            msg = f"{prefix!r} is not a memory id; `dualtrace memory list` shows them"
            raise StoreError(msg)
        rows = self._folder.rows("memories", where=f"starts_with(id, '{wanted}') AND {is_scope(scope)}")
        found = [memory_record(r) for r in self._visible(rows)]
        if len(found) == 1:
            return found[0]
        those = ", ".join(sorted(m.id for m in found)[:3])
        fits = f"fits {len(found)} memories ({those} ...); give more of it" if found else "is not there; see `dualtrace memory list`"
        msg = f"memory {prefix} {fits}"
        raise StoreError(msg)

    def history(self, memories: Sequence[Memory]) -> list[Change]:
        """Every version of these memories, each memory's in order and as taught first; none of one that was never changed."""
        return history(self._folder, memories)

    def rounds(self, scope: Scope, session_keys: frozenset[str] | None = None) -> list[Round]:
        """The verbatim rounds, by date, session and ordinal; undated first."""
        rows = self._folder.rows("rounds", where=Selection(scope, session_keys).where("rounds"))
        return [round_record(r) for r in sorted(self._visible(rows), key=DATED)]

    def rounds_by_id(self, ids: Collection[str], scope: Scope) -> dict[str, Round]:
        """The rounds with these ids."""
        rows = self._folder.rows("rounds", where=f"{is_any('id', ids)} AND {is_scope(scope)}")
        return {r["id"]: round_record(r) for r in self._visible(rows)}

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
        ledger, there = self.sessions(), self._visible(self._folder.rows("memories", ["id", "session_key", "scene"]))
        said = self._visible(self._folder.rows("rounds", ["id", "session_key"]))
        return StoreInfo(
            version=FORMAT,
            embedder=self._metadata["embedder"],
            embedder_digest=self._metadata["embedder_digest"],
            dimension=int(self._metadata["dimension"]),
            sessions=len(ledger),
            memories=len(there),
            with_scene=sum(bool(row["scene"]) for row in there),
            rounds=len(said),
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
        whole = self.known()
        return [hit for session, hit in self._searched().by_vector(selection, kind, vector, limit) if session in whole]

    def matching(self, selection: Selection, kind: Kind, words: Sequence[str], vector: NDArray[np.float32], limit: int) -> list[Hit]:
        """Highest BM25 score first, by LanceDB, with the word statistics of the whole table."""
        whole = self.known()
        return [hit for session, hit in self._searched().by_words(selection, kind, words, vector, limit) if session in whole]

    def _searched(self) -> Vectors:
        if self._vectors is None:
            msg = f"store {self.path} was opened without its embedding model, so it cannot be searched"
            raise StoreError(msg)
        return self._vectors


def _apart(sessions: Collection[LedgerRow], memories: Collection[Memory], rounds: Collection[Round]) -> tuple[set[str], set[str]]:
    """Keys of whole sessions, and ids of memories and rounds of others."""
    whole = {row.key for row in sessions}
    single = {m.id for m in memories if m.session_key not in whole} | {r.id for r in rounds if r.session_key not in whole}
    return whole, single
