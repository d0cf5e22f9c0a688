"""What a sentence says about the user: the evidence scores by a published table, hedges, stakes, and orders to remember or not."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from dualtrace_local.records import Component, Evidence, Turn

from .words import figures_and_names, stems

CONTENT = 3
"""Content words from which a statement is about something concrete."""

TOP, HIGHEST = 2, 6
"""Highest score in each dimension of the evidence, and of all three."""

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
    r"\b(?:maybe|perhaps|might|possibly|probably|not sure|unsure|i guess|i suppose|i think|i believe|considering|"
    r"(?<!me )thinking (?:of|about)|roughly|if i remember|i may|could be|or something)\b",
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


_ASKS = re.compile(
    r"""\s*[,;–—-]?\s*(?:\b(?:and|but|so|or)\s+)?\b(?:(?:I['’]m|I|they['’]re|they|is|was|are|were|am)\s+(?:(?:am|was|were|are|also)\s+)*wondering
    | I\s+wonder | (?:do|does|have|has|did)\s+you\b | (?:can|could|would|will)\s+you\b
    | any\s+(?:\w+\s+)?(?:tips|advice|suggestions|ideas|recommendations|thoughts))\b.*""",
    re.IGNORECASE | re.VERBOSE | re.DOTALL,
)
_LEANING = re.compile(
    r"""\b(?:I|we)(?:['’](?:m|ve|re))?\s+
      (?:(?:also|just|really|always|usually|often|still|never|do|don['’]?t|didn['’]?t|absolutely|particularly|have|had|been|am|are|was|were)\s+){0,3}
      (?:(?:like|love|hate|prefer|avoid|dislike|own)\b(?!\s+to\s+(?:know|learn|hear|see|get|ask)\b|\s+(?:th(?:e|at|is|ose|ese)|your|it)\b)
        | (?:loved|enjoy(?:ed|ing)?|hated|preferred|avoid(?:ed|ing)|disliked|owned)\b
        | (?:(?:a\s+)?(?:\w+\s+)?fans?\s+of|tired\s+of|fed\s+up\s+with|fond\s+of|(?:not\s+)?keen\s+on)\b
        | (?:allergic|vegan|vegetarian|obsessed|passionate|into)\b
        | (?:can['’]?t|cannot|can\s+not|couldn['’]?t)\s+(?:stand|bear)\b)
    | \b(?:I|we)(?:['’]ve|\s+have)\s+(?:(?:also|just|really|recently|always)\s+)*been\s+(?!wondering|thinking|considering|meaning)\w+ing\b
    | \bmy\s+(?:\w+\s+)?favou?rites?\b | \bmy\s+(?:new|old|current|own|beloved|trusty)\s+\w+ | ^as\s+an?\s+[\w\s-]{3,40},
    """,
    re.IGNORECASE | re.VERBOSE,
)
_LEAD = re.compile(r"^(?:(?:oh|and|so|also|well|anyway|actually|now|by the way|speaking of which|on that note)\b[,\s]+)+", re.IGNORECASE)
_TO_ASSISTANT = re.compile(r"\b(?:you|your|yours)\b", re.IGNORECASE)


def statement_of(sentence: str) -> str:
    """``sentence`` without filler words before it and the request at its end: what is told, or all of it where it only asks."""
    told = _ASKS.sub("", sentence)
    told = f"{told}." if told != sentence and len(stems(told)) >= CONTENT else sentence
    bare = _LEAD.sub("", told)
    return told if bare == told else bare[:1].upper() + bare[1:]


def leaning(statement: str) -> bool:
    """Whether a statement of the user's tells, be it in passing, what they like, avoid, own, are or keep doing.

    Such words decide what to suggest to somebody, and stand mostly beside a request ("like my new power bank", "as an aspiring comedian").
    What they like of an answer ("I like the idea") is not meant. Chosen on the development rows.
    """
    return bool(_LEANING.search(statement))


def addresses_somebody(text: str) -> bool:
    """Whether a statement speaks to the assistant, outside quotation marks."""
    return bool(_TO_ASSISTANT.search(_QUOTED.sub("", text)))


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


def details_of(components: Iterable[Component]) -> frozenset[str]:
    """What makes components worth remembering: their numbers, names and spoken dates."""
    found: set[str] = set()
    for c in components:
        found |= figures_and_names(c.text) | {e.spoken.lower() for e in c.events}
    return frozenset(found)


ALIKE = 0.6
"""Share of content words that two statements about the same words of the user have in common when one repeats the other."""


def without_repetitions(components: Sequence[Component]) -> list[Component]:
    """The components but for those that tell, of the same words of the user, nothing that a fuller one does not."""
    return [c for n, c in enumerate(components) if not any(_repeats(c, n, other, m) for m, other in enumerate(components) if m != n)]


def _repeats(one: Component, at: int, other: Component, other_at: int) -> bool:
    if one.quote != other.quote or details_of([one]) - details_of([other]):
        return False
    mine, theirs = stems(one.text), stems(other.text)
    alike = len(mine & theirs) >= ALIKE * min(len(mine), len(theirs))
    return alike and (len(mine), at) < (len(theirs), other_at)


def hedged(quote: str) -> bool:
    """Whether the user was unsure in these words."""
    return bool(_HEDGE.search(quote))


def at_stake(quote: str) -> bool:
    """Whether these words of the user's have real consequences: codes, medicine, safety."""
    return bool(_STAKES.search(quote))


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
    if figures_and_names(text):
        specificity = 2
    elif _EVENT.search(text.removeprefix("The user is").removeprefix("The user has")) or len(stems(text)) >= CONTENT:
        specificity = 1
    else:
        specificity = 0
    specificity = specificity if personal else min(specificity, 1)
    main = personal and not quote.rstrip().endswith("?") and bool(_MAIN_CLAUSE.search(rest))
    explicitness = 2 if main else 1 if personal else 0
    return Evidence(relevance, specificity, explicitness, (quote,))


def session_evidence(scores: Iterable[Evidence], turns: Sequence[Turn], *, ordered: bool = False) -> Evidence:
    """A session's evidence: the maximum in each dimension over its grounded sentences, and what overrules it.

    ``ordered``: the owner wants it remembered, as if they had said so in it.
    """
    each = tuple(scores)
    said = "\n".join(t.text for t in turns if t.role == "user")
    basis = tuple(dict.fromkeys(quote for e in each for quote in e.basis))
    override = "remember" if ordered or REMEMBER.search(said) else "stakes" if any(map(at_stake, basis)) else ""
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
