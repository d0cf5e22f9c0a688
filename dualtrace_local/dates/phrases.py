"""The phrases that may name a time, each with its meaning."""

from __future__ import annotations

import re
from dataclasses import dataclass

from . import meanings as m


@dataclass(frozen=True)
class Rule:
    """A phrase and its meaning. The group ``spoken`` is the phrase itself where the pattern also asks for what stands before it."""

    pattern: re.Pattern[str]
    resolve: m.Resolve


# "May", "March" and the short names are words of their own when small.
_MONTH_NAME = (
    r"(?:january|february|april|june|july|august|september|october|november|december"
    r"|(?-i:May|March|MAY|MARCH|(?:Jan|Feb|Mar|Apr|Jun|Jul|Aug|Sept?|Oct|Nov|Dec)\b\.?))(?!\w)"
)
_ANY_MONTH = rf"(?:{_MONTH_NAME}|(?:may|march)(?!\w| be\b| have\b| not\b))"
_DAY_NAME = r"(?:(?:mon|tues|wednes|thurs|fri|satur|sun)day|(?-i:Mon|Tues?|Wed|Thurs?|Thu|Fri|Sat|Sun)\b\.?)(?!\w|['’]s\b)"
_PART = r"(?: (?:early )?(?:morning|afternoon|evening|night)\b)?"
_NUMBER = rf"(?P<n>\d{{1,3}}|half a|(?:a )?couple of|a couple|an?|{'|'.join(m.NUMBER_WORDS)}|(?:a )?few|several|some)"
_VAGUELY = r"(?P<about>\b(?:about|around|roughly|almost|nearly|over|more than|less than|just over|just under|approximately|maybe|like) )?"
_YEAR = r"(?P<year>(?:19|20)\d{2})(?!\d|[-/]\d)"
_ORDINAL = r"(?:st|nd|rd|th)?(?!\w)"
_THIRD = r"(?P<part>early|mid|late|beginning|start|middle|end)(?: of|-)? ?"
_NO_UNIT = r"(?![:.]?\d| ?%| (?:miles?|km|people|times|percent|hours?|minutes?|steps|words|dollars|points|of us)\b)"


def _rule(pattern: str, resolve: m.Resolve) -> Rule:
    """Spaces in ``pattern`` stand for any white space, bounded so that time stays linear."""
    spaced = pattern.replace(" ?", "\\s?").replace(" ", "\\s{1,3}")
    return Rule(re.compile(spaced, re.IGNORECASE), resolve)


RULES = (
    _rule(r"(?<![\d/.-])(?P<year>\d{4})[-/.]\d{1,2}[-/.]\d{1,2}(?![\d/-])", m.iso),
    _rule(r"(?<![\d/.-])(?P<m>\d{1,2})/(?P<d>\d{1,2})/(?P<year>\d{4}|\d{2})(?![\d/])", m.numbers),
    _rule(r"(?<![\d/.-])(?P<d>\d{1,2})\.(?P<m>\d{1,2})\.(?P<year>\d{4})(?!\d)", m.numbers),
    _rule(
        rf"(?:\b(?:on|by|since|from|until|till|before|after|due|dated|through|starting|{_DAY_NAME},?) |\()"
        r"(?P<spoken>(?P<m>\d{1,2})/(?P<d>\d{1,2}))(?![\d/%]| ?(?:cups?|tsp|tbsp|teaspoon|tablespoon|inch|miles?|stars?|of|lbs?|oz)\b)",
        m.numbers,
    ),
    _rule(
        rf"\b(?P<month>{_MONTH_NAME}) (?:the )?(?P<d>\d{{1,2}}){_ORDINAL}"
        rf"(?: ?(?:-|–|to|through|until) ?(?:(?P<month2>{_MONTH_NAME}) )?(?P<d2>\d{{1,2}}){_ORDINAL})?(?:,? {_YEAR})?{_NO_UNIT}",
        m.day_of_month,
    ),
    _rule(
        rf"\b(?:the )?(?P<d>\d{{1,2}}){_ORDINAL}(?: ?(?:-|–|to|through|until) ?(?:the )?(?P<d2>\d{{1,2}}){_ORDINAL})?"
        rf" (?:(?P<month>{_MONTH_NAME})|of (?P<of>{_ANY_MONTH}))(?:,? {_YEAR})?",
        m.day_of_month,
    ),
    _rule(rf"\bthe (?P<word>{'|'.join(reversed(m.ORDINALS))}) of (?P<of>{_ANY_MONTH})(?:,? {_YEAR})?", m.day_of_month),
    _rule(rf"\b(?:(?:the )?{_THIRD})?(?P<month>{_ANY_MONTH})(?: of|,)? {_YEAR}", m.whole_month),
    _rule(
        r"\b(?:(?:in|since|during|until|till|by|around|throughout|from|back in|(?P<way>last|next)) ){1,2}"
        rf"(?:the )?(?:{_THIRD})?(?P<month>{_ANY_MONTH})(?! ?\d| the \d|['’]s\b)",
        m.whole_month,
    ),
    _rule(rf"\b(?:the )?{_THIRD}(?P<month>{_MONTH_NAME})(?! ?\d| the \d|['’]s\b)", m.whole_month),
    _rule(rf"\b(?:in|since|during|back in) {_YEAR}(?! (?:words|steps|calories|people|dollars|miles|points)|[,.]\d| ?%)", m.whole_year),
    _rule(
        rf"\b(?:(?:last|this|next|in the|in|the|over the) )(?:spring|summer|fall|autumn|winter)(?: of)? ?(?:{_YEAR})?(?! \w+ing)",
        m.words_only,
    ),
    _rule(
        r"\b(?:(?:on|at|by|since|for|(?P<way>last|this|next)) )(?P<name>new year['’]s(?: (?:day|eve))?|valentine['’]s day"
        r"|st\.? patrick['’]s day|cinco de mayo|juneteenth|independence day|halloween|christmas(?: (?:day|eve))?)"
        rf"(?! (?:tree|party|gift|card|present|dinner|season)s?)(?:,? {_YEAR})?",
        m.holiday,
    ),
    _rule(r"\b(?:the )?day before yesterday\b", m.offset(-2)),
    _rule(r"\b(?:the )?day after tomorrow\b", m.offset(2)),
    _rule(r"\b(?:yesterday(?: (?:morning|afternoon|evening|night))?|last night)\b", m.offset(-1)),
    _rule(r"\b(?:earlier today|later today|today(?!['’]s)|tonight|this (?:morning|afternoon|evening))\b", m.offset(0)),
    _rule(r"\btomorrow(?: (?:morning|afternoon|evening|night))?\b", m.offset(1)),
    _rule(r"\bthe other (?:day|night|week|weekend)\b", m.words_only),
    _rule(
        rf"{_VAGUELY}\b{_NUMBER}(?: |-)(?P<half>and a half )?"
        r"(?P<unit>day|week|month|year|decade|fortnight)s?(?P<and_half> and a half)? ago\b",
        m.ago,
    ),
    _rule(rf"\bin {_VAGUELY}{_NUMBER} (?P<half>and a half )?(?P<unit>day|week|month|year)s?\b(?:['’] time)?(?! of\b)", m.ahead),
    _rule(rf"{_VAGUELY}\b{_NUMBER} (?P<unit>day|week|month|year)s? from (?:now|today)\b", m.ahead),
    _rule(
        rf"\b(?:a|\w+) (?:day|week|month)s? (?:from|before|after) (?:yesterday|tomorrow|(?:(?:this|last|next) )?{_DAY_NAME})", m.words_only
    ),
    _rule(rf"\bthe (?:day|night|week|weekend) (?:before|after) (?:(?:last|next|this) )?(?:{_DAY_NAME}|week(?:end)?\b)", m.words_only),
    _rule(
        rf"\b(?:(?:in|over|for|during|within) )?(?:the |these )?(?P<way>past|last|next|coming) {_NUMBER} "
        r"(?P<unit>day|week|month|year)s?\b(?! of\b)",
        m.stretch,
    ),
    _rule(r"\b(?:in|over|for|during|within) the (?P<way>past) (?P<unit>day|week|month|year)\b", m.stretch),
    _rule(
        r"\b(?:the )?(?P<way>last|this past|past|this coming|coming|upcoming|next|this) "
        rf"(?P<day>{_DAY_NAME})(?! (?:of|in)\b){_PART}",
        m.weekday,
    ),
    _rule(rf"\b{_NUMBER} (?P<day>(?:mon|tues|wednes|thurs|fri|satur|sun)day)s ago\b", m.weekdays_ago),
    _rule(
        r"\b(?:(?P<side>earlier|later) )?(?:the )?(?P<way>last|this|next|this past) "
        r"(?P<unit>week|weekend|month|year)\b(?! of\b| before\b|-\w)",
        m.period,
    ),
    _rule(r"\bthe (?P<unit>week|weekend|month|year) (?P<way>before) last\b", m.period),
    _rule(
        rf"\b(?:on|by|until|till|since|before|after) {_DAY_NAME}(?!,? (?:{_MONTH_NAME}|the \d|\d)){_PART}",
        m.words_only,
    ),
)
