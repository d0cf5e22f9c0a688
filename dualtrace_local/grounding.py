"""Which of the user's words a written sentence rests on, what it may not add, and the evidence scores that follow from those words.

A model may phrase, but it may not invent: every number and every name of a written sentence must be among the user's own words, and
enough of its content words must stand together in one of the user's sentences, which becomes its quote. The three evidence scores
(paper section 3.2) are then worked out from the quotes by the table of ``score``; they never come from a small model's opinion.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
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
        "with would you your yours s t ve re m d ll "
    ).split()
)
"""Words that say nothing about what a sentence is about."""

_SMALL = "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen"
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
_ORDINALS = "zeroth first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth"
NUMBER_WORDS = (
    {word: str(i) for i, word in enumerate(_SMALL.split())}
    | {word: str(20 + 10 * i) for i, word in enumerate(_TENS.split())}
    | {word: str(i) for i, word in enumerate(_ORDINALS.split())}
    | {
        "hundred": "100",
        "thousand": "1000",
        "dozen": "12",
        "twice": "2",
        "couple": "2",
        "half": "0.5",
        "single": "1",
        "once": "1",
    }
)
_VAGUE = {"1", "0.5"}
_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)?|\d+(?:[.,:]\d+)*", re.UNICODE)
_NUMBER = re.compile(r"\d+(?:[.,:]\d+)*")
_NAME = re.compile(r"\b[^\W\d_a-z][\w'’-]*", re.UNICODE)
_SPLIT = re.compile(r"(?<=[.!?…。！？])[\"')\]]*\s+|\n+")

CONTENT = 3
"""Content words from which a statement is about something concrete."""

MINIMUM_SHARE = 0.34
"""Share of a written sentence's content words that its quote must hold. Chosen on the development rows."""


@cache
def _stemmer() -> Any:
    import Stemmer

    return Stemmer.Stemmer("english")


def numbers(text: str) -> frozenset[str]:
    """All numbers of ``text`` in one spelling: ``twelve`` and ``12`` are the same, ``1,200`` is ``1200``, ``6:45`` stays."""
    found = {_spelled(m.group()) for m in _NUMBER.finditer(text)}
    words = [w.lower() for w in re.findall(r"[A-Za-z]+", text)]
    found |= {NUMBER_WORDS[w] for w in words if w in NUMBER_WORDS}
    tens = set(_TENS.split())
    pairs = [(a, b) for a, b in pairwise(words) if a in tens and b in NUMBER_WORDS]
    found |= {str(int(NUMBER_WORDS[a]) + int(NUMBER_WORDS[b])) for a, b in pairs if NUMBER_WORDS[b] in set("123456789")}
    return frozenset(found)


def _spelled(number: str) -> str:
    if re.fullmatch(r"\d{1,3}(,\d{3})+(\.\d+)?", number):
        number = number.replace(",", "")
    number = number.rstrip(".,:")
    return (
        re.sub(r"(\.\d*?)0+$", r"\1", number).rstrip(".") if "." in number else (number.lstrip("0") or "0") if ":" not in number else number
    )


def names(text: str) -> frozenset[str]:
    """Capitalised words of ``text``, lower-cased and without a possessive ending, but for the first word and ``I``."""
    found: set[str] = set()
    for match in _NAME.finditer(text):
        word = re.sub(r"['’]s?$", "", match.group().replace(".", ""))
        first = not text[: match.start()].strip(" \"'(") or text[: match.start()].rstrip()[-1:] in ".!?"
        if not first and word.split("'")[0].split("’")[0] not in ("I", ""):
            found.add(word.lower())
    return frozenset(found)


def stems(text: str) -> frozenset[str]:
    """Stems of the content words of ``text``; numbers in one spelling."""
    found: list[str] = []
    for match in _WORD.finditer(text.lower()):
        word = match.group().replace("’", "'")
        word = word.removesuffix("'s").split("'")[0]
        if word in STOP_WORDS or (len(word) == 1 and not word.isdigit()):
            continue
        found.append(_spelled(word) if word[0].isdigit() else NUMBER_WORDS.get(word, word))
    return frozenset(_stemmer().stemWords(found))


@dataclass(frozen=True)
class Said:
    """One sentence that was said: its words, the position and role of its turn."""

    text: str
    turn: int
    role: str
    stems: frozenset[str]


@dataclass(frozen=True)
class Refused:
    """Why a written sentence is not kept. ``reason`` holds no chat text."""

    reason: str


class Ground:
    """The words of one session (or statement) that a written sentence may rest on."""

    def __init__(self, turns: Sequence[Turn]) -> None:
        self.said = tuple(
            Said(piece.strip(), position, turn.role, stems(piece))
            for position, turn in enumerate(turns)
            for piece in _SPLIT.split(turn.text)
            if piece.strip()
        )
        mine = [s for s in self.said if s.role == "user"]
        self._numbers = frozenset().union(*(numbers(s.text) for s in mine))
        self._words = frozenset(w.lower().removesuffix("'s") for s in mine for w in _WORD.findall(s.text.replace("’", "'")))

    def invented(self, text: str) -> str:
        """What ``text`` holds that the user never said: ``a number``, ``a name``, or empty. ``one`` is a pronoun too often to count."""
        if numbers(text) - self._numbers - _VAGUE:
            return "a number"
        for name in names(text):
            if not all(self._knows(part) for part in re.split(r"[-']", name) if part):
                return "a name"
        return ""

    def _knows(self, name: str) -> bool:
        shortest = 4
        return name in self._words or any(
            len(w) >= shortest and len(name) >= shortest and (w.startswith(name[:-1]) or name.startswith(w)) for w in self._words
        )

    def component(self, text: str) -> Component | Refused:
        """``text`` with the user's sentence it rests on, or why it may not be kept."""
        if invention := self.invented(text):
            return Refused(f"{invention} that the user did not say")
        wanted = stems(text)
        if not wanted:
            return Refused("no content")
        figures = numbers(text)
        best = max(self.said, key=lambda s: (self._share(wanted, figures, s), s.role == "user", -s.turn), default=None)
        if best is None or self._share(wanted, figures, best) < MINIMUM_SHARE:
            return Refused("no words of the user behind it")
        if best.role != "user":
            return Refused("said by somebody else than the user")
        return Component(text=text, quote=best.text, turn=best.turn, hedged=hedged(best.text))

    @staticmethod
    def _share(wanted: frozenset[str], figures: frozenset[str], said: Said) -> float:
        """Share of ``wanted`` in the sentence; a number counts three times, since it is what must not be bound to the wrong thing."""
        shared = wanted & said.stems
        weight = len(shared) + 2 * len(figures & numbers(said.text))
        return weight / (len(wanted) + 2 * len(figures))


# ------------------------------------------------------------------------------------------------- evidence scores

_FIRST_PERSON = re.compile(
    r"\b(?:I|me|my|mine|myself|we|our|ours|us)\b(?!\.)|\bI['’](?:m|ve|d|ll)\b|\bwe['’](?:re|ve|d|ll)\b", re.IGNORECASE
)
_REQUEST = re.compile(
    r"""\b(?:
    (?:can|could|would|will)\s+you\b[^,.;!?]*?\b(?:me|us|my)\b
    | (?:help|give|tell|show|teach|write|send|let|suggest|recommend|explain|provide|make|get)(?:\s+to)?\s+(?:me|us)\b
    | I(?:['’]m|\s+am)?\s+(?:also\s+|just\s+|really\s+)?(?:looking\s+for|wondering|curious|asking|interested\s+in\s+(?:knowing|learning))
    | I(?:['’]d|\s+would)?\s+(?:also\s+|just\s+|really\s+)?(?:need|want|like|love|appreciate)\s+
      (?:you|to\s+(?:know|learn|ask|see|hear|understand)|some\b|a\s+list|help|advice|information)
    | (?:can|could|should|do|may|how\s+(?:do|can|should|would))\s+(?:I|we)\b
    | I\s+(?:think|guess|see|understand|agree|hope)\b
    | (?:in\s+)?my\s+(?:question|opinion|request|prompt|previous)\b
    )""",
    re.IGNORECASE | re.VERBOSE,
)
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
REMEMBER = re.compile(r"\b(?:please\s+)?(?:remember|keep in mind|make a note|note down|don['’]?t forget)\s+(?:that|this)\b", re.IGNORECASE)
"""The user asks to remember: overrides DROP (design section 5)."""
DO_NOT_REMEMBER = re.compile(
    r"\b(?:do not|don['’]?t|never|please forget|forget)\s+(?:remember|store|save|keep|record|note)?\s*(?:that|this|any of this|what i)\b",
    re.IGNORECASE,
)
"""The user asks not to: obeyed before anything else."""


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
    explicitness first person in a main clause           in passing or in a question    no first person
    ============ ======================================= ============================== ==================================
    """
    quote, text = component.quote, component.text
    rest = _REQUEST.sub(" ", quote)
    personal = bool(_FIRST_PERSON.search(rest))
    speaks = personal or bool(_FIRST_PERSON.search(quote))
    relevance = 2 if personal else 1 if speaks else 0
    if numbers(text) or names(text):
        specificity = 2
    elif _EVENT.search(text.removeprefix("The user is").removeprefix("The user has")) or len(stems(text)) >= CONTENT:
        specificity = 1
    else:
        specificity = 0
    main = personal and not quote.rstrip().endswith("?") and bool(_MAIN_CLAUSE.search(rest))
    explicitness = 2 if main else 1 if speaks else 0
    return Evidence(relevance, specificity, explicitness, (quote,))


def session_evidence(scores: Iterable[Evidence], turns: Sequence[Turn]) -> Evidence:
    """A session's evidence: the maximum in each dimension over its grounded sentences, and what overrules it."""
    each = tuple(scores)
    said = " ".join(t.text for t in turns if t.role == "user")
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
