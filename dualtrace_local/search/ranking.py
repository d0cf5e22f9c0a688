"""The visible keys of a view in the order of a condition's search: by meaning in memory, by words in memory or by LanceDB."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dualtrace_local.store import IN_MEMORY, Keys, terms

from .views import View, kinds_of

RRF_K = 60
"""Reciprocal rank fusion adds 1 / (60 + rank) over the rankings (Cormack, Clarke and Buettcher 2009)."""

POOL = 200
"""Best keys of each ranking that are fused."""

SAME = 3
"""Decimals of a BM25 score that count; what is equal in them (sentences of one length and the same words) goes by cosine."""


@dataclass(frozen=True)
class Ranked:
    """One key in the fused order, by the memory or round it belongs to: its cosine with the question, and its fused score."""

    owner_id: str
    similarity: float
    score: float


@dataclass(frozen=True)
class Ranking:
    """The fused order, best first, and how many keys it was made from."""

    keys: tuple[Ranked, ...] = ()
    candidates: int = 0

    @cached_property
    def best(self) -> float:
        """Highest cosine, 0 when nothing is visible."""
        return max((k.similarity for k in self.keys), default=0.0)


@dataclass(frozen=True)
class _Lists:
    """Ids in the order of each ranking, and the cosine of every id in either."""

    by_vector: tuple[str, ...]
    by_words: tuple[str, ...]
    similarity: dict[str, float] = field(default_factory=dict)


def rank(view: View, text: str, vector: NDArray[np.float32], limit: int = POOL, in_memory_limit: int = IN_MEMORY) -> Ranking:
    """The visible keys in the order of the condition's search; ``vector`` is the unit vector of ``text``, shape [dimension].

    Vectors are compared exactly and in memory: LanceDB's own scan behind a filter takes nine times as long as numpy, and longer than
    reading them all. Words of views up to ``in_memory_limit`` keys are ranked in memory too, with the weights they have there; of larger
    ones by LanceDB once its word index is there and every key is made, with the weights of the whole table.
    """
    hybrid = view.condition.search == "hybrid"
    words = list(dict.fromkeys(terms(text))) if hybrid else []
    large = view.size > in_memory_limit and view.store.words_indexed and not view.lacking and not view.mixed
    lists = _words_by_lancedb(view, words, vector) if large else _in_memory(view, words, vector)
    count = len((view.vectors if large else view.keys).owner_ids)
    return Ranking(_fused(lists)[:limit], count)


def _in_memory(view: View, words: Sequence[str], vector: NDArray[np.float32]) -> _Lists:
    keys = view.keys
    cosine = keys.matrix @ vector
    second: list[int] = []
    if words and any(keys.words):
        scores = view.words.get_scores(list(words)).round(SAME)
        sharing = _highest(scores)
        sharing = sharing[scores[sharing] > 0]
        second = [int(i) for i in sharing[np.lexsort((-cosine[sharing], -scores[sharing]))][:POOL]]
    return _lists(keys, cosine, second)


def _highest(values: NDArray[np.float32]) -> NDArray[np.intp]:
    """Positions of the ``POOL`` highest values and of all that equal the lowest of these, in their order: sorting only them is quick."""
    if len(values) <= POOL:
        return np.arange(len(values))
    return np.flatnonzero(values >= np.partition(values, len(values) - POOL)[len(values) - POOL])


def _words_by_lancedb(view: View, words: Sequence[str], vector: NDArray[np.float32]) -> _Lists:
    keys = view.vectors
    cosine = keys.matrix @ vector
    hits = view.store.matching(view.selection, kinds_of(view.condition)[0], words, POOL)
    shared = [(keys.at[hit.owner_id], round(hit.score, SAME)) for hit in hits if hit.owner_id in keys.at]
    second = [at for at, _ in sorted(shared, key=lambda found: (-found[1], -cosine[found[0]], found[0]))]
    return _lists(keys, cosine, second)


def _lists(keys: Keys, cosine: NDArray[np.float32], by_words: Sequence[int]) -> _Lists:
    """Both rankings by name; ``cosine`` of every key, ``by_words``: rows of keys."""
    close = _highest(cosine)
    by_vector = [int(i) for i in close[np.argsort(-cosine[close], kind="stable")][:POOL]]
    names = keys.owner_ids
    similarity = {names[i]: float(cosine[i]) for i in {*by_vector, *by_words}}
    return _Lists(tuple(names[i] for i in by_vector), tuple(names[i] for i in by_words), similarity)


def _fused(lists: _Lists) -> tuple[Ranked, ...]:
    """By reciprocal rank; equal scores by cosine, then by id."""
    lexical = {name: rank for rank, name in enumerate(lists.by_words, 1)}
    semantic = {name: rank for rank, name in enumerate(lists.by_vector, 1)}
    scores = {n: sum(1 / (RRF_K + r[n]) for r in (semantic, lexical) if n in r) for n in lists.similarity}
    order = sorted(scores, key=lambda n: (-scores[n], -lists.similarity[n], n))
    return tuple(Ranked(n, lists.similarity[n], scores[n]) for n in order)
