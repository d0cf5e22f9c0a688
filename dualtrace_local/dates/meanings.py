"""What a phrase about time means, counted from the day of the talk."""

from __future__ import annotations

import calendar
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta

from dualtrace_local.corpus import parse_date

Match = re.Match[str]

_MONTHS = "jan feb mar apr may jun jul aug sep oct nov dec".split()
_WEEKDAYS = "mon tue wed thu fri sat sun".split()
_SATURDAY = 5
_LEAP_YEAR = 366
_FAR, _NEAR = 300, 45
NUMBER_WORDS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
_TEENS = (
    "first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth thirteenth fourteenth fifteenth sixteenth".split()
)
ORDINALS = (
    *_TEENS,
    *("seventeenth", "eighteenth", "nineteenth", "twentieth"),
    *(f"twenty-{word}" for word in _TEENS[:9]),
    "thirtieth",
    "thirty-first",
)
"""The days of a month as words, in order."""
_NUMBERS = {
    **dict.fromkeys(("a", "an"), 1.0),
    **dict.fromkeys(("a couple of", "a couple", "couple of"), 2.0),
    "half a": 0.5,
    **{word: n + 1.0 for n, word in enumerate(NUMBER_WORDS)},
}
_UNITS = {"fortnight": (2, "week"), "decade": (10, "year")}
_HOLIDAYS = {
    "new year's eve": (12, 31),
    "new year": (1, 1),
    "valentine": (2, 14),
    "st patrick": (3, 17),
    "cinco": (5, 5),
    "juneteenth": (6, 19),
    "independence": (7, 4),
    "halloween": (10, 31),
    "christmas eve": (12, 24),
    "christmas": (12, 25),
}

_PAST = re.compile(
    r"""\b(?:was|were|had|did|didn['’]t|went|got|bought|took|met|saw|made|came|left|began|ran|won|lost|told|said|wrote|broke|fell
    |found|gave|grew|knew|led|paid|sold|sent|spent|taught|thought|woke|drove|flew|ate|drank|built|caught|chose|felt|held|kept|lent
    |rode|sang|sat|slept|spoke|swam|wore|forgot|became|(?:['’]ve|have|has)\ (?:\w+\ ){0,2}?(?:been|\w+ed)
    |\w{2,}(?<!ne)(?<!spe)(?<!inde)(?<!schedul)ed)\b""",
    re.VERBOSE | re.IGNORECASE,
)
_FUTURE = re.compile(
    r"""\b(?:will|won['’]t|shall|going\ to|gonna|plan(?:s|ning)?|upcoming|hop(?:e|ing)\ to|look(?:ing)?\ forward|intend|about\ to
    |scheduled\ (?:for|on)|due|deadline|coming\ up|happening
    |have\ an?\ (?:appointment|meeting|exam|flight|interview)|expires?
    |(?:is|are)\ (?:on|in|at)|(?:am|is|are|['’]m|['’]re)\ (?:\w+\ )?(?!during|morning)\w+ing
    |(?:want|need|have|has|would\ like)\ to|starts?|begins?)\b|['’]ll\b""",
    re.VERBOSE | re.IGNORECASE,
)


@dataclass(frozen=True)
class Talk:
    """When something was said, and the sentence around it."""

    day: date | None
    sentence: str

    @property
    def past(self) -> bool:
        """The sentence tells of something that has happened."""
        return bool(_PAST.search(self.sentence))

    @property
    def future(self) -> bool:
        """The sentence tells of something to come."""
        return bool(_FUTURE.search(self.sentence))

    @property
    def born(self) -> bool:
        """A birthday without its year is no day of these years."""
        return re.search(r"\bborn\b", self.sentence, re.IGNORECASE) is not None


@dataclass(frozen=True)
class Days:
    """A day or a range of days."""

    first: date
    last: date | None = None
    approximate: bool = False


Resolve = Callable[[Match, date, Talk], Days | None]


def group(match: Match, name: str) -> str:
    """The group in lower case; empty when the pattern lacks it or it took no part."""
    return (match.groupdict().get(name) or "").lower()


def _dateparser(words: str, base: date) -> date | None:
    """A phrase of fixed form as a day. Nothing depends on the machine: language, order, zone and base are given."""
    import dateparser

    settings = {
        "RELATIVE_BASE": datetime(base.year, base.month, base.day),
        "DATE_ORDER": "YMD",
        "TIMEZONE": "UTC",
        "RETURN_AS_TIMEZONE_AWARE": False,
        "PREFER_DATES_FROM": "past",
        "STRICT_PARSING": False,
    }
    moment = dateparser.parse(words, languages=["en"], settings=settings)
    return moment.date() if moment else None


def _pick(spans: list[Days], base: date, talk: Talk) -> Days | None:
    """Of the same day or month in several years, the one that the tense points at; without a tense, see the module's text."""
    if talk.born:
        return None
    before = max((s for s in spans if s.first <= base), key=lambda s: s.first, default=None)
    after = min((s for s in spans if (s.last or s.first) >= base), key=lambda s: s.first, default=None)
    ago = max((base - (before.last or before.first)).days, 0) if before else _LEAP_YEAR
    ahead = max((after.first - base).days, 0) if after else _LEAP_YEAR
    if talk.future and not talk.past:
        # Almost a year ahead, while the same day lies close behind, is more likely a slip than a plan.
        return None if ahead >= _LEAP_YEAR or (ahead > _FAR and ago < _NEAR) else after
    if talk.past and not talk.future:
        return before if ago < _LEAP_YEAR else None
    return before if ago <= ahead and ago < _LEAP_YEAR else None


def _around(base: date, month: int, day: int) -> list[Days]:
    """That day in the years around ``base`` that have it."""
    years = range(max(base.year - 4, 1), base.year + 5)
    return [Days(date(y, month, day)) for y in years if day <= calendar.monthrange(y, month)[1]]


def _month(year: int, month: int, part: str = "") -> Days:
    """A whole month, or its ``early``, ``mid`` or ``late`` third."""
    last = calendar.monthrange(year, month)[1]
    start, end = {"early": (1, 10), "beginning": (1, 10), "start": (1, 10), "mid": (11, 20), "middle": (11, 20)}.get(
        part, (21, last) if part else (1, last)
    )
    return Days(date(year, month, start), date(year, month, end), approximate=bool(part))


def _month_number(name: str) -> int:
    return _MONTHS.index(name[:3].lower()) + 1


def _amount(words: str) -> float | None:
    """``two`` as 2, None for ``a few``."""
    words = " ".join(words.lower().split())
    return float(words) if words.isdigit() else _NUMBERS.get(words)


def _shifted(match: Match, base: date, direction: int) -> Days | None:
    """So many days, weeks, months or years away."""
    amount, unit = _amount(match["n"]), match["unit"].lower()
    if amount is None:
        return None
    factor, unit = _UNITS.get(unit, (1, unit))
    number = amount * factor + (0.5 if group(match, "half") or group(match, "and_half") else 0)
    if unit == "year" and number % 1:
        number, unit = number * 12, "month"
    if number % 1:
        return None
    words = f"{int(number)} {unit}s"
    day = _dateparser(f"{words} ago" if direction < 0 else f"in {words}", base)
    return Days(day, approximate=unit in ("month", "year") or bool(group(match, "about"))) if day else None


def ago(match: Match, base: date, _: Talk) -> Days | None:
    """Such as "two weeks ago"."""
    return _shifted(match, base, -1)


def ahead(match: Match, base: date, talk: Talk) -> Days | None:
    """How long ("I read it in two weeks") or how often ("once in a week") is not when."""
    if (talk.past and not talk.future) or (match["n"].lower() in ("a", "an") and not talk.future):
        return None
    return _shifted(match, base, 1)


def stretch(match: Match, base: date, _: Talk) -> Days | None:
    """The days from or up to the talk: "the past two weeks"."""
    number = _amount(group(match, "n") or "one")
    days = {"day": 1, "week": 7, "month": 30, "year": 365}[match["unit"].lower()]
    if number is None:
        return None
    reach = timedelta(days=int(number * days))
    ahead = match["way"].lower() in ("next", "coming")
    return Days(base, base + reach, approximate=True) if ahead else Days(base - reach, base, approximate=True)


def offset(days: int) -> Resolve:
    """A fixed number of days from the talk: "yesterday"."""
    return lambda _, base, __: Days(base + timedelta(days=days))


def words_only(_: Match, __: date, ___: Talk) -> None:
    """Known to be a time, not known to be a day."""


def weekday(match: Match, base: date, talk: Talk) -> Days | None:
    """Such as "last Thursday", "next Monday", "this Friday"."""
    way, day = match["way"].lower().split()[-1], _WEEKDAYS.index(match["day"][:3].lower())
    ahead = (day - base.weekday()) % 7
    if way in ("last", "past"):
        shift = ahead - 7
    elif way == "this":
        shift = day - base.weekday()
        if shift < 0 and not talk.past:
            return None
    else:
        shift = ahead or 7
    unclear = way in ("last", "next") and 0 <= base.weekday() + shift < len(_WEEKDAYS)
    return Days(base + timedelta(days=shift), approximate=unclear)


def weekdays_ago(match: Match, base: date, _: Talk) -> Days | None:
    """Such as "two Sundays ago": the nearest one, and one week back for each more."""
    number, day = _amount(match["n"]), _WEEKDAYS.index(match["day"][:3].lower())
    if number is None:
        return None
    return Days(base + timedelta(days=(day - base.weekday()) % 7 - 7 * int(number)))


def period(match: Match, base: date, talk: Talk) -> Days | None:
    """Last, this and next week, weekend, month and year, as ranges."""
    way, unit = group(match, "way").split()[-1], group(match, "unit")
    step = {"last": -1, "past": -1, "before": -2, "this": 0, "next": 1}[way]
    monday = base - timedelta(days=base.weekday())
    if unit == "week":
        span = Days(monday + timedelta(days=7 * step), monday + timedelta(days=7 * step + 6), approximate=True)
    elif unit == "weekend":
        # "this weekend" of a past sentence, and "next weekend", can mean either of two.
        if step > 0 or (step == 0 and talk.past and base.weekday() < _SATURDAY):
            return None
        saturday = monday + timedelta(days=_SATURDAY + 7 * step)
        span = Days(saturday, saturday + timedelta(days=1), approximate=True)
    elif unit == "month":
        months = base.year * 12 + base.month - 1 + step
        whole = _month(months // 12, months % 12 + 1)
        span = Days(whole.first, whole.last, approximate=True)
    else:
        span = Days(date(base.year + step, 1, 1), date(base.year + step, 12, 31), approximate=True)
    if side := group(match, "side"):
        return replace(span, last=base) if side == "earlier" else replace(span, first=base)
    return span


def iso(match: Match, _: date, __: Talk) -> Days | None:
    """Such as "2023-05-30"."""
    moment = parse_date(match.group())
    return Days(moment.date()) if moment else None


def numbers(match: Match, base: date, talk: Talk) -> Days | None:
    """``3/10`` as in the US, but a first number above 12 is a day; ``10.3.2023`` has the day first."""
    month, day, year = int(match["m"]), int(match["d"]), group(match, "year")
    if month > len(_MONTHS) >= day:
        month, day = day, month
    if not year:
        return _pick(_around(base, month, day), base, talk)
    century = "" if len(year) > len("99") else "20" if year < "50" else "19"
    return Days(date(int(century + year), month, day))


def day_of_month(match: Match, base: date, talk: Talk) -> Days | None:
    """Such as "March 5", "the 5th of March", "March 5-7"."""
    name, last = group(match, "month") or group(match, "of"), group(match, "d2")
    first = 1 + ORDINALS.index(group(match, "word")) if group(match, "word") else int(match["d"])
    month, end_month = _month_number(name), _month_number(group(match, "month2") or name)
    if year := group(match, "year"):
        start = _dateparser(f"{year}-{month:02d}-{first:02d}", base)
    else:
        picked = _pick(_around(base, month, first), base, talk)
        start = picked.first if picked else None
    if start is None:
        return None
    return Days(start, date(start.year + (end_month < month), end_month, int(last)) if last else None)


def whole_month(match: Match, base: date, talk: Talk) -> Days | None:
    """Such as "in March", "May 2022", "early June"."""
    month, part, way = _month_number(match["month"]), group(match, "part"), group(match, "way")
    if year := group(match, "year"):
        return _month(int(year), month, part)
    spans = [_month(y, month, part) for y in range(base.year - 1, base.year + 2)]
    if way == "last":
        return replace(max((s for s in spans if (s.last or s.first) < base), key=lambda s: s.first), approximate=True)
    if way == "next":
        return replace(min((s for s in spans if s.first > base), key=lambda s: s.first), approximate=True)
    return _pick(spans, base, talk)


def whole_year(match: Match, _: date, __: Talk) -> Days:
    """Such as "in 2019"."""
    year = int(match["year"])
    return Days(date(year, 1, 1), date(year, 12, 31))


def holiday(match: Match, base: date, talk: Talk) -> Days | None:
    """A holiday with a fixed date."""
    name = match["name"].lower().replace("’", "'").replace(".", "")
    month, day = next(when for key, when in _HOLIDAYS.items() if name.startswith(key))
    if year := group(match, "year"):
        return Days(date(int(year), month, day))
    days, way = _around(base, month, day), group(match, "way")
    if way == "last":
        return [d for d in days if d.first < base][-1]
    if way == "next":
        return next(d for d in days if d.first > base)
    return _pick(days, base, talk)
