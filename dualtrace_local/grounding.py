"""Which of the user's words a written sentence rests on, what it may not add, and the evidence scores that follow from those words.

A model may phrase, but it may not invent: every number and every name of a written sentence must be among the user's own words, and
enough of its content words must stand together in one of the user's sentences, which becomes its quote. The three evidence scores
(paper section 3.2) are then worked out from the quotes by the table of ``score``; they never come from a small model's opinion.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any

from .records import Component, Evidence, Turn

STOP_WORDS = frozenset(
    (
        "a about after all also am an and any are as at be because been before being but by can could did do does doing for from "
        "get got had has have having he her hers him his how i if in into is it its just like made make many me more most my no "
        "not now of off on once only or other our out over own really recently she should so some such than that the their them "
        "then there these they this those through to too up us user user's very was we were what when where which while who will "
        "with would yes you your yours s t ve re m d ll "
    ).split()
)
"""Words that say nothing about what a sentence is about."""

_SMALL = "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen"
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
_ORDINALS = "zeroth first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth"
_ADDED = (
    {word: i for i, word in enumerate(_SMALL.split())}
    | {word: i for i, word in enumerate(_ORDINALS.split())}
    | {word: 20 + 10 * i for i, word in enumerate(_TENS.split())}
)
_SCALES = {"dozen": 12, "hundred": 100, "thousand": 1000, "million": 1_000_000}
_LOOSE = {"twice": "2", "couple": "2", "half": "0.5", "single": "1", "once": "1"}
NUMBER_WORDS = {word: str(value) for word, value in (_ADDED | _SCALES).items()} | _LOOSE
_VAGUE = {"1", "0.5"}
_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)?|\d+(?:[.,:]\d+)*", re.UNICODE)
_NUMBER = re.compile(r"\d+(?:[.,:]\d+)*")
_NAME = re.compile(r"\b[^\W\d_a-z][\w'’-]*", re.UNICODE)
_TITLE = re.compile(r"\b(?:Dr|Mrs?|Ms|Prof|St|Mt)\.$")
_TOKEN = re.compile(r"[^\W_]+")
_UNSPACED = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]")
_SPLIT = re.compile(r"(?<=[.!?…])(?<!\bDr\.)(?<!\bMr\.)(?<!\bMrs\.)(?<!\bMs\.)(?<!\bProf\.)(?<!\bSt\.)[\"')\]]*\s+|(?<=[。！？])\s*|\n+")

CONTENT = 3
"""Content words from which a statement is about something concrete."""

MINIMUM_SHARE = 0.34
"""Share of a written sentence's content words that its quote must hold. Chosen on the development rows."""

KNOWN_SHARE = 0.6
"""Share of a written sentence's content words that the user must have used anywhere in the session. Chosen on the development rows."""

ECHO = 0.6
"""Assistants repeat what they were told: the user's sentence must hold at least so much of what the best sentence of somebody else does."""

LONGEST_QUOTE = 600
"""Characters. What has no sentence ends (dictation, pasted text) is cut into such pieces, so that a quote stays one."""


@cache
def _stemmer() -> Any:
    import Stemmer

    return Stemmer.Stemmer("english")


def _one_form(text: str) -> str:
    """Composed letters, plain digits of all scripts, one apostrophe: the same text however it was typed."""
    text = unicodedata.normalize("NFKC", text).replace("’", "'")
    return text if text.isascii() else "".join(str(unicodedata.decimal(c, c)) for c in text)


def numbers(text: str) -> frozenset[str]:
    """All numbers of ``text`` in one spelling: ``twelve`` and ``12`` are the same, ``1,200`` is ``1200``, ``6:45`` stays."""
    text = _one_form(text)
    figures = {figure for match in _NUMBER.finditer(text) for figure in _spelled(match.group())}
    return frozenset(figures | set(_in_words(re.findall(r"[a-z]+|[^a-z\s-]", text.lower()))))


def _spelled(number: str) -> list[str]:
    """One spelling for a figure; several when commas separate a list."""
    if re.fullmatch(r"\d{1,3}(,\d{3})+(\.\d+)?", number):
        number = number.replace(",", "")
    return [_shortest(part) for part in number.split(",")]


def _shortest(number: str) -> str:
    if number.count(".") == 1:
        number = number.rstrip("0").rstrip(".")
    return re.sub(r":00$", "", re.sub(r"^0+(?=\d)", "", number))


def _in_words(tokens: Sequence[str]) -> Iterator[str]:
    """Numbers written in words, whole: ``two hundred and twenty-five`` is 225 and nothing else."""
    total = current = 0
    within = False
    for token, following in pairwise((*tokens, "", "")):
        if token in _ADDED:
            value = _ADDED[token]
            fits = current % 100 == 0 or (value < 10 and current % 10 == 0 and current % 100 > 10)  # noqa: PLR2004 - the decimal system
            if within and not fits:
                yield str(total + current)
                total = current = 0
            current, within = current + value, True
        elif token in _SCALES and _SCALES[token] <= 100:  # noqa: PLR2004 - as above
            current, within = max(current, 1) * _SCALES[token], True
        elif token in _SCALES:
            total, current, within = total + max(current, 1) * _SCALES[token], 0, True
        elif not (within and token == "and" and (total or current >= 100) and following in _ADDED):  # noqa: PLR2004, S105 - as above; a word
            if within:
                yield str(total + current)
            total, current, within = 0, 0, False
            if token in _LOOSE:
                yield _LOOSE[token]


def names(text: str) -> frozenset[str]:
    """Capitalised words of ``text``, lower-cased and without a possessive ending, but for the first word and ``I``."""
    text = _one_form(text)
    found: set[str] = set()
    for match in _NAME.finditer(text):
        word = re.sub(r"'s?$", "", match.group())
        before = text[max(0, match.start() - 12) : match.start()].rstrip(" \n\"'“‘(")
        first = before[-1:] in ".!?" and not _TITLE.search(before)
        if not first and word[0].isupper() and word.split("'")[0] not in ("I", ""):
            found.add(word.lower())
    return frozenset(found)


def stems(text: str) -> frozenset[str]:
    """Stems of the content words of ``text``; numbers in one spelling; scripts without spaces as pairs of characters."""
    found: list[str] = []
    for match in _WORD.finditer(_one_form(text).lower()):
        word = max(match.group().removesuffix("'s").split("'"), key=len)
        if word[0].isdigit():
            found += _spelled(word)
        elif _UNSPACED.search(word):
            found += _pairs(word)
        elif word not in STOP_WORDS and len(word) > 1 and not match.group().endswith("n't"):
            found.append(NUMBER_WORDS.get(word, word))
    return frozenset(_stemmer().stemWords(found))


def _pairs(word: str) -> list[str]:
    return [a + b for a, b in pairwise(word)] or [word]


def sentences(text: str) -> Iterator[str]:
    """The sentences of ``text``, verbatim; what is longer than LONGEST_QUOTE is cut, at a space where there is one."""
    for whole in _SPLIT.split(text):
        piece = whole.strip()
        while len(piece) > LONGEST_QUOTE:
            cut = piece.rfind(" ", LONGEST_QUOTE // 2, LONGEST_QUOTE)
            cut = cut if cut > 0 else LONGEST_QUOTE
            yield piece[:cut].rstrip()
            piece = piece[cut:].lstrip()
        if piece:
            yield piece


_UNITS = {"yr": "year", "mo": "month", "wk": "week", "hr": "hour", "min": "minute"}
_MONTHS = "january|february|march|april|may|june|july|august|september|october|november|december"
_UNIT = f"year|yr|month|mo|week|wk|day|hour|hr|minute|min|{_MONTHS}"
_DAY_OF_MONTH = re.compile(rf"\b({_MONTHS})\s+(\d{{1,2}})(?:st|nd|rd|th)?\b")
_MEASURE = re.compile(rf"(?<![\w.,:])([a-z]+|\d+(?:[.,:]\d+)*)(?:(?:\s|-)+(?:more\s|whole\s)?({_UNIT})s?\b)?")


def measures(text: str) -> frozenset[tuple[str, str]]:
    """Each number of ``text`` with the unit of time behind it, empty where there is none: ``(30, minute)``, ``(27, april)``."""
    found: set[tuple[str, str]] = set()
    for match in _MEASURE.finditer(_DAY_OF_MONTH.sub(r"\2 \1", _one_form(text).lower())):
        unit = match.group(2) or ""
        found |= {(number, _UNITS.get(unit, unit)) for number in numbers(match.group(1))}
    return frozenset(found)


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
        self._words = frozenset(w for s in mine for w in _TOKEN.findall(_one_form(s.text).lower()))
        self._stems = frozenset().union(*(s.stems for s in mine))
        self._measures = frozenset().union(*(measures(s.text) for s in mine))
        self._pairs = frozenset(p for w in self._words if not w.isascii() for p in _pairs(w))

    def invented(self, text: str) -> str:
        """What ``text`` holds that the user never said: ``a number``, ``a unit`` of time with one, ``a name``, or empty.

        ``one`` is a pronoun too often to count.
        """
        if numbers(text) - self._numbers - _VAGUE:
            return "a number"
        told = {number for number, _ in self._measures}
        if any(number in told and not {(number, unit), (number, "")} & self._measures for number, unit in measures(text) if unit):
            return "a unit"
        return "a name" if self.strange(text) else ""

    def strange(self, text: str) -> frozenset[str]:
        """Names in ``text`` that the user never said, and words of scripts without capitals that are mostly other characters."""
        unknown = {n for n in names(text) if not all(self._knows(part) for part in _TOKEN.findall(n))}
        for word in _TOKEN.findall(_one_form(text)):
            pairs = _pairs(word.lower())
            if word[0].isalpha() and not (word[0].isupper() or word[0].islower()) and 2 * len(self._pairs & {*pairs}) < len({*pairs}):
                unknown.add(word)
        return frozenset(unknown)

    def _knows(self, name: str) -> bool:
        return name in self._words or any(_kin(name, w) or _kin(w, name) for w in self._words)

    def component(self, text: str) -> Component | Refused:
        """``text`` with the user's sentence it rests on, or why it may not be kept."""
        if invention := self.invented(text):
            return Refused(f"{invention} that the user did not say")
        wanted = stems(text)
        if not wanted:
            return Refused("no content")
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

    @staticmethod
    def _share(wanted: frozenset[str], figures: frozenset[str], said: Said) -> float:
        """Share of ``wanted`` in the sentence; a number counts three times, since it is what must not be bound to the wrong thing."""
        shared = wanted & said.stems
        weight = len(shared) + 2 * len(figures & said.figures)
        return weight / (len(wanted) + 2 * len(figures))


_ENDINGS = frozenset(("", "s", "es", "n", "an", "ian", "ese", "ish"))


def _kin(word: str, longer: str) -> bool:
    """Whether ``longer`` is ``word`` with an ending: Tuesdays of Tuesday, Italian of Italy. Marathon is no kin of Mark."""
    shortest = 4
    return any(len(root) >= shortest and longer.startswith(root) and longer[len(root) :] in _ENDINGS for root in (word, word[:-1]))


# ------------------------------------------------------------------------------------------------- evidence scores

_FIRST_PERSON = re.compile(r"\bI\b(?!\.\w)|\b(?:me|my|mine|myself|we|our|ours|(?-i:us|Us))\b", re.IGNORECASE)
_REQUEST = re.compile(
    r"""\b(?:
    (?:can|could|would|will)\s+you\b[^,.;!?]{0,120}?\b(?:me|us|my)\b
    | (?:help|give|tell|show|teach|write|send|let|suggest|recommend|explain|provide|make|get)(?:\s+to)?\s+(?:me|us)\b
    | I(?:['’]m|\s+am)?\s+(?:also\s+|just\s+|really\s+)?(?:looking\s+for|wondering|curious|asking|interested\s+in\s+(?:knowing|learning))
    | I(?:['’]d|\s+would)?\s+(?:also\s+|just\s+|really\s+)?(?:need|want|like|love|appreciate)\s+
      (?:you\b(?:[^,.;!?]{0,120}?\b(?:me|us|my)\b)?|to\s+(?:know|learn|ask|see|hear|understand)|some\b|a\s+list|help|advice|information)
    | (?:can|could|should|do|may|how\s+(?:do|can|should|would))\s+(?:I|we)\b
    | I\s+(?:think|guess|see|understand|agree|hope)\b
    | I(?:['’]ve|\s+have)?\s+(?:also\s+|just\s+)?(?:noticed|heard|read|seen|wondered)\b
    | (?:in\s+)?my\s+(?:question|opinion|request|prompt|previous)\b
    )""",
    re.IGNORECASE | re.VERBOSE,
)
_SPEAKER = re.compile(r"\bI\b(?!\.)|\bI['’](?:m|ve|d|ll)\b|\b(?:my|myself)\b")
_QUOTED = re.compile("[\"'“‘][^\"'“”‘’]{0,200}[\"'”’]")
_MAIN_CLAUSE = re.compile(
    r"(?:^|[,;:(–—-]\s*|\b(?:and|but|so|then|actually|today|yesterday|way)\s+)(?:I|we)\b(?:['’]\w+)?\s+\w+|\b(?:my|our)\s+(?:\w+\s+){1,3}(?:is|are|was|were|has|have|had)\b",
    re.IGNORECASE,
)
_EVENT = re.compile(
    r"\b(?:\w{3,}ed|got|went|bought|made|took|saw|met|had|won|lost|ran|began|sold|found|came|left|moved|started|am|is|are|was|were)\b"
)
_HEDGE = re.compile(
    r"\b(?:maybe|perhaps|might|possibly|probably|not sure|unsure|i guess|i suppose|i think|i believe|considering|thinking (?:of|about)|"
    r"roughly|if i remember|i may|could be|or something)\b",
    re.IGNORECASE,
)
_STAKES = re.compile(
    r"\b(?:allerg\w+|epilep\w+|diabet\w+|asthma|medicat\w+|medicine|dose|dosage|insulin|blood type|pregnan\w+|surgery|emergency|"
    r"(?:locker|gate|door|alarm|entry|access|booking|confirmation)\s+(?:code|number|reference))\b",
    re.IGNORECASE,
)
_ORDER = r"""(?:(?:^|[.!?;:,(]|\s[-–—])[ \t]*(?:(?:and|but|so|oh|ok|okay|also|just|then|now|actually|please|pls|kindly)[ \t,]+){0,3}
    | \b(?:please|pls|kindly)[ \t]+(?:also[ \t]+|just[ \t]+)?)"""
_TO_YOU = r"\b(?:(?:can|could|would|will)\s+you\s+(?:please\s+)?|you\s+(?:should|must|can)\s+|(?:want|need|like|ask)\s+you\s+to\s+)"
_NOT = r"(?:do\s+not|don['’]?t|never)\s+(?:ever\s+)?"
REMEMBER = re.compile(
    rf"""(?:{_ORDER}|(?<!not\s)(?<!n['’]t\s){_TO_YOU})
    (?:(?:always\s+)?remember|(?:keep|bear)\s+in\s+mind|make\s+a\s+(?:mental\s+)?note|take\s+note|note\s+down|memori[sz]e|{_NOT}forget)
    (?:\s+of)?(?:\s+(?:that|this|my|our|I['’]m|I\s+am)|[:,]?\s+(?:my|our|I|we))\b
    (?!\s+(?:time|day|night|one|you|your|each|every|the\s+(?:answer|response|output|text|story|essay|article|format|tone|reader))\b)""",
    re.IGNORECASE | re.MULTILINE | re.VERBOSE,
)
"""The user asks to remember: overrides DROP (design section 5). Only as an order: not "I remember that", "do you remember that time"."""
_KEEP = (
    r"(?:(?:remember|memori[sz]e|store|save|record|log|note(?:\s+down)?|write\s+down|keep\s+(?:a\s+)?(?:note|record|memory)\s+of)"
    r"\s+(?:about\s+)?"
)
_KEPT = r"(?:that|this|it|these|those|any(?:thing)?|what|my|our)\b|keep\s+(?:this|that|it|any\s+of\s+\w+)(?=\s*(?:[.!,;)]|$)))"
_GONE = r"forget\s+(?:about\s+)?(?:that|this|it\s+all|all\s+(?:of\s+)?(?:this|that)|(?:everything|anything|what)\s+i|my)\b"
DO_NOT_REMEMBER = re.compile(
    rf"""{_ORDER}(?:{_NOT}{_KEEP}{_KEPT}|{_GONE})
    | \b(?:do\s+not|don['’]?t|would\s+not|wouldn['’]?t)\s+(?:want|like)\s+you\s+to\s+{_KEEP}{_KEPT}
    | (?:\b(?:rather|prefer|hope)\s+(?:that\s+)?(?:if\s+)?you\s+(?:not|to\s+not|do\s+not|don['’]?t|did\s+not|didn['’]?t|never)\s+
         | {_TO_YOU}not\s+ | \b(?:like|want|ask)\s+you\s+not\s+to\s+ | \byou\s+(?:shouldn|mustn)['’]?t\s+){_KEEP}{_KEPT}
    | {_TO_YOU}{_GONE}""",
    re.IGNORECASE | re.MULTILINE | re.VERBOSE,
)
"""The user asks not to: obeyed before anything else."""


def in_first_person(text: str) -> bool:
    """Whether a statement slipped into the user's own voice, outside quotation marks."""
    return bool(_SPEAKER.search(_QUOTED.sub("", text)))


_GENDERED = re.compile(r"\b(?:he|she|his|her|hers|him|himself|herself)\b", re.IGNORECASE)
_PLURAL = {"is": "are", "was": "were", "has": "have", "does": "do", "'s": "'re"}
_PLAIN = {"he": "they", "she": "they", "his": "their", "hers": "theirs", "her": "their", "him": "them"} | {
    "himself": "themself",
    "herself": "themself",
}


def without_guessed_gender(text: str, quote: str) -> str:
    """``text`` with *they* for *he* or *she*, where the quote has no such word: the user did not say which one they are."""
    if _GENDERED.search(quote):
        return text
    made = re.sub(r"\b(he|she)(?:(\s)(is|was|has|does)\b|('s)\b)", _they_verb, text, flags=re.IGNORECASE)
    return _GENDERED.sub(lambda m: _PLAIN[m.group().lower()], made)


def _they_verb(match: re.Match[str]) -> str:
    space, verb, short = match.group(2), match.group(3), match.group(4)
    return f"they{space}{_PLURAL[verb.lower()]}" if verb else f"they{_PLURAL[short]}"


def hedged(quote: str) -> bool:
    """Whether the user was unsure in these words."""
    return bool(_HEDGE.search(quote))


def score(component: Component) -> Evidence:
    """The evidence of one grounded sentence, from the user's words behind it.

    ============ ======================================= ============================== ==================================
    dimension    2                                       1                              0
    ============ ======================================= ============================== ==================================
    relevance    the words speak of the user's own life  the user speaks only as asker  no first person
    specificity  a number, date or name                  an event, or 3 content words   neither
    explicitness first person in a main clause           in passing or in a question    no first person, or only as asker
    ============ ======================================= ============================== ==================================

    Of somebody who only asks, nothing is more specific than 1, so that asking alone never adds up to more than DROP.
    """
    quote, text = component.quote, component.text
    rest = _REQUEST.sub(" ", quote)
    personal = bool(_FIRST_PERSON.search(rest))
    speaks = personal or bool(_FIRST_PERSON.search(quote))
    relevance = 2 if personal else 1 if speaks else 0
    if numbers(text) - _VAGUE or names(text):
        specificity = 2
    elif _EVENT.search(text.removeprefix("The user is").removeprefix("The user has")) or len(stems(text)) >= CONTENT:
        specificity = 1
    else:
        specificity = 0
    specificity = specificity if personal else min(specificity, 1)
    main = personal and not quote.rstrip().endswith("?") and bool(_MAIN_CLAUSE.search(rest))
    explicitness = 2 if main else 1 if personal else 0
    return Evidence(relevance, specificity, explicitness, (quote,))


def session_evidence(scores: Iterable[Evidence], turns: Sequence[Turn]) -> Evidence:
    """A session's evidence: the maximum in each dimension over its grounded sentences, and what overrules it."""
    each = tuple(scores)
    said = "\n".join(t.text for t in turns if t.role == "user")
    basis = tuple(dict.fromkeys(quote for e in each for quote in e.basis))
    override = "remember" if REMEMBER.search(said) else "stakes" if any(_STAKES.search(q) for q in basis) else ""
    if forbidden(turns):
        override = "forget"
    return Evidence(
        relevance=max((e.relevance for e in each), default=0),
        specificity=max((e.specificity for e in each), default=0),
        explicitness=max((e.explicitness for e in each), default=0),
        basis=basis,
        override=override,
    )


def forbidden(turns: Sequence[Turn]) -> bool:
    """Whether the user asked that this be not remembered."""
    return any(t.role == "user" and DO_NOT_REMEMBER.search(t.text) for t in turns)
