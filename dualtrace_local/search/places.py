"""Memories and verbatim rounds in one ranking: each round is a place, and the memories that rest on it are found and come with it.

A place has one merged key. Its vector is the closest of those of its round and its memories (one vector of the whole text would know
its first 256 tokens alone), its words are all of theirs and those of its date. Cosines and BM25 scores are put on one scale over the
visible places and added; then every place gains a part of what the places beside it in its session have, since the answer often stands
beside the words that the question shares. bench/README.md has what each step is worth.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dualtrace_local.records import Memory, Round
from dualtrace_local.store import Keys, Kind, terms

if TYPE_CHECKING:
    import bm25s

BM25_K1, BM25_B = 1.2, 0.75
"""The values LanceDB's word index uses, so that both ways of ranking agree."""

MERGED: tuple[Kind, ...] = ("round", "fact+scene")
"""What a merged key is made of: a round's own key, and those of the memories that rest on it."""

BESIDE = (0.5, 0.25)
"""Parts of its score that a place gives to those one and two rounds away. Development rows; (0.4, 0.2) to (0.6, 0.3) do as well."""

Numbers = NDArray[np.float64]
"""One number a place."""


@dataclass(frozen=True)
class Place:
    """A round with the memories that rest on it; a memory whose round is not kept is a place of its own, without a round."""

    round: Round | None
    memories: tuple[Memory, ...] = ()

    @property
    def sources(self) -> tuple[Round | Memory, ...]:
        """All that has a key here."""
        return (*([self.round] if self.round else []), *self.memories)

    @property
    def said(self) -> str:
        """The user's words, and the facts that rest on them."""
        return "\n".join((*([self.round.user] if self.round else []), *(m.fact for m in self.memories)))

    @cached_property
    def days(self) -> tuple[date, ...]:
        """The day on which it was said, then those of the events told of; empty when nothing is dated."""
        said = self.sources[0].date
        told = [d for m in self.memories for c in m.components for e in c.events for d in (e.day, e.end) if d]
        return (*([said.date()] if said else []), *map(date.fromisoformat, told))


@dataclass(frozen=True)
class Found:
    """Positions of places, best first; for every place the cosine of its closest key, and its score."""

    order: tuple[int, ...]
    closeness: Numbers
    scores: Numbers


class Places:
    """Places with their keys in memory, as one view sees them. ``beside``: what places one, two ... rounds away are given."""

    def __init__(self, places: Sequence[Place], keys: Iterable[Keys], beside: Sequence[float] = BESIDE) -> None:
        self.places = tuple(places)
        self._beside = tuple((sign * far, part) for far, part in enumerate(beside, 1) for sign in (-1, 1))
        at = {owner: (k, n) for k in keys for n, owner in enumerate(k.owner_ids)}
        found = [[at[source.id] for source in place.sources if source.id in at] for place in self.places]
        self._matrix = np.stack([k.matrix[n] for row in found for k, n in row]) if any(found) else None
        self._owners = np.asarray([position for position, row in enumerate(found) for _ in row], dtype=np.intp)
        dates = [terms(f"{place.days[0]:%d %B %Y}") if place.days else [] for place in self.places]
        self._words = [[*day, *(word for k, n in row for word in k.words[n])] for day, row in zip(dates, found, strict=True)]
        self._sessions = np.asarray([p.round.session_key if p.round else f"alone {n}" for n, p in enumerate(self.places)])

    def ranked(self, text: str, vector: NDArray[np.float32], threshold: float, lift: Numbers | None = None) -> Found:
        """The places that reach ``threshold``, or stand beside one that does, best first.

        ``vector`` is the unit vector of ``text``; ``lift`` is added to the scores, which are in standard deviations.
        """
        closeness = np.full(len(self.places), -1.0)
        if self._matrix is not None:
            np.maximum.at(closeness, self._owners, (self._matrix @ vector).astype(np.float64))
        asked = list(dict.fromkeys(terms(text)))
        shared = self._index.get_scores(asked).astype(np.float64) if asked and any(self._words) else np.zeros(len(self.places))
        own = _on_one_scale(closeness) + _on_one_scale(shared)
        gained = [part * self._from(np.maximum(own, 0.0), way) for way, part in self._beside]
        scores = np.sum([own, *gained, *([lift] if lift is not None else [])], axis=0)
        close = (closeness >= threshold).astype(np.float64)
        near = np.sum([close, *(self._from(close, way) for way, _ in self._beside)], axis=0) > 0
        order = np.argsort(-scores, kind="stable")
        return Found(tuple(int(n) for n in order if near[n]), closeness, scores)

    def _from(self, values: Numbers, way: int) -> Numbers:
        """For each place the value of the one ``way`` places on; 0 where there is none, or of another session."""
        moved = np.zeros_like(values)
        here, there = (slice(None, -way), slice(way, None)) if way > 0 else (slice(-way, None), slice(None, way))
        moved[here] = np.where(self._sessions[here] == self._sessions[there], values[there], 0.0)
        return moved

    @cached_property
    def _index(self) -> bm25s.BM25:
        return word_index(self._words)


def word_index(words: Sequence[Sequence[str]]) -> bm25s.BM25:
    """BM25 over keys, given by their words; at least one of them has to have any."""
    import bm25s

    index = bm25s.BM25(k1=BM25_K1, b=BM25_B, method="lucene")
    index.index([list(w) for w in words], show_progress=False)
    return index


def places_of(rounds: Sequence[Round], memories: Iterable[Memory], said: Mapping[str, Sequence[Round]]) -> list[Place]:
    """The rounds in their order, each with the memories that rest on its words; then the memories without a round.

    ``said``: the rounds of each session, by its key.
    """
    resting: dict[str, list[Memory]] = {}
    alone: list[Place] = []
    for memory in memories:
        quotes = [" ".join(c.quote.split()) for c in memory.components if c.quote.strip()]
        on = [r.id for r in said.get(memory.session_key, ()) if any(q in " ".join(r.text.split()) for q in quotes)]
        for round_id in on:
            resting.setdefault(round_id, []).append(memory)
        if not on:
            alone.append(Place(None, (memory,)))
    return [*(Place(r, tuple(resting.get(r.id, ()))) for r in rounds), *alone]


def _on_one_scale(values: Numbers) -> Numbers:
    """In standard deviations from the mean of all; zeros where they are all alike."""
    spread = float(values.std()) if len(values) else 0.0
    return (values - values.mean()) / spread if spread else np.zeros(len(values))
