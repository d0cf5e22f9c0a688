"""What a question is shown where memories and verbatim rounds are ranked together: each place as one item, as far as the budget goes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from dualtrace_local.dates.windows import beside, windows
from dualtrace_local.embed import Embedder
from dualtrace_local.grounding.asking import ADVICE, TASTE
from dualtrace_local.grounding.lineup import line_up
from dualtrace_local.records import Delivered, Item, Memory, Question, Round

from .items import AROUND, cost_of, in_order, memory_item
from .places import Numbers, Place, Places
from .ranking import POOL, Ranked
from .rounds import shortened, sides, size
from .views import View

A_PLACE = 8
"""A place's round takes at most one part in so many of the budget: questions over several sessions need several places."""

IN_TIME, OF_TASTE = 1.0, 0.7
"""What a place gains, in standard deviations: enough to come before what is as close, too little to push out what is much closer."""

LINED_UP = 40
"""Places whose memories are lined up with those of the same anchors."""

NAMED = 0.3
"""Cosine from which a place tells of an event that a question names."""


def merged(view: View, question: Question, embedder: Embedder, budget_tokens: int, count: Callable[[str], int]) -> Delivered:
    """What ``question`` is shown of a view whose rounds and memories are one ranking, in at most ``budget_tokens``.

    In rank order, as far as items and tokens go: a place's first memory and its round are one item, its other memories items of their own.
    A memory comes once, at the best of its places; the same words on the same day come once. What does not fit is passed over.
    """
    about = embedder.encode([question.text])[0]
    found = view.places.ranked(question.text, about, view.condition.threshold, lift(view.places, question, embedder))
    pairs = _pairs(view, found.order[:LINED_UP])
    followers: dict[str, list[Memory]] = {}
    for earlier, later, _ in pairs:
        followers.setdefault(earlier.id, []).append(later)
    table = _Table(view, about, embedder, budget_tokens, count, followers)
    for at in found.order[:POOL]:
        if table.full:
            break
        table.lay(view.places.places[at], float(found.closeness[at]), float(found.scores[at]))
    items, state = in_order(table.taken)
    items = _standing(items, pairs)
    best = float(found.closeness.max(initial=0.0))
    return Delivered(question.id, view.name, state, items, len(view.places.places), best, merged=True)


Pairs = Sequence[tuple[Memory, Memory, str]]
"""An earlier and a later memory about the same thing, and whether it is a change or a conflict."""


def _pairs(view: View, order: Sequence[int]) -> Pairs:
    """What is lined up of the memories at the best places, and of all those with the same anchors."""
    near = {m.id: m for at in order for m in view.places.places[at].memories}
    for anchor in {m.anchor for m in near.values()}:
        near |= {i: view.memories[i] for i in view.anchors[anchor]}
    pool = sorted(near.values(), key=lambda m: m.id)
    return [(pool[p.earlier], pool[p.later], p.kind) for p in line_up(pool)]


def _standing(items: Sequence[Item], pairs: Pairs) -> tuple[Item, ...]:
    """The items with what each is to the others: the current value first, then the earlier ones of the same thing, conflicts told."""
    there = {item.memory_id for item in items}
    shown = [(a, b, kind) for a, b, kind in pairs if a.id in there and b.id in there]
    newest = {a.id: b.id for a, b, kind in shown if kind == "changed"}
    place = {item.memory_id: n for n, item in enumerate(items)}

    def at(item: Item) -> tuple[int, int]:
        name, steps = item.memory_id, 0
        while name in newest and steps < len(items):
            name, steps = newest[name], steps + 1
        return place[name], steps

    ordered = [replace(item, handle=f"m{n}") for n, item in enumerate(sorted(items, key=at), 1)]
    handle = {item.memory_id: item.handle for item in ordered}
    told: dict[str, list[str]] = {}
    for a, b, kind in shown:
        if kind == "changed":
            told.setdefault(a.id, []).append(f"until {b.date:%Y-%m-%d}, then {handle[b.id]}")
            told.setdefault(b.id, []).append(f"changed from {handle[a.id]}")
        else:
            told.setdefault(a.id, []).append(f"disagrees with {handle[b.id]}")
            told.setdefault(b.id, []).append(f"disagrees with {handle[a.id]}")
    return tuple(replace(item, standing="; ".join(told.get(item.memory_id, ()))) for item in ordered)


def lift(places: Places, question: Question, embedder: Embedder) -> Numbers:
    """What places gain for the time that the question is about, and for telling of tastes where it asks for advice.

    A time told by an event ("the week before my trip") is found by a search for that event. Nothing is hidden.
    """
    spans = list(windows(question.text, question.date))
    if told := beside(question.text):
        found = places.ranked(told.event, embedder.encode([told.event])[0], NAMED)
        days = places.places[found.order[0]].days if found.order else ()
        spans += [told.window(day) for day in days[1:2] or days]
    advice = bool(ADVICE.search(question.text))
    gained = [
        IN_TIME * any(span.holds(place.days) for span in spans) + OF_TASTE * (advice and bool(TASTE.search(place.said)))
        for place in places.places
    ]
    return np.asarray(gained, dtype=np.float64)


@dataclass
class _Table:
    """What has been taken, and the room that is left for more."""

    view: View
    about: NDArray[np.float32]
    embedder: Embedder
    budget: int
    count: Callable[[str], int]
    followers: Mapping[str, Sequence[Memory]]
    taken: list[tuple[Memory | Round, Item]] = field(default_factory=list)
    spent: int = 0
    _seen: set[tuple[str, str]] = field(default_factory=set)

    @property
    def full(self) -> bool:
        """Whether nothing more can be taken."""
        return len(self.taken) >= self.view.condition.items or self.budget - self.spent <= AROUND

    def lay(self, place: Place, closeness: float, score: float) -> None:
        """Take what fits of ``place``; what changes or contradicts a memory there comes with it."""
        key = Ranked("", closeness, score)
        given: list[tuple[Memory | Round, Item]] = []
        with_newer = [m for memory in place.memories for m in (memory, *self.followers.get(memory.id, ()))]
        for memory in with_newer:
            item = memory_item(self.view, memory, key)
            if len(self.taken) + len(given) < self.view.condition.items and self._fits(cost_of(item, self.count), memory.fact, memory):
                given.append((memory, item))
        if place.round:
            own = next((n for n, (source, _) in enumerate(given) if source in place.memories), None)
            self._beside(place.round, own, given, key)
        self.taken += given

    def _beside(self, source: Round, own: int | None, given: list[tuple[Memory | Round, Item]], key: Ranked) -> None:
        """The round's words, with that of the given which rests on them, ``own``, or alone."""
        if own is None and len(self.taken) + len(given) >= self.view.condition.items:
            return
        around = AROUND if own is None else 0
        most = min(self.budget - self.spent, self.budget // A_PLACE) - around
        turns = shortened(sides(source), most, self.about, self.embedder, self.count)
        if not turns or not self._fits(around + sum(size(t.text, self.count) for t in turns), source.text, source):
            return
        if own is None:
            bare = Item("", source.id, source.session_key, source.date, "", "", turns=turns, round_id=source.id)
            given.append((source, replace(bare, similarity=key.similarity, score=key.score)))
        else:
            memory, item = given[own]
            given[own] = (memory, replace(item, turns=turns, round_id=source.id))

    def _fits(self, cost: int, text: str, source: Memory | Round) -> bool:
        """Whether there is room for what was not taken before; then it is taken."""
        copy = (text, f"{source.date:%Y-%m-%d}" if source.date else "")
        if copy in self._seen or self.spent + cost > self.budget:
            return False
        self._seen.add(copy)
        self.spent += cost
        return True
