"""The ``vectors`` table: what memories and rounds are found by. Every distinct key text is embedded once."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dualtrace_local.embed import Embedder
from dualtrace_local.records import Memory, Round, digest_of

from .folder import Folder
from .keys import TAUGHT_KINDS, Kind, key_text, terms
from .tables import ALWAYS, NOT_RETRACTED, Key, Selection, is_any, key_row, memory_record, round_record, total_of

if TYPE_CHECKING:
    import pyarrow as pa

AT_ONCE = 256
"""Keys made on demand that are embedded, and by a writer written, in one go: what an interruption costs."""

Made = Callable[[int], None]
"""Is told how many keys were made since it was told before."""


@dataclass(frozen=True)
class Keys:
    """The keys of one kind in a selection, by owner id: BM25 terms of each, where asked for, and unit vectors of shape [n, dimension]."""

    owner_ids: tuple[str, ...]
    words: tuple[tuple[str, ...], ...]
    matrix: NDArray[np.float32]

    @cached_property
    def at(self) -> dict[str, int]:
        """The row of each owner."""
        return {owner: n for n, owner in enumerate(self.owner_ids)}


@dataclass(frozen=True)
class Hit:
    """A key found by LanceDB: the memory or round it belongs to, and its BM25 score."""

    owner_id: str
    score: float


def memory_key(memory: Memory, kind: Kind) -> Key:
    """The key of one kind of a memory."""
    total = total_of(memory.evidence)
    return Key(memory.id, kind, memory.session_key, memory.scope, memory.date, total, key_text(memory, kind))


def round_key(item: Round) -> Key:
    """The key of a round: its verbatim text. Rounds are seen whatever the gate said."""
    return Key(item.id, "round", item.session_key, item.scope, item.date, ALWAYS, item.text)


def taught_keys(memories: Iterable[Memory]) -> list[Key]:
    """The keys that are written when these are taught. Rounds are many and long: theirs are made when a view first ranks them."""
    return [memory_key(m, kind) for m in memories for kind in TAUGHT_KINDS]


class Vectors:
    """Makes, completes, reads and searches the rows of ``vectors``."""

    def __init__(self, folder: Folder, embedder: Embedder) -> None:
        self.folder = folder
        self.embedder = embedder

    def rows(self, keys: Sequence[Key]) -> list[dict[str, Any]]:
        """Rows for ``keys``. A text already embedded, here or in the table, is not embedded again.

        The vector is of what the model reads of a text, the words are of the whole.
        """
        texts = [self.embedder.cut(key.text) for key in keys]
        digests = [digest_of("text", text) for text in texts]
        known = self._known(set(digests))
        fresh = {d: t for d, t in zip(digests, texts, strict=True) if d not in known}
        known.update(zip(fresh, self.embedder.encode(list(fresh.values())), strict=True))
        made = zip(keys, texts, digests, strict=True)
        return [key_row(key, text, digest, terms(key.text), known[digest]) for key, text, digest in made]

    def _known(self, digests: set[str]) -> dict[str, Any]:
        if not digests:
            return {}
        found = self.folder.read("vectors", ["digest", "vector"], is_any("digest", digests))
        return dict(zip(found["digest"].to_pylist(), _matrix(found["vector"], self.embedder.dimension), strict=True))

    def missing(self) -> list[Key]:
        """Keys of taught kinds that have no row, as after the table was stepped back."""
        there = self.folder.read("vectors", ["owner_id", "kind"])
        have = set(zip(there["owner_id"].to_pylist(), there["kind"].to_pylist(), strict=True))
        ids = self.folder.read("memories", ["id"], NOT_RETRACTED)["id"].to_pylist()
        without = {i for i in ids if any((i, kind) not in have for kind in TAUGHT_KINDS)}
        memories = [memory_record(r) for r in self.folder.rows("memories", where=is_any("id", without))]
        return [key for key in taught_keys(memories) if (key.owner_id, key.kind) not in have]

    def lacking(self, selection: Selection, kind: Kind) -> int:
        """How many keys of one kind were never made, cheaply (rows of an unfinished commit may be counted too)."""
        owners, where = _seen(selection, kind).where(_owners(kind)), _seen(selection, kind).where()
        return max(0, self.folder.count(_owners(kind), owners) - self.folder.count("vectors", f"{where} AND kind = '{kind}'"))

    def read(
        self,
        selection: Selection,
        kind: Kind,
        whole: Collection[str],
        *,
        words: bool = True,
        keep: bool = False,
        made: Made = lambda _: None,
    ) -> Keys:
        """All keys of one kind in the committed sessions ``whole``; those never made are made now, and written when ``keep``.

        ``words`` False leaves the words out: splitting those of a hundred thousand keys takes longer than reading their vectors.
        """
        where = f"{_seen(selection, kind).where()} AND kind = '{kind}'"
        found = self.folder.read("vectors", ["owner_id", "session_key", "vector", *(["terms"] if words else [])], where)
        pairs = zip(found["owner_id"].to_pylist(), found["session_key"].to_pylist(), strict=True)
        at = {owner: n for n, (owner, session) in enumerate(pairs) if session in whole}
        spoken: list[str] = found["terms"].to_pylist() if words else []
        parts, count = _parts(found["vector"], self.embedder.dimension), found.num_rows
        for rows in self._made(_seen(selection, kind).where(_owners(kind)), kind, frozenset(at), whole):
            if keep:
                self.folder.add("vectors", self.folder.prepared("vectors", rows))
            at |= {row["owner_id"]: n for n, row in enumerate(rows, count)}
            spoken += [row["terms"] for row in rows]
            parts.append(np.stack([row["vector"] for row in rows]))
            count += len(rows)
            made(len(rows))
        owners = tuple(sorted(at))
        order = [at[owner] for owner in owners]
        matrix = _gathered(parts, order, self.embedder.dimension)
        return Keys(owners, tuple(tuple(spoken[n].split()) for n in order) if words else (), matrix)

    def _made(self, where: str, kind: Kind, have: Collection[str], whole: Collection[str]) -> Iterator[list[dict[str, Any]]]:
        """Rows of the keys that are not there yet, ``AT_ONCE`` at a time."""
        ids = self.folder.read(_owners(kind), ["id", "session_key"], where)
        pairs = zip(ids["id"].to_pylist(), ids["session_key"].to_pylist(), strict=True)
        absent = sorted(i for i, session in pairs if session in whole and i not in have)
        for start in range(0, len(absent), AT_ONCE):
            found = self.folder.rows(_owners(kind), where=is_any("id", absent[start : start + AT_ONCE]))
            yield self.rows([round_key(round_record(r)) if kind == "round" else memory_key(memory_record(r), kind) for r in found])

    def by_words(self, selection: Selection, kind: Kind, words: Sequence[str], limit: int) -> list[Hit]:
        """Best BM25 score first."""
        rows = self.folder.by_words(words, f"{selection.where()} AND kind = '{kind}'", limit) if words else []
        return [Hit(row["owner_id"], row["_score"]) for row in rows]


def _owners(kind: Kind) -> str:
    """The table of what is found by keys of this kind."""
    return "rounds" if kind == "round" else "memories"


def _seen(selection: Selection, kind: Kind) -> Selection:
    """Rounds have no evidence of their own: they are seen whatever the gate said."""
    return replace(selection, minimum=0) if kind == "round" else selection


def _parts(column: pa.ChunkedArray, dimension: int) -> list[NDArray[np.float32]]:
    """The vectors of a column as they lie in memory, chunk by chunk, shape [n, dimension] each."""
    chunks = (chunk.flatten().to_numpy(zero_copy_only=False) for chunk in column.chunks)
    return [np.asarray(chunk, dtype=np.float32).reshape(-1, dimension) for chunk in chunks]


def _matrix(column: pa.ChunkedArray, dimension: int) -> NDArray[np.float32]:
    return np.concatenate([np.zeros((0, dimension), np.float32), *_parts(column, dimension)])


def _gathered(parts: Sequence[NDArray[np.float32]], order: Sequence[int], dimension: int) -> NDArray[np.float32]:
    """These rows of all parts in this order. Each vector is copied once: there may be a hundred thousand."""
    place = np.full(sum(map(len, parts)), -1, dtype=np.intp)
    place[np.asarray(order, dtype=np.intp)] = np.arange(len(order))
    matrix = np.empty((len(order), dimension), np.float32)
    start = 0
    for part in parts:
        to = place[start : start + len(part)]
        matrix[to[to >= 0]] = part[to >= 0]
        start += len(part)
    return matrix
