"""From a question to the items that the reader is shown: candidates, threshold, budget, order, state."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dualtrace_local.embed import Embedder
from dualtrace_local.errors import ConfigError
from dualtrace_local.records import Delivered, Item, Memory, Question, Round, State

from .items import A_ROUND, AROUND, cost_of, in_order, memory_item
from .merged import merged
from .ranking import Ranked, rank
from .rounds import seen_sides, shortened
from .views import View

AT_ONCE = 16
"""Memories or rounds that are read from the store in one go."""


@dataclass(frozen=True)
class _Candidates:
    """What could be delivered, best first. The ``first`` ones come by their anchors and are not counted as items."""

    keys: tuple[Ranked, ...] = ()
    first: int = 0
    ranked: int = 0
    best: float = 0.0


def search(view: View, question: Question, embedder: Embedder, budget_tokens: int, count: Callable[[str], int]) -> Delivered:
    """What ``question`` is shown of ``view``, in at most ``budget_tokens`` as ``count`` counts the shown texts.

    In rank order a memory is taken when its cosine reaches the condition's threshold, it is no copy of one taken already (same
    fact and day) and it fits whole into what is left of the budget, until the condition's number of items is reached. A round is
    shortened first, see ``shortened``. Words help to rank but do not let anything in: one in common ("second" law, "second-hand"
    car) says little, and rare names are close in meaning too. Items come in the order of their dates, undated first, and are named
    m1, m2 ... in it.

    With ``search: everything`` rounds are taken whole, newest first, until one does not fit. With ``room: context`` all that had no
    room is counted in ``left_out``. Raises ConfigError for a condition that shows the evidence alone where nobody said which that is.
    """
    condition = view.condition
    if condition.sessions == "evidence" and view.session_keys is None:
        raise ConfigError(
            f"condition {view.name!r} shows the sessions that a benchmark names as evidence; use it in `dualtrace run`, or another one here"
        )
    if condition.stored == "nothing" or condition.search == "none":
        return Delivered(question.id, view.name, State.C, ())
    if condition.key == "merged":
        return merged(view, question, embedder, budget_tokens, count)
    about = embedder.encode([question.text])[0] if condition.ranked else np.zeros(embedder.dimension, np.float32)
    candidates = _candidates(view, question, about)
    taken: list[tuple[Memory | Round, Item]] = []
    seen: set[tuple[str, str]] = set()
    limit = math.inf if condition.room == "context" else condition.items + candidates.first
    left, left_out, full = budget_tokens, 0, False
    for key, source in _with_sources(view, candidates.keys):
        if len(taken) == limit:
            break
        copy_of = (source.text if isinstance(source, Round) else source.fact, f"{source.date:%Y-%m-%d}" if source.date else "")
        if copy_of in seen:
            continue
        item = None if full else _item(view, source, key, (left, budget_tokens), about, embedder, count)
        if item is None or (cost := cost_of(item, count)) > left:
            left_out += condition.room == "context"
            full = condition.search == "everything" and bool(taken)
            continue
        seen.add(copy_of)
        left -= cost
        taken.append((source, item))
    items, state = in_order(taken)
    imagined = condition.scene == "recalled" and bool(items)
    return Delivered(question.id, view.name, state, items, candidates.ranked, candidates.best, left_out, imagined)


def _candidates(view: View, question: Question, about: NDArray[np.float32]) -> _Candidates:
    condition = view.condition
    if condition.search == "everything":
        return _Candidates(tuple(Ranked(r.id, 1.0, 0.0) for r in reversed(view.rounds)), 0, len(view.rounds), 1.0)
    if condition.search == "named":
        named = [m for m in view.memories.values() if m.anchor in question.text]
        return _Candidates(tuple(Ranked(m.id, 1.0, 0.0) for m in named), 0, len(view.memories), float(bool(named)))
    ranking = rank(view, question.text, about)
    close = [key for key in ranking.keys if key.similarity >= condition.threshold]
    first = _by_anchor(view, about, {key.owner_id: key for key in ranking.keys}) if condition.anchors else ()
    there = {key.owner_id for key in first}
    rest = (key for key in close if key.owner_id not in there)
    return _Candidates((*first, *rest), len(first), ranking.candidates, max((ranking.best, *(k.similarity for k in first))))


def _by_anchor(view: View, about: NDArray[np.float32], ranked: Mapping[str, Ranked]) -> tuple[Ranked, ...]:
    """All memories of the anchors closest to the question, the closest anchor's first; a cosine is the memory's own or its anchor's."""
    anchors, vectors = view.anchor_vectors
    cosine = vectors @ about
    order = [int(i) for i in np.argsort(-cosine, kind="stable")[: view.condition.anchors]]
    near = [(anchors[i], float(cosine[i])) for i in order if cosine[i] >= view.condition.anchor_threshold]
    return tuple(ranked.get(i) or Ranked(i, closeness, 0.0) for anchor, closeness in near for i in view.anchors[anchor])


def _with_sources(view: View, keys: Sequence[Ranked]) -> Iterator[tuple[Ranked, Memory | Round]]:
    """The keys with what they belong to, read as far as somebody asks; what a writer has removed since they were ranked is left out."""
    for start in range(0, len(keys), AT_ONCE):
        some = keys[start : start + AT_ONCE]
        found = _sources(view, [key.owner_id for key in some])
        yield from ((key, found[key.owner_id]) for key in some if key.owner_id in found)


def _sources(view: View, ids: Sequence[str]) -> Mapping[str, Memory | Round]:
    """What the keys belong to, by id."""
    if view.condition.search == "everything":
        return {r.id: r for r in view.rounds}
    if view.condition.stored == "rounds":
        return view.store.rounds_by_id(ids, view.scope)
    return view.store.by_id(ids, view.scope)


def _item(
    view: View,
    source: Memory | Round,
    key: Ranked,
    room: tuple[int, int],
    about: NDArray[np.float32],
    embedder: Embedder,
    count: Callable[[str], int],
) -> Item | None:
    """``source`` as this view shows it, None for a round without words or room. ``room``: what is left of the budget, and all of it."""
    if isinstance(source, Memory):
        return memory_item(view, source, key)
    if view.condition.search == "everything":
        turns = seen_sides(source, view.condition)
    else:
        most = room[0] if view.condition.room == "context" else min(room[0], room[1] // A_ROUND)
        turns = shortened(seen_sides(source, view.condition), most - AROUND, about, embedder, count)
    if not turns:
        return None
    return Item("", source.id, source.session_key, source.date, "", "", turns=turns, similarity=key.similarity, score=key.score)
