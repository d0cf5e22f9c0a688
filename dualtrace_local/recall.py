"""Flow: Question and delivered items -> Answer, by the three-state protocol (paper section 3.4).

The state is code's: A when a scene was delivered, B when only facts or verbatim rounds were, C when nothing was, and in C no model is
asked. The reader is never offered the abstention as a phrase (small models then always take it): an answer that no delivered item
supports is turned into an abstention here.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cache
from itertools import combinations
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, create_model

from .dates import describe_distance
from .domains import prompts
from .engines.driver import ask
from .grounding import Ground, numbers, stems
from .records import ABSTENTION, Answer, Delivered, Flow, Item, Question, Request, Source, State, Turn

SUPPORT = 0.34
"""Share of an answer's own content words that the delivered items must hold. Same figure as grounding uses."""

CLOSE = 0.4
"""Cosine from which an item bears on a question that it shares no word with."""

_Note = Annotated[str, StringConstraints(pattern=r'^[^"\\ \n,.;:!?()-][^"\\\n]{9,240}\.$')]
_Reply = Annotated[str, StringConstraints(pattern=r'^[^"\\ \n,.;:!?()-][^"\\\n]{0,200}\.$')]


@cache
def reading_type(handles: tuple[str, ...]) -> type[BaseModel]:
    """Notes, the ids used (of those delivered), the answer: in this order, since notes first read best."""
    used = (list[Literal[handles]], Field(max_length=len(handles)))  # type: ignore[valid-type]
    return create_model("Reading", __config__=ConfigDict(extra="forbid"), notes=(_Note, ...), used=used, answer=(_Reply, ...))


@dataclass(frozen=True)
class Reader:
    """What reading needs of the store and the model: the store's secret, and the tokens of a text."""

    secret: bytes
    count: Callable[[str], int]
    seed: int = 0

    PROMPTS = ("read_system", "read_fact", "read_scene", "read_round")

    def request(self, question: Question, delivered: Delivered) -> Request:
        """The one reading call. Everything that the reader may know is in it; gold never is."""
        verbatim = any(i.turns for i in delivered.items)
        name = "read_scene" if delivered.state is State.A else "read_round" if verbatim else "read_fact"
        shown = prompts.fence(self.context(question, delivered.items), self.secret, question.text)
        today = f"{question.date:%Y-%m-%d} ({question.date:%A})" if question.date else "not known"
        text = prompts.fill(name, items=shown, today=today, question=prompts.visible(question.text))
        handles = tuple(i.handle for i in delivered.items)
        return Request("read", prompts.template("read_system"), text, reading_type(handles), 420, seed=self.seed)

    def context(self, question: Question, items: Sequence[Item]) -> str:
        """The delivered items as JSON, one a line, in date order, each with its distance to the question worked out."""
        return "\n".join(json.dumps(_shown(item, question), ensure_ascii=False) for item in items)


def _shown(item: Item, question: Question) -> dict[str, Any]:
    said = f"{item.date:%Y-%m-%d}" if item.date else "unknown"
    if item.date and question.date:
        said += f", {describe_distance(item.date, question.date).split(',')[0]}"
    dates = {e.spoken: e.day + (f" to {e.end}" if e.end else "") for c in item.components for e in c.events if e.day}
    if item.turns:
        return {"id": item.handle, "said": said, **{turn.role: turn.text for turn in item.turns}}
    shown: dict[str, Any] = {"id": item.handle, "said": said, "about": item.anchor.replace("-", " "), "fact": item.fact}
    if dates:
        shown["dates"] = dates
    if item.confidence == "LOW":
        shown["sure"] = "no, the person was unsure"
    if item.scene:
        shown["scene"] = item.scene
    return shown


def recall(question: Question, delivered: Delivered, reader: Reader) -> Flow[Answer]:
    """Answer one question from what was delivered. Raises OutputError when the reading never became whole."""
    asked_on = question.date.strftime("%Y-%m-%d %H:%M") if question.date else ""
    common: dict[str, Any] = {
        "question_id": question.id,
        "question": question.text,
        "condition": delivered.condition,
        "asked_on": asked_on,
        "delivered": tuple(i.memory_id for i in delivered.items),
        "delivered_sessions": tuple(dict.fromkeys(i.session_key for i in delivered.items)),
    }
    if delivered.state is State.C:
        return Answer(**common, state=State.C, text=ABSTENTION, abstained=True, reason="nothing delivered")
    reading = yield from ask(reader.request(question, delivered))
    common |= {"notes": reading.notes, "context_tokens": reader.count(reader.context(question, delivered.items))}
    named = tuple(i for i in delivered.items if i.handle in reading.used) or _behind(reading.answer, question, delivered.items)
    used = tuple(i for i in named if i.similarity >= CLOSE or stems(question.text) & stems(_text(i, question)))
    if not used or not supported(reading.answer, question, delivered.items):
        unsupported = "no delivered item supports the answer"
        return Answer(**common, state=delivered.state, text=ABSTENTION, abstained=True, reason=unsupported)
    own = stems(reading.answer) - stems(question.text)
    used = tuple(i for i in used if own & stems(_text(i, question))) or used
    sources = tuple(_source(i, own) for i in used)
    return Answer(**common, state=delivered.state, text=reading.answer, abstained=False, sources=sources)


def _source(item: Item, own: frozenset[str]) -> Source:
    """Where an answer with these words of its own comes from; of a round, the side that holds most of them, or both."""
    shared = {turn.role: len(own & stems(turn.text)) for turn in item.turns}
    said_by = " and ".join(role for role, n in shared.items() if n == max(shared.values()))
    return Source(item.memory_id, item.session_key, f"{item.date:%Y-%m-%d}" if item.date else "", item.anchor, said_by)


def supported(answer: str, question: Question, items: Sequence[Item]) -> bool:
    """Whether the delivered items bear the answer: every name in it, and enough of its own content words, stand in them.

    Of a verbatim round the words of either side count; words of the question do not. A number also counts when code can work it out
    from the listed ones (``_worked_out``).
    Only where advice is asked for may the answer bring names of its own. An answer without own content words (yes, no) is supported.
    """
    days = _days(question, items)
    listed = "\n".join((*(_text(item, question) for item in items), *(f"{day:%A, %d %B %Y}" for day in days)))
    if not _ADVICE.search(question.text) and Ground([Turn("user", f"{listed}\n{question.text}")]).strange(answer):
        return False
    own = stems(answer) - stems(question.text)
    if not own:
        return True
    return len(own & (stems(listed) | _worked_out(days, items))) / len(own) >= SUPPORT


_ADVICE = re.compile(r"\b(?:suggest\w*|recommend\w*|advice|advise|ideas?|tips?|should\s+I|could\s+I|would\s+you)\b", re.IGNORECASE)
_CLOCK = re.compile(r"\b(\d{1,2}):(\d\d)\b")


def _text(item: Item, question: Question) -> str:
    """All that the reader saw of an item, but for its handle."""
    shown = _shown(item, question)
    dates = (f"{k} {v}" for k, v in shown.get("dates", {}).items())
    return " ".join((shown["said"], shown.get("about", ""), item.scene, *dates, _content(item)))


def _content(item: Item) -> str:
    """The fact, or what both sides of a round said."""
    return "\n".join(turn.text for turn in item.turns) or item.fact


def _days(question: Question, items: Sequence[Item]) -> tuple[date, ...]:
    """Every calendar day that the reader saw, each once."""
    told = [d.date() for d in (question.date, *(i.date for i in items)) if d]
    spoken = [date.fromisoformat(d) for i in items for c in i.components for e in c.events for d in (e.day, e.end) if d]
    return tuple(sorted({*told, *spoken}))


def _worked_out(days: Sequence[date], items: Sequence[Item]) -> frozenset[str]:
    """Numbers that follow from the facts, and of rounds from what the user said: long replies hold so many that anything would follow.

    Sums of two, three or all of them, differences of two, clock times so many minutes apart, counts of facts, and the distances of
    days in days, weeks, months and years.
    """
    facts = [text for i in items for text in ([c.text for c in i.components] or [i.fact]) if not i.turns]
    facts += [turn.text for i in items for turn in i.turns if turn.role == "user"]
    listed = sorted(n for text in facts for n in numbers(text))
    values = [float(n) for n in listed if n.replace(".", "", 1).isdigit()][:40]
    made = {sum(group) for size in (2, 3) for group in combinations(values, size)} | {sum(values)}
    made |= {abs(a - b) for a, b in combinations(values, 2)} | {float(n) for n in range(1, len(facts) + 1)}
    for first, last in combinations(days, 2):
        apart = (last - first).days
        made |= {float(whole(apart / unit)) for unit in (1, 7, 30.44, 365.25) for whole in (math.floor, round)}
    clocks = [60 * int(m.group(1)) + int(m.group(2)) for text in facts for m in _CLOCK.finditer(text)]
    moved = {(c + sign * int(v)) % 1440 for c in clocks for v in values for sign in (-1, 1)}
    return frozenset(f"{v:.2f}".rstrip("0").rstrip(".") for v in made) | frozenset(f"{m // 60}:{m % 60:02}" for m in moved)


def _behind(answer: str, question: Question, items: Sequence[Item]) -> tuple[Item, ...]:
    """The items that share the most own words with the answer, for a reader that named none."""
    own = stems(answer) - stems(question.text)
    shared = {item.handle: len(own & stems(_content(item))) for item in items}
    most = max(shared.values(), default=0)
    return tuple(i for i in items if most and shared[i.handle] == most)
