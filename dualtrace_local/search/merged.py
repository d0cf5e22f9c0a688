"""What a question is shown where memories and verbatim rounds are ranked together: each place as one item, as far as the budget goes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from dualtrace_local.embed import Embedder
from dualtrace_local.records import Delivered, Item, Memory, Question, Round

from .items import AROUND, cost_of, in_order, memory_item
from .places import Place
from .ranking import Ranked
from .rounds import shortened, size
from .views import View

A_PLACE = 8
"""A place's round takes at most one part in so many of the budget: questions over several sessions need several places."""


def merged(view: View, question: Question, embedder: Embedder, budget_tokens: int, count: Callable[[str], int]) -> Delivered:
    """What ``question`` is shown of a view whose rounds and memories are one ranking, in at most ``budget_tokens``.

    In rank order, as far as items and tokens go: a place's first memory and its round are one item, its other memories items of their own.
    A memory comes once, at the best of its places; the same words on the same day come once. What does not fit is passed over.
    """
    about = embedder.encode([question.text])[0]
    found = view.places.ranked(question.text, about, view.condition.threshold)
    table = _Table(view, about, embedder, budget_tokens, count)
    for at in found.order:
        table.lay(view.places.places[at], float(found.closeness[at]), float(found.scores[at]))
    items, state = in_order(table.taken)
    best = float(found.closeness.max(initial=0.0))
    return Delivered(question.id, view.name, state, items, len(view.places.places), best)


@dataclass
class _Table:
    """What has been taken, and the room that is left for more."""

    view: View
    about: NDArray[np.float32]
    embedder: Embedder
    budget: int
    count: Callable[[str], int]
    taken: list[tuple[Memory | Round, Item]] = field(default_factory=list)
    spent: int = 0
    _seen: set[tuple[str, str]] = field(default_factory=set)

    def lay(self, place: Place, closeness: float, score: float) -> None:
        """Take what fits of ``place``."""
        key = Ranked("", closeness, score)
        given: list[tuple[Memory | Round, Item]] = []
        for memory in place.memories:
            item = memory_item(self.view, memory, key)
            if len(self.taken) + len(given) < self.view.condition.items and self._fits(cost_of(item, self.count), memory.fact, memory):
                given.append((memory, item))
        if place.round:
            self._beside(place.round, given, key)
        self.taken += given

    def _beside(self, source: Round, given: list[tuple[Memory | Round, Item]], key: Ranked) -> None:
        """The round's words, with the place's first memory where one was taken."""
        if not given and len(self.taken) >= self.view.condition.items:
            return
        around = 0 if given else AROUND
        most = min(self.budget - self.spent, self.budget // A_PLACE) - around
        turns = shortened(source, most, self.about, self.embedder, self.count)
        if not turns or not self._fits(around + sum(size(t.text, self.count) for t in turns), source.text, source):
            return
        if given:
            memory, item = given[0]
            given[0] = (memory, replace(item, turns=turns, round_id=source.id))
        else:
            bare = Item("", source.id, source.session_key, source.date, "", "", turns=turns, round_id=source.id)
            given.append((source, replace(bare, similarity=key.similarity, score=key.score)))

    def _fits(self, cost: int, text: str, source: Memory | Round) -> bool:
        """Whether there is room for what was not taken before; then it is taken."""
        copy = (text, f"{source.date:%Y-%m-%d}" if source.date else "")
        if copy in self._seen or self.spent + cost > self.budget:
            return False
        self._seen.add(copy)
        self.spent += cost
        return True
