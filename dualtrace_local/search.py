"""What of a store a question is shown, and in which state. No model is called but the embedder.

Scope and condition decide what is visible; keys are ranked by meaning and by words; what is close enough and fits the budget is
delivered in the order of its dates. The state follows from what was delivered (paper section 3.4); verbatim rounds, which are neither
fact nor scene, are state B.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from .config import Condition
from .embed import Embedder
from .grounding import sentences
from .records import Delivered, Item, Memory, Question, Round, Scope, State, Turn
from .store import IN_MEMORY, Keys, Selection, Store, terms

if TYPE_CHECKING:
    import bm25s

RRF_K = 60
"""Reciprocal rank fusion adds 1 / (60 + rank) over the rankings (Cormack, Clarke and Buettcher 2009)."""

BM25_K1, BM25_B = 1.2, 0.75
"""The values LanceDB's word index uses, so that both ways of ranking agree."""

AROUND = 40
"""Tokens that are reserved for what a reader sees around an item's texts: its id, dates and anchor."""

A_ROUND = 4
"""A round takes at most one part in so many of the budget, so that one long reply does not keep all others out."""

LEAST = 16
"""Tokens below which what is left of a side says nothing; such a round is passed over."""

STRETCHES = 64
"""Pieces that a long side is cut into at most, to find the one that the question is about."""

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
    def lacking(self) -> int:
        """Keys that LanceDB does not know of, since nobody has asked for them yet."""
        return self.store.lacking(self.selection, self.condition.key)

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

    Views up to ``in_memory_limit`` keys are ranked in memory, larger ones by LanceDB once its word index is there and every key is
    made. Vectors are compared exactly in both; word weights come from the visible keys in memory, from the whole table in LanceDB.
    """
    hybrid = view.condition.search == "hybrid"
    words = list(dict.fromkeys(terms(text))) if hybrid else []
    large = view.size > in_memory_limit and view.store.words_indexed and not view.lacking
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
    fact and day) and it fits whole into what is left of the budget, until the condition's number of items is reached. A round is
    shortened first, see ``_shortened``. Words help to rank but do not let anything in: one in common ("second" law, "second-hand"
    car) says little, and rare names are close in meaning too. Items come in the order of their dates, undated first, and are named
    m1, m2 ... in it.
    """
    condition = view.condition
    if condition.stored == "nothing" or condition.search == "none":
        return Delivered(question.id, view.name, State.C, ())
    about = embedder.encode([question.text])[0]
    ranking = rank(view, question.text, about)
    close = [key for key in ranking.keys if key.similarity >= condition.threshold]
    ids = {key.owner_id for key in close}
    rounds = condition.stored == "rounds"
    found: Mapping[str, Memory | Round] = view.store.rounds_by_id(ids, view.scope) if rounds else view.store.by_id(ids, view.scope)
    taken: list[tuple[Memory | Round, Item]] = []
    seen: set[tuple[str, str]] = set()
    left = budget_tokens
    for key in close:
        if (source := found.get(key.owner_id)) is None:  # a writer removed it since the view was ranked
            continue
        copy_of = (source.text if isinstance(source, Round) else source.fact, f"{source.date:%Y-%m-%d}" if source.date else "")
        if copy_of in seen or len(taken) == condition.items:
            continue
        if isinstance(source, Round):
            room = min(left, budget_tokens // A_ROUND) - AROUND
            item = _round(source, _shortened(source, room, about, embedder, count), key)
        else:
            item = _memory(source, key, condition)
        texts = [text for text in (item.fact, item.scene) if text]
        cost = AROUND + sum(map(count, texts)) + sum(_size(turn.text, count) for turn in item.turns)
        if cost > left or not (texts or item.turns):
            continue
        seen.add(copy_of)
        left -= cost
        taken.append((source, item))
    taken.sort(key=lambda t: (t[0].date is not None, t[0].date, t[0].session_key, t[0].ordinal))
    items = tuple(replace(item, handle=f"m{number}") for number, (_, item) in enumerate(taken, 1))
    state = State.A if any(i.scene for i in items) else State.B if items else State.C
    return Delivered(question.id, view.name, state, items, ranking.candidates, ranking.best)


def _memory(memory: Memory, key: Ranked, condition: Condition) -> Item:
    """A memory as this condition shows it: without its scene where it shows or stores none."""
    return Item(
        handle="",
        memory_id=memory.id,
        session_key=memory.session_key,
        date=memory.date,
        anchor=memory.anchor,
        fact=memory.fact,
        scene=memory.scene if condition.shows == "fact+scene" and condition.stored == "facts+scenes" else "",
        components=memory.components,
        confidence=memory.confidence,
        similarity=key.similarity,
        score=key.score,
    )


def _round(source: Round, turns: tuple[Turn, ...], key: Ranked) -> Item:
    return Item("", source.id, source.session_key, source.date, "", "", turns=turns, similarity=key.similarity, score=key.score)


# --------------------------------------------------------------------------------------------------------- rounds


def _shortened(source: Round, room: int, about: NDArray[np.float32], embedder: Embedder, count: Callable[[str], int]) -> tuple[Turn, ...]:
    """The sides of a round, apart, in at most ``room`` tokens; empty when there is no room.

    What is too long is shown as one stretch around the piece whose vector is closest to the question's, ``about``, with "…" where it
    was cut. The side that holds the closest piece of both gets two thirds of the room, and what the other does not need.
    """
    sides = [Turn(role, text) for role, text in (("user", source.user), ("assistant", source.assistant)) if text]
    sizes = [_size(turn.text, count) for turn in sides]
    if sum(sizes) <= room:
        return tuple(sides)
    if room < LEAST * len(sides):
        return ()
    best = [float((embedder.encode([turn.text[a:b] for a, b in _pieces(turn.text)]) @ about).max()) for turn in sides]
    main = best.index(max(best))
    others = min(sum(sizes) - sizes[main], max(room // 3, room - sizes[main]))
    rooms = [room - others if side == main else others for side in range(len(sides))]
    return tuple(Turn(t.role, _stretch(t.text, r, about, embedder, count)) for t, r in zip(sides, rooms, strict=True))


def _stretch(text: str, room: int, about: NDArray[np.float32], embedder: Embedder, count: Callable[[str], int]) -> str:
    """``text``, or the pieces of it that stand together around the closest one and fit into ``room`` tokens."""
    if _size(text, count) <= room:
        return text
    pieces = list(_pieces(text))
    closeness = embedder.encode([text[a:b] for a, b in pieces]) @ about
    first = last = int(closeness.argmax())
    left = room - _size(text[slice(*pieces[first])], count) - 2 * count("…")
    if left < 0:
        part = text[slice(*pieces[first])]
        return _stretch(part, room, about, embedder, count) if len(pieces) > 1 else _beginning(part, room, count)
    while beside := [n for n in (first - 1, last + 1) if 0 <= n < len(pieces)]:
        nearest = max(beside, key=lambda n: closeness[n])
        if (cost := 1 + _size(text[slice(*pieces[nearest])], count)) > left:
            break
        left -= cost
        first, last = min(first, nearest), max(last, nearest)
    return ("… " if first else "") + text[pieces[first][0] : pieces[last][1]] + (" …" if last < len(pieces) - 1 else "")


def _beginning(text: str, room: int, count: Callable[[str], int]) -> str:
    """The first words of one long piece."""
    while (size := _size(f"{text} …", count)) > room and text:
        text = text[: min(len(text) - 1, len(text) * room // size)].rsplit(" ", 1)[0]
    return f"{text} …"


def _pieces(text: str) -> Iterator[tuple[int, int]]:
    """Where the sentences of ``text`` begin and end; of a very long text several together, so that there are few."""
    start = end = 0
    for piece in sentences(text):
        at = text.index(piece, end)
        if end - start and at + len(piece) - start > len(text) // STRETCHES:
            yield start, end
            start = at
        elif not end:
            start = at
        end = at + len(piece)
    if end:
        yield start, end


def _size(text: str, count: Callable[[str], int]) -> int:
    """Tokens of ``text`` as it is shown, line breaks and quotation marks escaped."""
    return count(json.dumps(text, ensure_ascii=False))
