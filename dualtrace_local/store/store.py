"""The store: one LanceDB folder, one writer, whole commits.

LanceDB has no commit across tables. Memories, rounds and vectors are written first and the ledger row last; rows without a ledger
row do not exist for a reader and are purged when the store is next opened for writing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from dualtrace_local.embed import Embedder
from dualtrace_local.errors import StoreError
from dualtrace_local.records import RETRACTED, Memory, Round

from .archive import Bundle, checked, newer_versions
from .changes import Change, catch_up, write
from .durable import WriterLock, crashpoint, settle
from .erase import allow, erase, intend
from .folder import Folder, Say, told
from .keys import Kind
from .opening import build, claim, identity, of_this_format, repaired
from .proof import Needles, needles_of, rows_left
from .reading import Reading
from .tables import (
    LedgerRow,
    Outcome,
    Selection,
    forgotten_row,
    hashed,
    ledger_row,
    memory_row,
    round_row,
)
from .vectors import Keys, Made, Vectors, taught_keys

IN_MEMORY = 20_000
"""Keys up to which a view's words are ranked in memory; from here on they are indexed."""


class Store(Reading):
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

    # ------------------------------------------------------------------------------------------------------ writing

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

    def restore(self, bundles: Sequence[Bundle]) -> int:
        """Store sessions of an archive that are not there, whole like ``commit``; corrections that go on from the store's own are added.

        The number stored. Raises DataError for one whose ids do not fit what it says; nothing of the batch is stored then.
        """
        vectors, known, gone = self._writer(), self.known(), self.forgotten()
        fresh = [b for b in bundles if b.key not in known and b.key not in gone]
        memories = [m for b in fresh for m in checked(b)]
        have = set(self._folder.read("versions", ["id"])["id"].to_pylist())
        more = [v for b in bundles if b.key in known for v in newer_versions(self._folder, b)]
        versions = [v for b in fresh for v in b.parts["versions"] if v["id"] not in have] + more
        parts = {name: self._folder.prepared(name, [r for b in fresh for r in b.parts[name]]) for name in ("memories", "rounds")}
        ledger = self._folder.prepared("sessions", [b.session for b in fresh])
        keys = self._folder.prepared("vectors", vectors.rows(taught_keys(m for m in memories if m.status != RETRACTED)))
        with told(self.path, "writing"):
            self._folder.add("versions", self._folder.prepared("versions", versions))
            for name, rows in (*parts.items(), ("vectors", keys), ("sessions", ledger)):
                self._folder.add(name, rows)
            catch_up(self._folder, {v["memory_id"] for v in more})
            self._complete_keys()
            settle(self.path, self._settled)
            self._tidy()
        return len(fresh)

    def remember_forgotten(self, rows: Sequence[Mapping[str, Any]]) -> int:
        """Add to what must not come back, from an archive; sessions that are in the store stay. The number added."""
        known, there = self.known(), self._gone()
        new = [r for r in rows if r["key"] not in there and (r["kind"] != "session" or r["key"] not in known)]
        with told(self.path, "writing"):
            self._folder.add("forgotten", self._folder.prepared("forgotten", new))
            settle(self.path, self._settled)
        return len(new)

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

    # ---------------------------------------------------------------------------------------------------- for search

    def keys(self, selection: Selection, kind: Kind, made: Made = lambda _: None, *, words: bool = True) -> Keys:
        """The keys of a selection, without their ``words`` if told so; what was never embedded under this kind is embedded now.

        A store that is open for writing keeps it, batch by batch, and ``made`` is told the size of each.
        """
        if self._lock is None:
            return self._searched().read(selection, kind, self.known(), words=words, made=made)
        with told(self.path, "writing"):
            found = self._searched().read(selection, kind, self.known(), words=words, keep=True, made=made)
            settle(self.path, self._settled)
            self._tidy()
        return found


def _apart(sessions: Collection[LedgerRow], memories: Collection[Memory], rounds: Collection[Round]) -> tuple[set[str], set[str]]:
    """Keys of whole sessions, and ids of memories and rounds of others."""
    whole = {row.key for row in sessions}
    single = {m.id for m in memories if m.session_key not in whole} | {r.id for r in rounds if r.session_key not in whole}
    return whole, single
