"""The personal domain: the requests that write a person's memories, their types, and the shape of a scene.

``Personal`` builds requests and judges what comes back; it holds no state but the store's secret and the model's budgets, and calls
nothing. The order of a prompt is always: constant system text, the session, the task; so requests about one session share a prefix.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from itertools import accumulate, pairwise
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, create_model

from dualtrace_local.config import Budgets, GateWay, TeachSettings
from dualtrace_local.dates import find_events
from dualtrace_local.grounding import REMEMBER, Ground, Said, hedged, numbers, statement_of, stems
from dualtrace_local.records import Component, EventDate, Evidence, Request, Round, Session, Tier, Turn, digest_of

from . import prompts

FOOTER = "(Mnemonic depiction only. Not evidence.)"
"""How every scene ends (paper section 3.3)."""

DROP_UP_TO = 2
"""Highest evidence total that is not kept (paper section 3.2)."""

SHORT_TURN = 80
"""Characters up to which an assistant turn goes into the excerpt whole: it costs little and may be what "yes" answers."""

MAX_GROUPS = 4
SENTENCES_A_GROUP = 6
OVERLAP = 160
"""Characters that two parts of one very long turn share, so that a sentence on the cut stands whole in one of them."""

GROUP_DISTANCE = 0.65
"""Average-linkage cut between the topics of one session, cosine distance. Measured with all-MiniLM-L6-v2."""

CATEGORIES = ("home", "health", "work", "education", "family", "friends", "pets", "hobby", "sport", "travel", "food", "money", "vehicle",
              "shopping", "technology", "music and films", "books", "garden", "plans", "identity")  # fmt: skip

Embed = Callable[[Sequence[str]], NDArray[np.float32]]
"""Texts to normalised vectors, shape [n, d]."""


class _Output(BaseModel):
    model_config = ConfigDict(extra="forbid")


LONGEST_SENTENCE = 240
LONGEST_MOMENT = 240
TITLE = r"(Dr|Mr|Mrs|Ms|Prof|St)\. "
"""Short titles, whose point does not end a sentence."""

Sentence = Annotated[str, StringConstraints(pattern=rf'^The user([^"\\.!?\n]|\.[0-9a-z]|{TITLE}){{8,{LONGEST_SENTENCE}}}\.$')]
"""One statement about the user; a point inside only before a digit or small letter. At its longest it was cut: see ``was_cut``."""
Slug = Annotated[str, StringConstraints(pattern=r"^[a-z]{3,14}(-[a-z0-9]{2,14}){1,2}$")]
Words = Annotated[str, StringConstraints(pattern=r"^[a-z]{3,14}([ -][a-z0-9]{2,14}){1,2}$")]
"""Two or three words; small models run them together when the space is forbidden. ``slug`` joins them."""
Moment = Annotated[str, StringConstraints(pattern=rf'^The user ([^"\\.!?\n]|{TITLE}){{30,{LONGEST_MOMENT}}}\.$')]
Depiction = Annotated[str, StringConstraints(pattern=r'^Picture: [^"\\\n]{40,700}\.$')]
Score = Literal[0, 1, 2]


class Anchor(_Output):
    """What a memory is about."""

    topic: Words

    @property
    def slug(self) -> str:
        """The anchor: the words joined by hyphens."""
        return self.topic.replace(" ", "-")


class Scene(_Output):
    """One imageable moment, without details: code adds those."""

    moment: Moment


class WholeScene(_Output):
    """A scene as bigger models write it, details and time included."""

    picture: Depiction


class Gate(_Output):
    """The paper's gate: the user's words first, then what they are worth."""

    disclosed: Annotated[str, StringConstraints(pattern=r'^[^"\\\n]{0,300}$')]
    relevance: Score
    specificity: Score
    explicitness: Score


class GroupedFacts(_Output):
    """Facts as bigger models write them: already in topics, one at least, since the gate comes before."""

    class Group(_Output):
        """One topic."""

        topic: Slug
        kind: Literal["discrete", "compositional", "relational"]
        category: Annotated[str, StringConstraints(pattern=r"^[a-z]{3,16}$")]
        facts: list[Sentence] = Field(min_length=1, max_length=6)

    groups: list[Group] = Field(min_length=1, max_length=MAX_GROUPS)


@cache
def facts_type(at_most: int, at_least: int = 0) -> type[BaseModel]:
    """A plain list of statements, the one shape that small models fill well."""
    return create_model(
        f"Facts{at_least}to{at_most}", __base__=_Output, facts=(list[Sentence], Field(min_length=at_least, max_length=at_most))
    )


@dataclass(frozen=True)
class Topic:
    """What code decides about a group of components when the model does not."""

    components: tuple[Component, ...]
    category: str
    info_type: str
    anchor: str = ""


@dataclass(frozen=True)
class Personal:
    """Requests and rules of the personal domain.

    ``count`` gives the tokens of a text for the encode model, ``secret`` is the store's, ``gate`` and ``budgets`` are the model's.
    ``ordered``: the owner gave the session to be remembered, whatever is in it.
    """

    secret: bytes
    count: Callable[[str], int]
    gate: GateWay = GateWay.FACTS_FIRST
    budgets: Budgets = Budgets()
    settings: TeachSettings = TeachSettings()
    ordered: bool = False

    # ------------------------------------------------------------------------------------------------ reading

    def excerpts(self, session: Session) -> tuple[str, ...]:
        """What the model reads of a session: one text, or several when it is longer than the budget.

        User turns go in whole, other roles and short assistant turns too; of longer ones the first ``assistant_chars`` characters,
        nothing where that is 0. A turn over the budget is cut into overlapping pieces, so nothing that was said is left out.
        """
        if not any(turn.role == "user" and turn.text.strip() for turn in session.turns):
            return ()
        pieces = [f"{turn.role}: {piece}" for turn in session.turns for piece in self._pieces(turn.role, self._shown(turn)) if piece]
        parts: list[list[str]] = [[]]
        used = 0
        for piece in pieces:
            size = self.count(piece) + 2
            if parts[-1] and used + size > self.budgets.excerpt:
                parts.append([])
                used = 0
            parts[-1].append(piece)
            used += size
        return tuple("\n".join(part) for part in parts if part)

    def _shown(self, turn: Turn) -> str:
        text = turn.text.strip()
        if turn.role == "assistant" and len(text) > max(SHORT_TURN, limit := self.settings.assistant_chars):
            return text[:limit].rstrip() + " …" if limit else ""
        return text

    def _pieces(self, role: str, text: str) -> list[str]:
        """``text`` in halves of halves until each is within the budget, every cut at a space near the middle and with some overlap."""
        if self.count(f"{role}: {text}") <= self.budgets.excerpt or len(text) < OVERLAP:
            return [text]
        middle = len(text) // 2
        space = text.rfind(" ", middle - len(text) // 8, middle)
        cut = space + 1 if space > 0 else middle
        start = cut - min(OVERLAP, len(text) // 8)
        space = text.find(" ", start, cut)
        return [*self._pieces(role, text[:cut].rstrip()), *self._pieces(role, text[space + 1 if space > 0 else start :])]

    def _request(self, kind: str, session: Session, excerpt: str, task: str, output: type[BaseModel], max_tokens: int) -> Request:
        date = f"{session.date:%Y-%m-%d} ({session.date:%A})" if session.date else "not known"
        shown = prompts.fill("session", date=date, session=prompts.fence(excerpt, self.secret, session.key))
        return Request(kind, prompts.template("system"), f"{shown}\n{task}", output, max_tokens, seed=self.settings.seed)

    def most_statements(self, excerpt: str) -> int:
        """How many statements a model may write about an excerpt."""
        return min(10, max(5, self.count(excerpt) // 50))

    def facts(self, session: Session, excerpt: str) -> Request:
        """Ask for plain statements about the user; more of them for a longer excerpt."""
        at_most = self.most_statements(excerpt)
        return self._request("facts", session, excerpt, prompts.template("facts"), facts_type(at_most), 100 * at_most + 40)

    def details(self, missed: Sequence[Said]) -> Request:
        """Ask for exactly one statement for each of these sentences of the user's (free to stop, small models do so after the first)."""
        lines = self._fitting([statement_of(said.text) for said in missed])
        n = len(lines)
        task = prompts.fill("details", lines=self._fenced(lines))
        return Request("details", prompts.template("system"), task, facts_type(n, n), 100 * n + 40, seed=self.settings.seed)

    @staticmethod
    def quotation(said: Said) -> Component:
        """A sentence of the user's as a component, in their own words."""
        words = statement_of(said.text)
        verb = "asked" if words.endswith("?") else "said"
        return Component(f'The user {verb}: "{words}"', said.text, said.turn, hedged=hedged(said.text))

    def scores(self, session: Session, excerpt: str) -> Request:
        """Ask for the gate's three scores (``scored`` models)."""
        return self._request("gate", session, excerpt, prompts.template("gate"), Gate, 220)

    def grouped_facts(self, session: Session, excerpt: str) -> Request:
        """Ask for statements in topics (``scored`` models)."""
        return self._request("facts", session, excerpt, prompts.template("facts_grouped"), GroupedFacts, 1800)

    # ------------------------------------------------------------------------------------------------- gating

    def tier(self, evidence: Evidence) -> Tier:
        """DROP or FULL. The three-tier routing of conditions c4 and c5 is a view over the stored totals, not made here."""
        if evidence.override == "forget":
            return Tier.DROP
        if evidence.override == "remember":
            return Tier.FULL
        return Tier.DROP if evidence.total <= DROP_UP_TO else Tier.FULL

    def asked_to_remember(self, ground: Ground) -> tuple[Component, ...]:
        """The user's own sentences that ask to be remembered, as components, for when the model wrote none of them.

        "Please remember this." alone means the sentence before it. Of an ordered session it is all of them but the questions.
        """
        if self.ordered:
            mine = [s for s in ground.said if s.role == "user" and stems(s.text)]
            return tuple(self.quotation(s) for s in mine if not s.text.endswith("?") or REMEMBER.search(s.text))
        found: list[Component] = []
        for before, said in pairwise((None, *ground.said)):
            order = REMEMBER.search(said.text) if said and said.role == "user" else None
            if not said or not order:
                continue
            words, quote = said.text, said.text
            if stems(said.text[order.end() :]):
                words = said.text[order.start() :].lstrip(".!?;:,(–—- \t")
            elif not stems(said.text[: order.start()]) and before and before.turn == said.turn:
                words, quote = f"{before.text} {said.text}", before.text
            found.append(Component(f'The user asked to remember: "{words}"', quote, said.turn))
        return tuple(found)

    # ------------------------------------------------------------------------------------------------ grouping

    def topics(self, components: Sequence[Component], embed: Embed) -> tuple[Topic, ...]:
        """Components of one session put together by topic: average linkage on their vectors, in order of first mention."""
        from scipy.cluster.hierarchy import fcluster, linkage

        if not components:
            return ()
        vectors = embed([_bare(c.text) for c in components]).astype(np.float64)
        labels = np.ones(len(components), dtype=int)
        if len(components) > 1:
            tree = linkage(vectors, method="average", metric="cosine")
            labels = fcluster(tree, t=GROUP_DISTANCE, criterion="distance")
            most = max(MAX_GROUPS, -(-len(components) // SENTENCES_A_GROUP))
            if labels.max() > most:
                labels = fcluster(tree, t=most, criterion="maxclust")
        groups = [tuple(c for c, m in zip(components, labels, strict=True) if m == label) for label in dict.fromkeys(labels.tolist())]
        named = embed(CATEGORIES)
        centres = [vectors[labels == label].mean(axis=0) for label in dict.fromkeys(labels.tolist())]
        return tuple(
            Topic(group, CATEGORIES[int(np.argmax(named @ centre))], info_type(group))
            for group, centre in zip(groups, centres, strict=True)
        )

    def anchor(self, topic: Topic) -> Request:
        """Ask for the slug of a topic, from its facts alone."""
        facts = self._fenced([_bare(c.text) for c in topic.components])
        return Request(
            "anchor", prompts.template("anchor_system"), prompts.fill("anchor", facts=facts), Anchor, 40, seed=self.settings.seed
        )

    # ------------------------------------------------------------------------------------------------- scenes

    def scene(self, topic: Topic) -> Request:
        """Ask for one moment, from the facts alone (small models mix in the rest of a session)."""
        facts = self._fenced([c.text for c in topic.components])
        return Request("scene", prompts.template("scene_system"), prompts.fill("scene", facts=facts), Scene, 160, seed=self.settings.seed)

    def whole_scene(self, session: Session, excerpt: str, topic: Topic) -> Request:
        """Ask for a scene with all its details, the session before it (bigger models)."""
        task = prompts.fill("scene_whole", facts=self._fenced([c.text for c in topic.components]))
        return self._request("scene", session, excerpt, task, WholeScene, 500)

    def picture(self, moment: str, topic: Topic, session: Session) -> str:
        """The whole scene trace around a moment: the details and the time are put into the picture as a note lying in it."""
        details = [d for d in (_bare(c.text).rstrip(".") for c in topic.components) if numbers(d) or d != d.lower()]
        details = details or [_bare(topic.components[0].text).rstrip(".")]
        when = [_dated(e) for c in topic.components for e in c.events]
        dated = "; ".join(dict.fromkeys(when))
        told = f"told on {_written(session.date)}" if session.date else "told on an unknown day"
        note = f"A note lying there reads: {'; '.join(details)} ({told}{'; ' + dated if dated else ''})."
        return f"Picture: {moment} {note} {FOOTER}"

    def whole_picture(self, depiction: str, session: Session) -> str:
        """The whole scene trace of a bigger model; the day of the talk is added where the model left all time out."""
        timeless = session.date and not find_events(depiction, session.date)
        told = f" Told on {_written(session.date)}." if session.date and timeless else ""
        return f"{depiction}{told} {FOOTER}"

    def scene_refusal(self, text: str, topic: Topic, session: Session, ground: Ground) -> str:
        """Why a scene may not stay: a number, date, name or place that the session does not hold; empty when it may.

        The session holds its own date, and the days that spoken dates mean.
        """
        depicted = text.removeprefix("Picture: ")
        if not ground.invented(depicted):
            return ""
        days = [datetime.fromisoformat(d) for c in topic.components for e in c.events for d in (e.day, e.end) if d]
        dates = [f"{_written(d)} {d:%Y-%m-%d}" for d in (*days, session.date) if d]
        return Ground([*session.turns, Turn("user", "\n".join((*(c.text for c in topic.components), *dates)))]).invented(depicted)

    def _fitting(self, lines: Sequence[str]) -> list[str]:
        """The first lines that take half the excerpt's tokens, and always one."""
        room = self.budgets.excerpt // 2
        sizes = accumulate(self.count(line) + 3 for line in lines)
        return [line for line, size in zip(lines, sizes, strict=True) if size <= room] or [lines[0][:room]]

    def _fenced(self, lines: Sequence[str]) -> str:
        """As many of the lines as fit, as data."""
        text = "\n".join(f"- {line}" for line in self._fitting(lines))
        return prompts.fence(text, self.secret, text)

    @property
    def shapes(self) -> str:
        """Digest of the output types that writing uses, for the fingerprint: another constraint writes other sentences."""
        types = (Gate, GroupedFacts, WholeScene) if self.gate is GateWay.SCORED else (facts_type(5), Anchor, Scene)
        return digest_of([t.model_json_schema() for t in types], length=16)

    @property
    def prompt_names(self) -> tuple[str, ...]:
        """The prompt files that writing uses, for the fingerprint."""
        always = ("system", "session", "facts", "details")
        return (
            (*always, "gate", "facts_grouped", "scene_whole", "anchor_system", "anchor")
            if self.gate is GateWay.SCORED
            else (*always, "anchor_system", "anchor", "scene_system", "scene")
        )


def was_cut(text: str) -> bool:
    """Whether a statement or moment has its full length, so that the constraint and not the model put the full stop."""
    return len(text) > min(LONGEST_SENTENCE, LONGEST_MOMENT)


_PEOPLE = re.compile(
    r"\b(?:mother|father|mom|mum|dad|parents?|brother|sister|son|daughter|wife|husband|partner|girlfriend|boyfriend|aunt|uncle|cousin|niece|"
    r"nephew|grand\w+|friends?|colleagues?|boss|neighbou?rs?|roommate|teacher|doctor|team|named|called)\b",
    re.IGNORECASE,
)


def info_type(components: Sequence[Component]) -> str:
    """Relational when people or names are bound together, compositional when there are several parts, else discrete (paper section 3.3)."""
    if any(_PEOPLE.search(c.text) for c in components):
        return "relational"
    return "compositional" if len(components) > 1 else "discrete"


def _bare(text: str) -> str:
    """A statement without its constant start, so that vectors and notes are about what differs."""
    return re.sub(r"^The user(?:'s)?\s+(?:(?:is|has|was|had)\s+)?", "", text)


def _dated(event: EventDate) -> str:
    """Both forms of a spoken date."""
    day = event.day + (f" to {event.end}" if event.end else "")
    return f"{event.spoken} = {day}" if day else event.spoken


def _written(date: datetime) -> str:
    return f"{date:%A}, {date.day} {date:%B} {date.year}"


def rounds(session: Session) -> tuple[Round, ...]:
    """The session's rounds: each user turn with what follows it. Turns before the first user turn make a round of their own."""
    groups: list[tuple[list[str], list[str]]] = []
    for turn in session.turns:
        if turn.role == "user" or not groups:
            groups.append(([], []))
        mine, others = groups[-1]
        if turn.role == "user":
            mine.append(turn.text)
        elif turn.text.strip():
            others.append(turn.text if turn.role == "assistant" else f"{turn.role}: {turn.text}")
    return tuple(
        Round(session.key, i, session.scope, session.date, "\n".join(mine).strip(), "\n".join(others).strip())
        for i, (mine, others) in enumerate(g for g in groups if any(t.strip() for t in (*g[0], *g[1])))
    )
