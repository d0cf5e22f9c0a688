"""Spoken dates to calendar dates, counted from the day of the talk and never from the machine's clock; differences between dates.

Own patterns find the phrases, since a general search takes "may", "second" or "sun" for dates; dateparser reads those that hold
a calendar date or an amount of time, under fixed settings (English, the day of the talk as base). What depends on how people speak
is decided here:

* "last Thursday" and "next Monday" are the nearest such day before and after the talk, never the day itself; within the running
  week "next" may mean either, so that is ``approximate``.
* Weeks begin on Monday. "last week", "last month", "this year" are whole ranges, ``approximate``.
* Days and weeks are exact, months and years ``approximate``.
* A month, a day of a month or a holiday without a year lies where the tense of its sentence points; without any tense it
  is the nearest in the past, unless the next one is nearer: then only the words are kept.
* "on Friday" and "a few days ago" keep only the words.
* "3/10" is month and day, as written in the US, and only where a date is expected.

When unsure, ``day`` is empty: words without a day beat a wrong day.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime

from dualtrace_local.records import EventDate

from .meanings import Match, Talk, group
from .phrases import RULES, Rule

__all__ = ["days_between", "describe_distance", "find_events"]


def find_events(text: str, said_on: datetime | None) -> tuple[EventDate, ...]:
    """The dates in ``text``, in order, each phrase once. Of an undated talk (None) only dates with a year get a day."""
    found = [_found(rule, match) for rule in RULES for match in rule.pattern.finditer(text)]
    events: dict[str, EventDate] = {}
    at = 0
    for hit in sorted(found, key=lambda f: (f.start, -f.end)):
        if hit.start < at:
            continue
        at = hit.end
        talk = Talk(said_on.date() if said_on else None, _sentence(text, hit.start, hit.end))
        event = _event(hit, talk)
        events.setdefault(event.spoken.lower(), event)
    return tuple(events.values())


def days_between(earlier: datetime, later: datetime) -> int:
    """Whole calendar days from ``earlier`` to ``later``; negative when they are the other way round."""
    return (later.date() - earlier.date()).days


def describe_distance(earlier: datetime | None, later: datetime | None) -> str:
    """How far ``earlier`` lies before the question's date ``later``, in days and then in the units people use.

    ``12 days before the question, about 2 weeks``; ``the day of the question``; empty when a date is unknown.
    """
    if earlier is None or later is None:
        return ""
    days = days_between(earlier, later)
    if days == 0:
        return "the day of the question"
    side, days = ("before", days) if days > 0 else ("after", -days)
    units = []
    if _WEEK <= days < _WEEKS_UNTIL:
        units.append(("" if days % _WEEK == 0 else "about ") + _counted(round(days / _WEEK), "week"))
    if _MONTHS_FROM <= days < _MONTHS_UNTIL:
        units.append("about " + _counted(round(days / _MONTH), "month"))
    if days >= _YEARS_FROM:
        units.append("about " + _counted(round(days / _YEAR * 2) / 2, "year"))
    text = f"{_counted(days, 'day')} {side} the question"
    return f"{text}, {' or '.join(units)}" if units else text


_WEEK, _MONTH, _YEAR = 7, 30.44, 365.25
_WEEKS_UNTIL, _MONTHS_FROM, _MONTHS_UNTIL, _YEARS_FROM = 120, 28, 730, 350


def _counted(number: float, unit: str) -> str:
    return f"{number:g} {unit}{'' if number == 1 else 's'}"


@dataclass(frozen=True)
class _Found:
    start: int
    end: int
    rule: Rule
    match: Match


def _found(rule: Rule, match: Match) -> _Found:
    start, end = match.span("spoken" if "spoken" in match.groupdict() else 0)
    return _Found(start, end, rule, match)


def _event(hit: _Found, talk: Talk) -> EventDate:
    spoken = " ".join(hit.match.string[hit.start : hit.end].split())
    # A date that carries its year needs no day of the talk; the base is then never looked at.
    base = talk.day or (date.min if group(hit.match, "year") else None)
    try:
        days = hit.rule.resolve(hit.match, base, talk) if base else None
    except (ValueError, OverflowError):
        # 30 February, or a million years ago: words that name no day.
        days = None
    if days is None:
        return EventDate(spoken)
    end = days.last.isoformat() if days.last and days.last != days.first else ""
    return EventDate(spoken, days.first.isoformat(), end, days.approximate)


def _sentence(text: str, start: int, end: int) -> str:
    begin = max(text.rfind(mark, max(0, start - 300), start) for mark in (".", "!", "?", "\n")) + 1
    stops = [n for mark in ("! ", "? ", ". ", "\n") if (n := text.find(mark, end, end + 300)) >= 0]
    return text[max(begin, start - 300) : min(stops, default=end + 300)]
