"""Records of teaching and of the engines, and how identities are made from them.

Dates are naive local datetimes as the source gives them, never the machine's clock.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Generator
from dataclasses import dataclass, field, fields, is_dataclass
from datetime import datetime
from enum import StrEnum
from functools import cached_property
from typing import Any, TypeVar

from pydantic import BaseModel

T = TypeVar("T")


def digest_of(*parts: object, length: int = 32) -> str:
    """Hex SHA-256 over the canonical JSON of ``parts``, cut to ``length`` characters.

    Used for every identity (session key, memory id, prompt digest), so that an identity is the same on every machine.
    """
    text = json.dumps(parts, ensure_ascii=False, separators=(",", ":"), sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:length]


def plain(value: Any) -> Any:
    """``value`` as JSON types: records become dicts, enums their value, dates ISO text, tuples lists."""
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if isinstance(value, StrEnum):
        return value.value
    if isinstance(value, datetime):
        return value.isoformat(timespec="minutes")
    return value


@dataclass(frozen=True)
class Scope:
    """Who and what a memory belongs to. A hard filter in every search."""

    user: str = "default"
    project: str = "default"


@dataclass(frozen=True)
class Turn:
    """One message. ``role`` is ``user``, ``assistant`` or whatever the source said; ``name`` is the speaker's where several are users."""

    role: str
    text: str
    name: str = ""


@dataclass(frozen=True)
class Session:
    """One dated conversation. ``source`` and ``record`` (1-based) say where it came from.

    ``external_id`` is for people only (the benchmark's ``answer_`` is cut off by the reader); it reaches no model, path or SQL.
    """

    turns: tuple[Turn, ...]
    date: datetime | None
    scope: Scope = Scope()
    external_id: str = ""
    source: str = ""
    record: int = 0

    @cached_property
    def key(self) -> str:
        """32 hex characters: hash of (masked) turns, date and scope. The same text under two dates is two sessions."""
        turns = [(t.role, t.text) for t in self.turns]
        return digest_of("session", turns, self.day_and_time, self.scope.user, self.scope.project)

    @property
    def day_and_time(self) -> str:
        """``YYYY-MM-DD HH:MM``, or empty when the session is undated."""
        return self.date.strftime("%Y-%m-%d %H:%M") if self.date else ""

    @property
    def empty(self) -> bool:
        """True when no turn holds anything but white space."""
        return not any(t.text.strip() for t in self.turns)


@dataclass(frozen=True)
class Question:
    """What a reader may know of a question: text, date, and which sessions it may see (``haystack``: session keys).

    The benchmark's id marks abstention by a suffix and its kind hints at the answer, so the id stays in run files and
    never enters a prompt, and the kind is part of ``Gold``.
    """

    id: str
    text: str
    date: datetime | None
    haystack: tuple[str, ...] = ()


@dataclass(frozen=True)
class Gold:
    """What only judge and report may know. ``answer`` is kept as the file has it (a number stays a number).

    ``evidence`` holds 0-based positions of the evidence sessions in the entry, ``evidence_turns`` (session, turn) positions.
    """

    question_id: str
    answer: Any
    kind: str
    abstention: bool
    evidence: tuple[int, ...] = ()
    evidence_turns: tuple[tuple[int, int], ...] = ()

    @property
    def answer_text(self) -> str:
        """The gold answer as text, for the judge's prompt and reports."""
        return self.answer if isinstance(self.answer, str) else json.dumps(self.answer, ensure_ascii=False)


@dataclass(frozen=True)
class Entry:
    """One record of a source: its sessions in file order and, in a benchmark, a question with its gold.

    ``notes`` are things that were repaired in reading (a lone surrogate), one line each, shown on stderr. ``left_out`` holds one reason for
    each message of an export that is not taught.
    """

    source: str
    record: int
    sessions: tuple[Session, ...]
    question: Question | None = None
    gold: Gold | None = None
    notes: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True)
class Rejected:
    """A record that could not be read. ``str()`` is the line for stderr. Counts as one failed session."""

    source: str
    record: int
    reason: str

    def __str__(self) -> str:
        return f"{self.source}:{self.record}: {self.reason}"


@dataclass(frozen=True)
class Request:
    """One constrained generation.

    ``kind`` names the purpose for the token table (``facts``, ``gate``, ``anchor``, ``scene``, ``read``, ``judge``).
    ``system`` is constant text; ``user`` is one message: what is shared comes first, what varies last.
    ``output`` is a pydantic type with ``extra="forbid"``. ``max_tokens`` is above the worst case of that type.
    """

    kind: str
    system: str
    user: str
    output: type[BaseModel]
    max_tokens: int
    temperature: float = 0.0
    seed: int = 0


class Finish(StrEnum):
    """Why a completion ended. Only ``STOP`` may be parsed."""

    STOP = "stop"
    LENGTH = "length"
    REPETITION = "repetition"
    ERROR = "error"


@dataclass(frozen=True)
class Completion:
    """The raw reply to one request, with token counts. ``cached_tokens`` is the part of the prompt not computed again."""

    text: str
    finish: Finish
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0


Flow = Generator[Request, Completion, T]
"""The logic of one item: yields requests, is sent completions, returns its result."""


@dataclass(frozen=True)
class Usage:
    """Calls and tokens, of one flow or summed over many."""

    calls: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))


@dataclass(frozen=True)
class Done:
    """A finished flow: its key, its result, and what it used by kind of request."""

    key: str
    value: Any
    usage: dict[str, Usage] = field(default_factory=dict)


@dataclass(frozen=True)
class Failure:
    """A flow that could not finish. ``raw`` is the last completion's text; it goes to a private file, never to a log."""

    key: str
    reason: str
    raw: str = ""
    usage: dict[str, Usage] = field(default_factory=dict)


class Tier(StrEnum):
    """What the gate decided: keep nothing, a fact, or a fact and a scene (personal domain)."""

    DROP = "DROP"
    STREAMLINED = "STREAMLINED"
    FULL = "FULL"


@dataclass(frozen=True)
class Evidence:
    """The gate's result: three scores of 0-2 (paper section 3.2) and the user's words they rest on."""

    relevance: int = 0
    specificity: int = 0
    explicitness: int = 0
    basis: tuple[str, ...] = ()
    override: str = ""
    """Empty, or ``remember`` or ``forget``, which overrule the total, or ``stakes``, which is recorded for conditions that route on it."""

    @property
    def total(self) -> int:
        """0-6."""
        return self.relevance + self.specificity + self.explicitness


@dataclass(frozen=True)
class EventDate:
    """A date in what was said. ``day`` is ISO ``YYYY-MM-DD`` (``end`` too for a range), or empty when only the words are known."""

    spoken: str
    day: str = ""
    end: str = ""
    approximate: bool = False


OWNER = "owner"
"""Who said a sentence that the owner corrected."""

ACTIVE, VERIFIED, RETRACTED = "active", "verified", "retracted"
"""Status of a memory: as the gate let it in; the owner says it is right; in no answer any more."""


@dataclass(frozen=True)
class Component:
    """One third-person sentence of a fact trace and what it rests on.

    ``quote`` is the user's own words, ``turn`` the 0-based position of their turn, ``said_by`` that turn's role,
    ``hedged`` whether the user was unsure. Of a correction by the owner ``said_by`` is ``OWNER`` and ``turn`` -1.
    """

    text: str
    quote: str
    turn: int
    said_by: str = "user"
    hedged: bool = False
    events: tuple[EventDate, ...] = ()


@dataclass(frozen=True)
class Memory:
    """A fact trace and, when ``scene`` is not empty, the scene trace linked to it.

    ``ordinal`` is its 0-based place in its session; ``info_type`` is discrete, compositional or relational;
    ``scene_refused`` says why there is no scene although the tier asked for one. ``version`` counts the owner's changes, 0 is as
    taught; ``status`` is ``ACTIVE``, ``VERIFIED`` or ``RETRACTED``.
    """

    session_key: str
    ordinal: int
    scope: Scope
    date: datetime | None
    anchor: str
    info_type: str
    category: str
    tier: Tier
    evidence: Evidence
    components: tuple[Component, ...]
    scene: str = ""
    scene_refused: str = ""
    status: str = ACTIVE
    version: int = 0

    @cached_property
    def id(self) -> str:
        """32 hex characters: hash of session key and ordinal."""
        return digest_of("memory", self.session_key, self.ordinal)

    @property
    def fact(self) -> str:
        """The components as one text."""
        return " ".join(c.text for c in self.components)

    @property
    def confidence(self) -> str:
        """``LOW`` when the user hedged every component, else ``HIGH``."""
        return "LOW" if self.components and all(c.hedged for c in self.components) else "HIGH"


@dataclass(frozen=True)
class Round:
    """A user turn with the assistant turns that answer it, verbatim (masked). ``ordinal`` is its place in the session."""

    session_key: str
    ordinal: int
    scope: Scope
    date: datetime | None
    user: str
    assistant: str

    @cached_property
    def id(self) -> str:
        """32 hex characters: hash of session key and ordinal."""
        return digest_of("round", self.session_key, self.ordinal)

    @property
    def text(self) -> str:
        """Both sides, as they are searched and shown."""
        return "\n".join(s for s in (self.user, self.assistant) if s)


@dataclass(frozen=True)
class Encoded:
    """What teaching made of one session. ``tier`` is the highest of its memories', or DROP."""

    session: Session
    tier: Tier
    evidence: Evidence
    memories: tuple[Memory, ...] = ()
    rounds: tuple[Round, ...] = ()
    dropped_sentences: tuple[str, ...] = ()
    """Reasons (no text) why written sentences were not kept: ``number not said``, ``no user words`` ..."""
