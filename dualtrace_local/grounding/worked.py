"""What follows from dated and counted lines: distances, order, ages, counts and sums. Worked out by code, since small models cannot.

Nothing here decides what an answer is; it gives the reader facts, and says how many of the lines that a reader marked are different.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from itertools import combinations

from dualtrace_local.dates.windows import distance

from .asking import AGE, DISTANCE, ORDER
from .words import STOP_WORDS, numbers, stems

EVENTS = 4
"""Events between which distances are told: those that share the most words with the question."""

ALIKE = 0.6
"""Share of the words of the shorter of two lines, above which both tell of the same."""

_AGE = re.compile(
    r"\b(\d{1,3})(?:st|nd|rd|th)\s+birthday|\b(\d{1,3})[\s-]years?[\s-]old|\b(?:aged?|turn(?:s|ed|ing)?|I['’]m|I\s+am|is|was)\s+(\d{1,3})\b"
    r"(?!\s*(?:%|percent|minutes?|hours?|days?|weeks?|months?|years?\s+(?!old)|miles?|km|kilos?|kg|euros?|dollars?|metres?|meters?)|[:.,]\d)",
    re.IGNORECASE,
)
_AMOUNT = re.compile(
    r"(?P<sign>[$€£])\s?(?P<first>\d[\d,]*(?:\.\d+)?)|(?P<second>\d[\d,]*(?:\.\d+)?)\s?(?P<unit>[a-z]{2,12}|€)", re.IGNORECASE
)
_SIGNS = {"$": "dollar", "€": "euro", "£": "pound"}


@dataclass(frozen=True)
class Line:
    """A delivered line: its name, its text, the day on which it was said, and the days of what it tells of with the words for them."""

    name: str
    text: str
    said: date | None = None
    events: tuple[tuple[str, date], ...] = ()

    @property
    def dated(self) -> tuple[str, date] | None:
        """The first event with a day, else the day on which it was said."""
        return self.events[0] if self.events else ("said", self.said) if self.said else None


def worked_out(question: str, asked_on: datetime | None, lines: Sequence[Line]) -> tuple[str, ...]:
    """Facts about the lines that bear on ``question``, where it asks for a distance, an order or an age; else none."""
    return (*_times(question, asked_on, lines), *_ages(question, lines))


def _times(question: str, asked_on: datetime | None, lines: Sequence[Line]) -> list[str]:
    far, order = DISTANCE.search(question), ORDER.search(question)
    if not far and not order:
        return []
    asked = stems(question)
    shared = {line.name: len(asked & stems(line.text)) for line in lines}
    best = sorted((line for line in lines if line.dated and shared[line.name]), key=lambda line: -shared[line.name])[:EVENTS]
    events = sorted(((line, line.dated) for line in best if line.dated), key=lambda e: e[1][1])
    told = [f"{line.name} ({words}: {day})" for line, (words, day) in events]
    made = [f"in order of time: {', '.join(told)}"] if len(told) > 1 else []
    if far:
        made += [f"{told[a]} to {told[b]}: {distance(events[a][1][1], events[b][1][1])}" for a, b in combinations(range(len(told)), 2)]
        if asked_on:
            made += [f"{name} to today: {distance(day, asked_on.date())}" for name, (_, (_, day)) in zip(told, events, strict=True)]
    return made


def _ages(question: str, lines: Sequence[Line]) -> list[str]:
    if not AGE.search(question):
        return []
    found = {next(g for g in match.groups() if g): line.name for line in lines for match in _AGE.finditer(line.text)}
    ages = sorted(((int(age), name) for age, name in found.items()), reverse=True)[:EVENTS]
    made = [f"ages told: {', '.join(f'{age} ({name})' for age, name in ages)}"] if ages else []
    return made + [f"{a} ({one}) is {a - b} years older than {b} ({other})" for (a, one), (b, other) in combinations(ages, 2)]


def different(lines: Sequence[Line]) -> tuple[Line, ...]:
    """The lines that tell of different things: one that says again what another said, of the same day, is left out.

    What happened twice is kept twice: lines whose events lie on different days, or whose numbers differ, are different.
    """
    kept: list[Line] = []
    for line in lines:
        if not any(_same(line, other) for other in kept):
            kept.append(line)
    return tuple(kept)


def _same(one: Line, other: Line) -> bool:
    days = [{day for _, day in line.events} for line in (one, other)]
    if all(days) and not days[0] & days[1]:
        return False
    first, second = stems(one.text), stems(other.text)
    least = min(len(first), len(second))
    counted = numbers(one.text), numbers(other.text)
    return bool(least) and len(first & second) / least >= ALIKE and (not all(counted) or counted[0] == counted[1])


def total(lines: Sequence[Line]) -> tuple[float, str] | None:
    """The sum of what the lines tell, and its unit: where every one of two or more tells exactly one amount of the same unit."""
    found = [_amounts(line.text) for line in different(lines)]
    shared = set.intersection(*(set(a) for a in found)) if len(found) > 1 else set()
    units = [unit for unit in shared if all(len(a[unit]) == 1 for a in found)]
    return (sum(a[units[0]][0] for a in found), units[0]) if len(units) == 1 else None


def _amounts(text: str) -> dict[str, list[float]]:
    """The amounts of a text by their unit in one spelling."""
    found: dict[str, list[float]] = {}
    for match in _AMOUNT.finditer(text):
        unit = _SIGNS.get(match["sign"] or match["unit"] or "", (match["unit"] or "").lower().removesuffix("s"))
        if unit in STOP_WORDS:
            continue
        value = float((match["first"] or match["second"]).replace(",", ""))
        if value not in (known := found.setdefault(unit, [])):
            known.append(value)
    return found
