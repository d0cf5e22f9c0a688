"""Records of recall and judging: what was delivered, answered and decided."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from .taught import Component, Turn


class State(StrEnum):
    """What was delivered to the reader: A fact and scene, B fact only (or verbatim rounds), C nothing (paper section 3.4)."""

    A = "A"
    B = "B"
    C = "C"


CONFIDENCE = {State.A: "high", State.B: "medium", State.C: "none"}
"""Confidence said with an answer, by state (paper section 3.4)."""

ABSTENTION = "I don't have that information stored."
"""The exact answer in state C."""


@dataclass(frozen=True)
class Item:
    """One thing shown to the reader. ``handle`` is its short name in the prompt (``m1``); ``score`` is the fused rank score.

    ``similarity`` is the cosine with the question, -1 to 1, and 1 where nothing was ranked. ``turns`` make it a verbatim round, shortened:
    no anchor, fact or scene then, but for a memory that comes together with the round it rests on, ``round_id``. ``quote`` is what a
    control shows in the scene's place: words of the user's. ``standing`` says where a value stands among others for the same thing.
    """

    handle: str
    memory_id: str
    session_key: str
    date: datetime | None
    anchor: str
    fact: str
    scene: str = ""
    components: tuple[Component, ...] = ()
    turns: tuple[Turn, ...] = ()
    quote: str = ""
    confidence: str = "HIGH"
    similarity: float = 0.0
    score: float = 0.0
    round_id: str = ""
    standing: str = ""


@dataclass(frozen=True)
class Delivered:
    """What search hands to recall: the items in date order, and the state that follows from them.

    ``candidates`` visible keys were ranked, ``best`` is the highest similarity among them, delivered or not. ``left_out`` rounds were meant
    to be read and had no room. ``imagined``: the reader gets a scene that is made for the question; the state stays that of what is stored.
    ``merged``: memories come with their rounds, and the reader is given what follows from dates, ages and counts.
    """

    question_id: str
    condition: str
    state: State
    items: tuple[Item, ...]
    candidates: int = 0
    best: float = 0.0
    left_out: int = 0
    imagined: bool = False
    merged: bool = False


@dataclass(frozen=True)
class Source:
    """A memory that the reader used, or a verbatim round: then ``said_by`` is user, assistant or both, and ``memory_id`` the round's."""

    memory_id: str
    session_id: str
    date: str
    anchor: str
    said_by: str = ""


@dataclass(frozen=True)
class Answer:
    """One answered question. ``reason`` says why code abstained, empty otherwise; ``sources`` are the items used."""

    question_id: str
    question: str
    condition: str
    state: State
    text: str
    abstained: bool
    reason: str = ""
    notes: str = ""
    sources: tuple[Source, ...] = ()
    delivered: tuple[str, ...] = ()
    """Ids of the memories or rounds shown to the reader."""
    delivered_sessions: tuple[str, ...] = ()
    """Keys of their sessions, each once."""
    ranked: tuple[str, ...] = ()
    """The same keys, best first; empty where nothing was ranked."""
    seen: str = ""
    """The delivered items as the reader saw them, one JSON object a line."""
    context_tokens: int = 0
    left_out: int = 0
    """Rounds for which there was no room, where all of them were meant to be read."""
    worked: str = ""
    """What code worked out from the dates and ages of the items and showed to the reader, one fact a line."""
    counted: str = ""
    """What code counted or added up from the items that the reader marked; empty where the question asks for neither."""
    scene: str = ""
    """A scene that was made at recall, where the condition has one made."""
    asked_on: str = ""
    """The question's date, ``YYYY-MM-DD HH:MM``, so that an answer line holds all that its prompt needed."""

    @property
    def confidence(self) -> str:
        """``high``, ``medium`` or ``none``."""
        return "none" if self.abstained else CONFIDENCE[self.state]


@dataclass(frozen=True)
class Verdict:
    """``correct`` None is no verdict (``reason`` says why), never counted as wrong; ``by`` is the judge model's name, or ``rule``."""

    question_id: str
    condition: str
    correct: bool | None
    by: str
    reason: str = ""
