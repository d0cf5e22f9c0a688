"""The words of a session that a written sentence may rest on."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from dualtrace_local.dates import find_events
from dualtrace_local.records import Component, Turn

from .evidence import HIGHEST, TOP, details_of, hedged, leaning, score, statement_of
from .words import TOKEN, VAGUE, figures_and_names, measures, names, numbers, one_form, pairs, sentences, stems

MINIMUM_SHARE = 0.34
"""Share of a written sentence's content words that its quote must hold. Chosen on the development rows."""

KNOWN_SHARE = 0.6
"""Share of a written sentence's content words that the user must have used anywhere in the session. Chosen on the development rows."""

ECHO = 0.6
"""Assistants repeat what they were told: the user's sentence must hold at least so much of what the best sentence of somebody else does."""

LEAST_NAMED = 5
"""Content words, *user* among them, up to which a statement with "it" or "that" tells nobody later what it is about."""

MOST_UNTOLD = 10
"""Sentences in which details are looked for a second time, in one session."""

MOST_LEANINGS = 3
"""Of these, sentences that tell no detail, only what the user likes, avoids, owns or keeps doing."""


@dataclass(frozen=True)
class Said:
    """One sentence that was said: its words, the position and role of its turn, its stems and numbers."""

    text: str
    turn: int
    role: str
    stems: frozenset[str]
    figures: frozenset[str]


@dataclass(frozen=True)
class Refused:
    """Why a written sentence is not kept. ``reason`` holds no chat text."""

    reason: str


class Ground:
    """The words of one session (or statement) that a written sentence may rest on."""

    def __init__(self, turns: Sequence[Turn]) -> None:
        self.said = tuple(
            Said(piece, position, turn.role, stems(piece), numbers(piece))
            for position, turn in enumerate(turns)
            for piece in sentences(turn.text)
        )
        mine = [s for s in self.said if s.role == "user"]
        self._numbers = frozenset().union(*(s.figures for s in mine))
        self._words = frozenset(w for s in mine for w in TOKEN.findall(one_form(s.text).lower()))
        self._stems = frozenset().union(*(s.stems for s in mine))
        self._measures = frozenset().union(*(measures(s.text) for s in mine))
        self._pairs = frozenset(p for w in self._words if not w.isascii() for p in pairs(w))

    def invented(self, text: str) -> str:
        """What ``text`` holds that the user never said: ``a number``, ``a unit`` of time with one, ``a name``, or empty.

        ``one`` is a pronoun too often to count.
        """
        if numbers(text) - self._numbers - VAGUE:
            return "a number"
        told = {number for number, _ in self._measures}
        if any(number in told and not {(number, unit), (number, "")} & self._measures for number, unit in measures(text) if unit):
            return "a unit"
        return "a name" if self.strange(text) else ""

    def strange(self, text: str) -> frozenset[str]:
        """Names in ``text`` that the user never said, and words of scripts without capitals that are mostly other characters."""
        unknown = {n for n in names(text) if not all(self._knows(part) for part in TOKEN.findall(n))}
        for word in TOKEN.findall(one_form(text)):
            made_of = {*pairs(word.lower())}
            if word[0].isalpha() and not (word[0].isupper() or word[0].islower()) and 2 * len(self._pairs & made_of) < len(made_of):
                unknown.add(word)
        return frozenset(unknown)

    def _knows(self, name: str) -> bool:
        return name in self._words or any(_kin(name, w) or _kin(w, name) for w in self._words)

    def component(self, text: str) -> Component | Refused:
        """``text`` with the user's sentence it rests on, or why it may not be kept."""
        wanted = stems(text)
        if fault := self._fault(text, wanted):
            return Refused(fault)
        figures = numbers(text)
        shares = [(self._share(wanted, figures, s), s) for s in self.said]
        others = max((share for share, s in shares if s.role != "user"), default=0.0)
        mine, best = max(((share, s) for share, s in shares if s.role == "user"), key=lambda pair: pair[0], default=(0.0, None))
        if best is None or mine < max(MINIMUM_SHARE, ECHO * others):
            by_others = others >= MINIMUM_SHARE
            return Refused("said by somebody else than the user" if by_others else "no words of the user behind it")
        everything = Said("", 0, "user", self._stems, self._numbers)
        if self._share(wanted, figures, everything) < KNOWN_SHARE:
            return Refused("mostly other words than the user's")
        return Component(text=text, quote=best.text, turn=best.turn, hedged=hedged(best.text))

    def _fault(self, text: str, wanted: frozenset[str]) -> str:
        """What is wrong with a statement wherever it may come from; empty when nothing is."""
        if invention := self.invented(text):
            return f"{invention} that the user did not say"
        if not wanted:
            return "no content"
        if len(wanted) <= LEAST_NAMED and _POINTS.search(text) and not figures_and_names(text):
            return "points at something that it does not name"
        taken = _IS_NAMED.match(text)
        mistaken = taken and not any(_calls_themself(s.text, taken[1]) for s in self.said if s.role == "user")
        return "takes somebody else for the user" if mistaken else ""

    def untold(self, told: Sequence[Component], said_on: datetime | None) -> tuple[Said, ...]:
        """The user's sentences about their own life of which no component tells a number, name or date, or what they like, avoid or own.

        Few of them, richest first. A name counts where the user brought it up: one that somebody else said before is mostly a suggestion
        taken over. Of a sentence that only asks, numbers, dates and leanings count.
        """
        known, heard = details_of(told), set[str]()
        quoted = {component.quote for component in told}
        found: list[tuple[bool, int, Said]] = []
        leanings: list[Said] = []
        for s in self.said:
            if s.role != "user":
                heard |= {word.lower() for word in TOKEN.findall(s.text) if word[0].isupper()}
                continue
            statement = statement_of(s.text)
            asks = statement.endswith("?")
            days = tuple(event for event in find_events(statement, said_on) if event.day)
            as_said = Component(statement, s.text, s.turn, events=days)
            lost = details_of([as_said]) - known - (names(statement) if asks else heard)
            leans = leaning(statement) and s.text not in quoted
            if not (lost or leans) or score(as_said).relevance != TOP:
                continue
            if lost:
                found.append((asks, -len(lost), s))
            else:
                leanings.append(s)
        richest = [s for _, _, s in sorted(found, key=lambda f: f[:2])]
        return (*richest, *leanings[:MOST_LEANINGS])[:MOST_UNTOLD]

    @staticmethod
    def _share(wanted: frozenset[str], figures: frozenset[str], said: Said) -> float:
        """Share of ``wanted`` in the sentence; a number counts three times, since it is what must not be bound to the wrong thing."""
        shared = wanted & said.stems
        weight = len(shared) + 2 * len(figures & said.figures)
        return weight / (len(wanted) + 2 * len(figures))


def unmistakable(said: Said, said_on: datetime | None) -> bool:
    """Whether a sentence of the user's has the full score and says on which day or days something was or will be.

    Of 1,000 ShareGPT conversations, nearly all of them tasks, 9 hold such a sentence.
    """
    statement = statement_of(said.text)
    full = score(Component(statement, said.text, said.turn)).total == HIGHEST
    return full and not statement.endswith("?") and any(event.day for event in find_events(statement, said_on))


_IS_NAMED = re.compile(r"The user (?:is|was)(?: (?:named|called))? ([^\W\d_a-z]\w+)")


def _calls_themself(sentence: str, name: str) -> bool:
    return (
        re.search(rf"\b(?:I am|I['’]m|I was|we are|we['’]re|name is|name['’]s|call me|called|named)\s+{re.escape(name)}\b", sentence)
        is not None
    )


_POINTS = re.compile(r"\b(?:it|this|that|these|those|them)\b", re.IGNORECASE)
_ENDINGS = frozenset(("", "s", "es", "n", "an", "ian", "ese", "ish"))


def _kin(word: str, longer: str) -> bool:
    """Whether ``longer`` is ``word`` with an ending: Tuesdays of Tuesday, Italian of Italy. Marathon is no kin of Mark."""
    shortest = 4
    return any(len(root) >= shortest and longer.startswith(root) and longer[len(root) :] in _ENDINGS for root in (word, word[:-1]))
