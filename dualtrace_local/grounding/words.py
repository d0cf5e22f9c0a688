"""Numbers, names, content words and sentences of a text, each in one spelling however it was typed."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import pairwise
from typing import Any

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
VAGUE = frozenset(("1", "0.5"))
"""Numbers that are words of speech too often to count: *one* of them, *once*, *half*."""
_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)?|\d+(?:[.,:]\d+)*", re.UNICODE)
_NUMBER = re.compile(r"\d+(?:[.,:]\d+)*")
_NAME = re.compile(r"\b[^\W\d_a-z][\w'’-]*", re.UNICODE)
_TITLE = re.compile(r"\b(?:Dr|Mrs?|Ms|Prof|St|Mt)\.$")
TOKEN = re.compile(r"[^\W_]+")
"""A run of letters or digits."""
_UNSPACED = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]")
_SPLIT = re.compile(r"(?<=[.!?…])(?<!\bDr\.)(?<!\bMr\.)(?<!\bMrs\.)(?<!\bMs\.)(?<!\bProf\.)(?<!\bSt\.)[\"')\]]*\s+|(?<=[。！？])\s*|\n+")

LONGEST_QUOTE = 600
"""Characters. What has no sentence ends (dictation, pasted text) is cut into such pieces, so that a quote stays one."""


@cache
def _stemmer() -> Any:
    import Stemmer

    return Stemmer.Stemmer("english")


def one_form(text: str) -> str:
    """Composed letters, plain digits of all scripts, one apostrophe: the same text however it was typed."""
    text = unicodedata.normalize("NFKC", text).replace("’", "'")
    return text if text.isascii() else "".join(str(unicodedata.decimal(c, c)) for c in text)


def numbers(text: str) -> frozenset[str]:
    """All numbers of ``text`` in one spelling: ``twelve`` and ``12`` are the same, ``1,200`` is ``1200``, ``6:45`` stays."""
    text = one_form(text)
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
    text = one_form(text)
    found: set[str] = set()
    for match in _NAME.finditer(text):
        word = re.sub(r"'s?$", "", match.group())
        before = text[max(0, match.start() - 12) : match.start()].rstrip(" \n\"'“‘(")
        first = before[-1:] in ".!?" and not _TITLE.search(before)
        if not first and word[0].isupper() and word.split("'")[0] not in ("I", ""):
            found.add(word.lower())
    return frozenset(found)


def figures_and_names(text: str) -> frozenset[str]:
    """The numbers and names of ``text``, without what is too often a mere word."""
    return (numbers(text) - VAGUE) | names(text)


def stems(text: str) -> frozenset[str]:
    """Stems of the content words of ``text``; numbers in one spelling; scripts without spaces as pairs of characters."""
    found: list[str] = []
    for match in _WORD.finditer(one_form(text).lower()):
        word = max(match.group().removesuffix("'s").split("'"), key=len)
        if word[0].isdigit():
            found += _spelled(word)
        elif _UNSPACED.search(word):
            found += pairs(word)
        elif word not in STOP_WORDS and len(word) > 1 and not match.group().endswith("n't"):
            found.append(NUMBER_WORDS.get(word, word))
    return frozenset(_stemmer().stemWords(found))


def pairs(word: str) -> list[str]:
    """The pairs of neighbouring characters of ``word``; of a single one, itself."""
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
    for match in _MEASURE.finditer(_DAY_OF_MONTH.sub(r"\2 \1", one_form(text).lower())):
        unit = match.group(2) or ""
        found |= {(number, _UNITS.get(unit, unit)) for number in numbers(match.group(1))}
    return frozenset(found)
