"""Reading a store: every way to its rows, each behind a scope but for the few that care for the store as a whole."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from operator import itemgetter
from pathlib import Path
from typing import Any

from dualtrace_local.errors import StoreError
from dualtrace_local.records import RETRACTED, Memory, Round, Scope

from .archive import archived
from .changes import Change, history
from .dump import dump
from .durable import size_of
from .folder import Folder
from .keys import Kind
from .tables import FORMAT, HEX, LedgerRow, Selection, hashed, is_any, is_scope, ledger_record, memory_record, round_record
from .vectors import Hit, Vectors

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


class Reading:
    """The reading half of ``Store``. Sessions of a cut-off commit, and what was forgotten, do not exist for it."""

    path: Path
    _folder: Folder
    _vectors: Vectors | None
    _metadata: dict[str, str]

    @property
    def secret(self) -> bytes:
        """16 random bytes made with the store; what fences in prompts are derived from. In no dump."""
        return bytes.fromhex(self._metadata["secret"])

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

    def _visible(self, rows: list[dict[str, Any]], whole: Collection[str] | None = None) -> list[dict[str, Any]]:
        """Those of committed sessions that were not forgotten. ``whole``: those sessions, where the caller has looked them up."""
        gone = self._gone()
        whole = self.known() if whole is None else whole
        return [r for r in rows if r["session_key"] in whole and r["id"] not in gone]

    def _committed(self, session_keys: Collection[str]) -> frozenset[str]:
        """Those of these sessions that exist for a reader; only they are looked up, since a ledger may be long."""
        found = self._folder.read("sessions", ["key"], is_any("key", session_keys))["key"].to_pylist()
        return frozenset(found) - self._gone()

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
        rows = self._folder.rows("memories", where=f"{is_scope(scope)} AND status = '{RETRACTED}'")
        return [memory_record(r) for r in sorted(self._visible(rows), key=DATED)]

    def by_id(self, ids: Collection[str], scope: Scope, *, retracted: bool = False) -> dict[str, Memory]:
        """The memories with these ids; those that the owner has retracted only when asked for."""
        within = is_scope(scope) if retracted else Selection(scope).where("memories")
        rows = self._folder.rows("memories", where=f"{is_any('id', ids)} AND {within}")
        return {r["id"]: memory_record(r) for r in self._visible(rows, self._committed({r["session_key"] for r in rows}))}

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
        return {r["id"]: round_record(r) for r in self._visible(rows, self._committed({r["session_key"] for r in rows}))}

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

    def archived(self, scope: Scope) -> Iterator[dict[str, Any]]:
        """The lines of an archive about one scope: sessions with all that belongs to them, haystacks, what was forgotten."""
        return archived(self._folder, scope, self.known(scope), self._gone())

    # ---------------------------------------------------------------------------------------------------- for search

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

    def matching(self, selection: Selection, kind: Kind, words: Sequence[str], limit: int) -> list[Hit]:
        """Highest BM25 score first, by LanceDB, with the word statistics of the whole table (rows of an unfinished commit may be there)."""
        return self._searched().by_words(selection, kind, words, limit)

    def _searched(self) -> Vectors:
        if self._vectors is None:
            msg = f"store {self.path} was opened without its embedding model, so it cannot be searched"
            raise StoreError(msg)
        return self._vectors
