"""What time a question is about, as ranges of days; and the distances of days in the units that people use.

A window lifts what lies in it and never hides the rest: a range that was read wrong must not cost the answer.
"""

from __future__ import annotations

import calendar
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta

from . import find_events

_SEASONS = {"spring": (3, 5), "summer": (6, 8), "autumn": (9, 11), "fall": (9, 11), "winter": (12, 2)}
"""First and last month, as in the north; in the south a window is half a year off, and lifts in vain."""

_SEASON = re.compile(
    r"\b(?P<way>last|this|past|in|during|over)\s+(?:the\s+)?(?P<name>spring|summer|autumn|fall|winter)(?:\s+of)?(?:\s+(?P<year>(?:19|20)\d{2}))?\b",
    re.IGNORECASE,
)
_BESIDE = re.compile(
    r"\b(?:the\s+)?(?:(?P<unit>day|week|weekend|month|year)\s+)?(?P<side>before|after|since)\s+"
    r"(?P<event>(?:my|our|the|I|we|his|her|their)\b[^?.,;!]{2,80})",
    re.IGNORECASE,
)
_REACH = {"day": 1, "week": 7, "weekend": 7, "month": 31, "year": 366}
_LOOSE = (
    (re.compile(r"year|decade", re.IGNORECASE), 183),
    (re.compile(r"month", re.IGNORECASE), 15),
    (re.compile(r"week", re.IGNORECASE), 3),
)
_BETWEEN = re.compile(r"\b(?:between\b.+\band|from\b.+\b(?:to|until|till))\b", re.IGNORECASE)
_TWO = 2
_SOME_TIME = 62
"""Days before or after an event that a question without a unit ("after my trip") means at most."""


@dataclass(frozen=True)
class Window:
    """The days from ``first`` to ``last``."""

    first: date
    last: date

    def holds(self, days: Sequence[date]) -> bool:
        """Whether one of ``days`` lies in it."""
        return any(self.first <= day <= self.last for day in days)


@dataclass(frozen=True)
class Beside:
    """A time told by an event: so many days before (negative) or after it. ``event`` is the question's words for it."""

    event: str
    days: int

    def window(self, day: date) -> Window:
        """The window, once the event's day is known."""
        other = day + timedelta(days=self.days)
        return Window(min(day, other), max(day, other))


def windows(question: str, asked_on: datetime | None) -> tuple[Window, ...]:
    """The times that a question names, counted from its date: "last March", "two weeks ago", "in the summer of 2023".

    What people round is widened: "two weeks ago" by three days on both sides, months by half a month.
    """
    told = [e for e in find_events(question, asked_on) if e.day]
    if len(told) == _TWO and _BETWEEN.search(question):
        first, last = sorted((told[0].day, told[1].end or told[1].day))
        return (Window(date.fromisoformat(first), date.fromisoformat(last)),)
    wide = [_widened(Window(date.fromisoformat(e.day), date.fromisoformat(e.end or e.day)), e.spoken) for e in told]
    return (*wide, *_seasons(question, asked_on))


def beside(question: str) -> Beside | None:
    """The event that a question tells its time by: "the week before my trip to Oslo". None where it names none."""
    match = _BESIDE.search(question)
    if match is None:
        return None
    reach = _REACH.get((match["unit"] or "").lower(), _SOME_TIME)
    return Beside(match["event"].strip(), -reach if match["side"].lower() == "before" else reach)


def _widened(window: Window, spoken: str) -> Window:
    if window.first != window.last:
        return window
    more = next((days for pattern, days in _LOOSE if pattern.search(spoken)), 0)
    return Window(window.first - timedelta(days=more), window.last + timedelta(days=more))


def _seasons(question: str, asked_on: datetime | None) -> list[Window]:
    made = []
    for match in _SEASON.finditer(question):
        first, last = _SEASONS[match["name"].lower()]
        if match["year"]:
            year = int(match["year"])
        elif asked_on is None:
            continue
        else:
            year = asked_on.year
            if date(year, first, 1) > asked_on.date() or (
                match["way"].lower() == "last" and _season(year, first, last).last >= asked_on.date()
            ):
                year -= 1
        made.append(_season(year, first, last))
    return made


def _season(year: int, first: int, last: int) -> Window:
    end = year + (last < first)
    return Window(date(year, first, 1), date(end, last, calendar.monthrange(end, last)[1]))


def distance(first: date, last: date) -> str:
    """How far two days lie apart, in all units that fit: ``75 days (10 weeks 5 days; 2 months 14 days)``. The order does not matter."""
    first, last = min(first, last), max(first, last)
    days = (last - first).days
    parts = [_units((days // 7, "week"), (days % 7, "day"))] if days >= _WEEK else []
    months = (last.year - first.year) * 12 + last.month - first.month
    if _months_on(first, months) > last:
        months -= 1
    if months:
        rest = (last - _months_on(first, months)).days
        parts.append(_units((months // 12, "year"), (months % 12, "month"), (rest, "day")))
    return _units((days, "day")) + (f" ({'; '.join(parts)})" if parts else "")


_WEEK = 7


def _months_on(day: date, months: int) -> date:
    """The same day so many months later, or the last one of a shorter month."""
    year, month = divmod(day.year * 12 + day.month - 1 + months, 12)
    return date(year, month + 1, min(day.day, calendar.monthrange(year, month + 1)[1]))


def _units(*counts: tuple[int, str]) -> str:
    told = [f"{n} {unit}{'' if n == 1 else 's'}" for n, unit in counts if n]
    return " ".join(told) or f"0 {counts[-1][1]}s"
