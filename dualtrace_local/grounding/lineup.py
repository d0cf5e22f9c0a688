"""Which of several statements about the same thing holds now: pairs of memories in which a later one changes or contradicts an earlier.

Newer is not truer by itself. A later statement supersedes an earlier one when the user said that something changed ("now", "no longer",
"moved"), or gave a new value for the same thing without doubt. What was unsure, said on the same day or undated contradicts and
supersedes nothing; what the owner has verified is superseded by nothing less. What happened twice happened twice: two events are never
lined up. The order of teaching does not matter, dates do.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from itertools import combinations
from typing import Literal, Protocol

from dualtrace_local.records import VERIFIED, Component

from .words import names, numbers, stems

SHARED = 0.5
"""Share of the words of the shorter statement, numbers and names apart, from which two speak of the same thing."""

COMMON = 40
"""Statements that may share a word before it says nothing about what they are about."""

_CHANGE = re.compile(
    r"\b(?:now|no\s+longer|not\s+any\s*more|any\s*more|instead|moved|switched|changed|replaced|new|recently|finally|since\s+then|these\s+days"
    r"|quit|gave\s+up|stopped|became|up\s+from|down\s+from|so\s+far)\b",
    re.IGNORECASE,
)
_STATE = re.compile(
    r"\b(?:is|are|has|have|lives?|works?|wakes?|starts?|keeps?|takes?|prefers?|likes?|loves?|uses?|plays?|drives?|owns?|goes|weighs|costs?|pays?"
    r"|needs?|wants?|named|called|calls?|sleeps?|drinks?|eats?|runs?|now|no\s+longer|moved|switched|changed|quit|stopped|gave\s+up|became)\b",
    re.IGNORECASE,
)
_ONE = re.compile(r"The user's\b", re.IGNORECASE)
_NOT = re.compile(r"\b(?:not|never|no\s+longer|\w+n['’]t)\b", re.IGNORECASE)
_UNDATED = datetime(1, 1, 1)
_WORDS_OF_CHANGE = stems(
    "named called now no longer any more anymore instead moved switched changed replaced new recently finally quit stopped"
)


class Told(Protocol):
    """What has components, an anchor, a date and a status: a memory."""

    @property
    def anchor(self) -> str: ...  # noqa: D102
    @property
    def date(self) -> datetime | None: ...  # noqa: D102
    @property
    def components(self) -> tuple[Component, ...]: ...  # noqa: D102
    @property
    def status(self) -> str: ...  # noqa: D102


@dataclass(frozen=True)
class Pair:
    """Positions of two memories in the sequence that was given, and the statements of each that speak of the same thing."""

    earlier: int
    later: int
    kind: Literal["changed", "conflict"]
    was: Component
    told: Component


def line_up(memories: Sequence[Told]) -> tuple[Pair, ...]:
    """The pairs among ``memories``, each once, in the order of the later one. Undated ones count as said at the same time."""
    found = []
    for a, b in sorted(_candidates(memories)):
        first, last = (a, b) if (memories[a].date or _UNDATED) <= (memories[b].date or _UNDATED) else (b, a)
        if pair := _pair(first, memories[first], last, memories[last]):
            found.append(pair)
    return tuple(sorted(found, key=lambda p: (memories[p.later].date or _UNDATED, p.later, p.earlier)))


def _candidates(memories: Sequence[Told]) -> Iterable[tuple[int, int]]:
    """Pairs that share an anchor, or a word that few have."""
    having: dict[str, set[int]] = defaultdict(set)
    for at, memory in enumerate(memories):
        for word in {f"anchor {memory.anchor}", *(w for c in memory.components for w in _subject(c.text))}:
            having[word].add(at)
    return {pair for group in having.values() if len(group) <= COMMON for pair in combinations(sorted(group), 2)}


def _pair(first: int, earlier: Told, last: int, later: Told) -> Pair | None:
    for was in earlier.components:
        for told in later.components:
            if kind := _kind(was, told, earlier, later):
                return Pair(first, last, kind, was, told)
    return None


def _kind(was: Component, told: Component, earlier: Told, later: Told) -> Literal["changed", "conflict"] | None:
    if not (_STATE.search(was.text) and _STATE.search(told.text)):
        return None
    one, other = _subject(was.text), _subject(told.text)
    least = min(len(one), len(other))
    alike = bool(least) and len(one & other) / least >= SHARED
    stated = bool(_CHANGE.search(told.text) or _CHANGE.search(told.quote))
    if not alike and not (stated and earlier.anchor == later.anchor and one & other):
        return None
    denied = bool(_NOT.search(was.text)) != bool(_NOT.search(told.text))
    numbered, named = (_differ(of, was, told) for of in (numbers, names))
    # Another name alone is another sister as often as another dentist: only "The user's dentist is ..." holds one.
    if not (denied or numbered or (stated and one != other)) and not (
        named and (stated or (alike and _ONE.match(was.text) and _ONE.match(told.text)))
    ):
        return None
    dated = bool(earlier.date and later.date and earlier.date.date() < later.date.date())
    doubted = (told.hedged and not was.hedged) or (earlier.status == VERIFIED and later.status != VERIFIED)
    if not dated or doubted:
        return "conflict"
    return "changed" if stated or (numbered and not names(told.text) - names(was.text)) else "conflict"


def _differ(of: Callable[[str], frozenset[str]], was: Component, told: Component) -> bool:
    """Whether both tell of such a thing, and not the same."""
    return of(was.text) != of(told.text) and bool(of(was.text) and of(told.text))


@lru_cache(maxsize=8192)
def _subject(text: str) -> frozenset[str]:
    """The words that say what a statement is about: without its numbers, names and words of change."""
    named = {stem for name in names(text) for stem in stems(name)}
    return frozenset(s for s in stems(text) if not s[0].isdigit()) - named - _WORDS_OF_CHANGE
