"""What of a store a question is shown, and in which state. No model is called but the embedder.

Scope and condition decide what is visible; keys are ranked by meaning and by words; what is close enough and fits the budget is
delivered in the order of its dates. The state follows from what was delivered (paper section 3.4).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from .config import Condition
from .embed import Embedder
from .records import Delivered, Item, Memory, Question, Scope, State
from .store import IN_MEMORY, Keys, Selection, Store, terms

if TYPE_CHECKING:
    import bm25s

RRF_K = 60
"""Reciprocal rank fusion adds 1 / (60 + rank) over the rankings (Cormack, Clarke and Buettcher 2009)."""

BM25_K1, BM25_B = 1.2, 0.75
"""The values LanceDB's word index uses, so that both ways of ranking agree."""

AROUND = 40
"""Tokens that are reserved for what a reader sees around an item's texts: its id, dates and anchor."""

POOL = 200
"""Best keys of each ranking that are fused."""

SAME = 3
"""Decimals of a BM25 score that count; what is equal in them (sentences of one length and the same words) goes by cosine."""


@dataclass(frozen=True)
class View:
    """What one condition may see of a store, as it was when first ranked.

    ``session_keys`` None means the whole scope (a frozenset: exactly these, as under the official protocol); sessions dated after
    ``hide_after`` are hidden. ``name`` is the condition's name. Keep a view for all questions that share it: its keys are read
    once.
    """

    store: Store
    scope: Scope
    condition: Condition
    session_keys: frozenset[str] | None = None
    hide_after: datetime | None = None
    name: str = ""

    @property
    def selection(self) -> Selection:
        """The same as the store's filter."""
        return Selection(self.scope, self.session_keys, self.condition.minimum, self.hide_after)

    @cached_property
    def size(self) -> int:
        """Keys that could be ranked."""
        return self.store.size(self.selection, self.condition.key)

    @cached_property
    def keys(self) -> Keys:
        """All keys, in memory."""
        return self.store.keys(self.selection, self.condition.key)

    @cached_property
    def words(self) -> bm25s.BM25:
        """BM25 over the visible keys alone; only asked for when there are any words."""
        import bm25s

        index = bm25s.BM25(k1=BM25_K1, b=BM25_B, method="lucene")
        index.index([list(w) for w in self.keys.words], show_progress=False)
        return index


@dataclass(frozen=True)
class Ranked:
    """One key in the fused order: its cosine with the question, and its fused score."""

    memory_id: str
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

    Views up to ``in_memory_limit`` keys are ranked in memory, larger ones by LanceDB once its word index is there. Vectors are
    compared exactly in both; word weights come from the visible keys in memory, from the whole table in LanceDB.
    """
    hybrid = view.condition.search == "hybrid"
    words = list(dict.fromkeys(terms(text))) if hybrid else []
    large = view.size > in_memory_limit and view.store.words_indexed
    lists = _by_lancedb(view, words, vector) if large else _in_memory(view, words, vector)
    count = view.size if large else len(view.keys.owner_ids)
    return Ranking(_fused(lists)[:limit], count)


def _in_memory(view: View, words: Sequence[str], vector: NDArray[np.float32]) -> _Lists:
    keys = view.keys
    cosine = keys.matrix @ vector
    first = [int(i) for i in np.argsort(-cosine, kind="stable")[:POOL]]
    second: list[int] = []
    if words and any(keys.words):
        scores = view.words.get_scores(list(words)).round(SAME)
        second = [int(i) for i in np.lexsort((-cosine, -scores))[:POOL] if scores[i] > 0]
    names = keys.owner_ids
    similarity = {names[i]: float(cosine[i]) for i in {*first, *second}}
    return _Lists(tuple(names[i] for i in first), tuple(names[i] for i in second), similarity)


def _by_lancedb(view: View, words: Sequence[str], vector: NDArray[np.float32]) -> _Lists:
    key = view.condition.key
    first = view.store.nearest(view.selection, key, vector, POOL)
    second = view.store.matching(view.selection, key, words, vector, POOL)
    second.sort(key=lambda hit: (-round(hit.score, SAME), -hit.similarity))
    similarity = {hit.owner_id: hit.similarity for hit in (*second, *first)}
    return _Lists(tuple(h.owner_id for h in first), tuple(h.owner_id for h in second), similarity)


def _fused(lists: _Lists) -> tuple[Ranked, ...]:
    """By reciprocal rank; equal scores by cosine, then by id."""
    lexical = {name: rank for rank, name in enumerate(lists.by_words, 1)}
    semantic = {name: rank for rank, name in enumerate(lists.by_vector, 1)}
    scores = {n: sum(1 / (RRF_K + r[n]) for r in (semantic, lexical) if n in r) for n in lists.similarity}
    order = sorted(scores, key=lambda n: (-scores[n], -lists.similarity[n], n))
    return tuple(Ranked(n, lists.similarity[n], scores[n]) for n in order)


def search(view: View, question: Question, embedder: Embedder, budget_tokens: int, count: Callable[[str], int]) -> Delivered:
    """What ``question`` is shown of ``view``, in at most ``budget_tokens`` as ``count`` counts the shown texts.

    In rank order a memory is taken when its cosine reaches the condition's threshold, it is no copy of one taken already (same
    fact and day) and it fits whole into what is left of the budget, until the condition's number of items is reached. Words help
    to rank but do not let anything in: one in common ("second" law, "second-hand" car) says little, and rare names are close in
    meaning too. Items come in the order of their dates, undated first, and are named m1, m2 ... in it.
    """
    if view.condition.stored == "nothing" or view.condition.search == "none":
        return Delivered(question.id, view.name, State.C, ())
    ranking = rank(view, question.text, embedder.encode([question.text])[0])
    close = [key for key in ranking.keys if key.similarity >= view.condition.threshold]
    memories = view.store.by_id({key.memory_id for key in close}, view.scope)
    taken: list[tuple[Memory, Ranked]] = []
    seen: set[tuple[str, str]] = set()
    left = budget_tokens
    for key in close:
        if (memory := memories.get(key.memory_id)) is None:  # a writer removed it since the view was ranked
            continue
        copy_of = (memory.fact, f"{memory.date:%Y-%m-%d}" if memory.date else "")
        cost = AROUND + count(memory.fact) + (count(scene) if (scene := _scene(memory, view.condition)) else 0)
        if copy_of in seen or cost > left or len(taken) == view.condition.items:
            continue
        seen.add(copy_of)
        left -= cost
        taken.append((memory, key))
    items = tuple(_items(taken, view.condition))
    state = State.A if any(i.scene for i in items) else State.B if items else State.C
    return Delivered(question.id, view.name, state, items, ranking.candidates, ranking.best)


def _scene(memory: Memory, condition: Condition) -> str:
    """The scene as this condition shows it: empty where it shows or stores none."""
    return memory.scene if condition.shows == "fact+scene" and condition.stored == "facts+scenes" else ""


def _items(taken: Iterable[tuple[Memory, Ranked]], condition: Condition) -> Iterable[Item]:
    by_date = sorted(taken, key=lambda t: (t[0].date is not None, t[0].date, t[0].session_key, t[0].ordinal))
    for number, (memory, key) in enumerate(by_date, 1):
        yield Item(
            handle=f"m{number}",
            memory_id=memory.id,
            session_key=memory.session_key,
            date=memory.date,
            anchor=memory.anchor,
            fact=memory.fact,
            scene=_scene(memory, condition),
            components=memory.components,
            confidence=memory.confidence,
            similarity=key.similarity,
            score=key.score,
        )
