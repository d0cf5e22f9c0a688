"""Flow: Question and delivered items -> Answer, by the three-state protocol (paper section 3.4).

The state is code's: A when a scene was delivered, B when only facts or verbatim rounds were, C when nothing was, and in C no model is
asked. The reader is never offered the abstention as a phrase (small models then always take it): an answer that no delivered item
supports is turned into an abstention here.

Where a condition wants it, a scene is made from the delivered facts first and read beside them. It is no evidence: the state stays B, and
it bears no answer.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from functools import cache, lru_cache
from itertools import combinations
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, create_model

from .dates import describe_distance, find_events
from .domains import prompts
from .domains.personal import FOOTER, Scene, was_cut
from .engines.driver import OutputError, ask
from .grounding import Ground, numbers, stems
from .grounding.asking import ADVICE, COUNT, SUM
from .grounding.worked import Line, different, total, worked_out
from .records import ABSTENTION, Answer, Delivered, EventDate, Flow, Item, Question, Request, Source, State, Turn

SUPPORT = 0.34
"""Share of an answer's own content words that the delivered items must hold. Same figure as grounding uses."""

CLOSE = 0.4
"""Cosine from which an item bears on a question that it shares no word with."""

REPLY = 420
"""Longest reading, in tokens."""

USED = 12
"""Ids that a reading names at most."""

SPARE = 64
"""Tokens that a chat template may add to a prompt."""

MORE_PROMPTS = {"recalled": ("scene_system", "scene", "read_recalled"), "quote": ("read_quote",)}
"""Prompts that reading needs beside ``Reader.PROMPTS``, by what stands for the scene in a condition."""

MERGED_PROMPTS = ("read_merged", "read_worked", "read_count")
"""The same for items that carry rounds beside facts: read_worked where code worked something out, read_count for counts and sums."""

_Note = Annotated[str, StringConstraints(pattern=r'^[^"\\ \n,.;:!?()-][^"\\\n]{9,240}\.$')]
_Reply = Annotated[str, StringConstraints(pattern=r'^[^"\\ \n,.;:!?()-][^"\\\n]{0,200}\.$')]


@cache
def reading_type(handles: tuple[str, ...]) -> type[BaseModel]:
    """Notes, the ids used (of those delivered), the answer: in this order, since notes first read best."""
    used = (list[Literal[handles]], Field(max_length=min(USED, len(handles))))  # type: ignore[valid-type]
    return create_model("Reading", __config__=ConfigDict(extra="forbid"), notes=(_Note, ...), used=used, answer=(_Reply, ...))


@dataclass(frozen=True)
class Reader:
    """What reading needs of the store and the model: the store's secret, and the tokens of a text."""

    secret: bytes
    count: Callable[[str], int]
    seed: int = 0

    PROMPTS = ("read_system", "read_fact", "read_scene", "read_round")

    def request(self, question: Question, delivered: Delivered, scene: str = "") -> Request:
        """The one reading call. Everything that the reader may know is in it; gold never is. ``scene``: one that was made for it."""
        shown = prompts.fence(self.context(question, delivered.items), self.secret, question.text)
        worked = _worked_facts(question, delivered)
        name = "read_recalled" if scene else _prompt_for(question, delivered, worked)
        beside = {"read_recalled": ("scene", scene), "read_worked": ("worked", worked)}.get(name)
        more = {beside[0]: prompts.fence(beside[1], self.secret, question.text)} if beside else {}
        text = self._prompt(name, question, items=shown, **more)
        handles = tuple(i.handle for i in delivered.items)
        return Request("read", prompts.template("read_system"), text, reading_type(handles), REPLY, seed=self.seed)

    @staticmethod
    def _prompt(name: str, question: Question, **values: str) -> str:
        today = f"{question.date:%Y-%m-%d} ({question.date:%A})" if question.date else "not known"
        return prompts.fill(name, today=today, question=prompts.visible(question.text), **values)

    def room(self, question: Question, context: int) -> int:
        """Tokens of a model's ``context`` that are left for items, beside the rest of the prompt and the reply; 0 at least."""
        rest = prompts.template("read_system") + self._prompt("read_round", question, items=prompts.fence("", self.secret, ""))
        return max(0, context - self.count(rest) - REPLY - SPARE)

    def scene_request(self, question: Question, items: Sequence[Item]) -> Request:
        """Ask for one moment from the delivered facts, by the prompt that scenes are written with."""
        facts = prompts.fence("\n".join(f"- {item.fact}" for item in items), self.secret, question.text)
        return Request("recall-scene", prompts.template("scene_system"), prompts.fill("scene", facts=facts), Scene, 160, seed=self.seed)

    def context(self, question: Question, items: Sequence[Item]) -> str:
        """The delivered items as JSON, one a line, in their order, each with its distance to the question worked out."""
        return "\n".join(json.dumps(_shown(item, question), ensure_ascii=False) for item in items)


def _shown(item: Item, question: Question) -> dict[str, Any]:
    said = f"{item.date:%Y-%m-%d}" if item.date else "unknown"
    if item.date and question.date:
        said += f", {describe_distance(item.date, question.date).split(',')[0]}"
    dates = {e.spoken: e.day + (f" to {e.end}" if e.end else "") for e in _events(item) if e.day}
    words = {turn.role: turn.text for turn in item.turns}
    if item.turns and not item.fact:
        return {"id": item.handle, "said": said, **({"dates": dates} if dates else {}), **words}
    shown: dict[str, Any] = {"id": item.handle, "said": said, "about": item.anchor.replace("-", " "), "fact": item.fact}
    if dates:
        shown["dates"] = dates
    if item.standing:
        shown["holds"] = item.standing
    if item.confidence == "LOW":
        shown["sure"] = "no, the person was unsure"
    if item.scene:
        shown["scene"] = item.scene
    if item.quote:
        shown["words"] = item.quote
    return shown | words


def _events(item: Item) -> tuple[EventDate, ...]:
    """The dates that a fact tells; where a round comes with it, or alone in a merged view, also those in what the user said."""
    told = [e for c in item.components for e in c.events]
    heard = [e for turn in item.turns if item.round_id and turn.role == "user" for e in _spoken(turn.text, item.date)]
    return (*heard, *told)


@lru_cache(maxsize=1024)
def _spoken(text: str, said_on: datetime | None) -> tuple[EventDate, ...]:
    return find_events(text, said_on)


def _lines(items: Sequence[Item]) -> tuple[Line, ...]:
    """The items as code counts with them: the fact, or of a bare round what the user said."""
    return tuple(
        Line(
            item.handle,
            item.fact or "\n".join(turn.text for turn in item.turns if turn.role == "user"),
            item.date.date() if item.date else None,
            tuple((e.spoken, date.fromisoformat(e.day)) for e in _events(item) if e.day),
        )
        for item in items
    )


def _worked_facts(question: Question, delivered: Delivered) -> str:
    """What follows from the items' dates and ages, one fact a line; empty where a condition or question asks for none of it."""
    if not delivered.merged or _counts(question):
        return ""
    return "\n".join(worked_out(question.text, question.date, _lines(delivered.items)))


def _counts(question: Question) -> bool:
    return bool(COUNT.search(question.text) or SUM.search(question.text))


def _counted(question: Question, used: Sequence[Item]) -> str:
    """The sum of what the marked items tell, or the number of different things among them; empty where less than two are marked."""
    lines = _lines(used)
    if not _counts(question) or len(lines) < 2:  # noqa: PLR2004 - one line is no list
        return ""
    added = total(lines) if SUM.search(question.text) or not COUNT.search(question.text) else None
    return f"{added[0]:g}" if added else str(len(different(lines))) if COUNT.search(question.text) else ""


def _with_count(answer: str, counted: str, question: Question, used: Sequence[Item]) -> str:
    """The answer with the number that code counted in the place of one that no marked item tells, before it where it has none."""
    told = numbers(answer) - numbers(question.text)
    known = {n for item in used for n in numbers(_content(item))}
    if not counted or counted in told or told & known:
        return answer
    if not told:
        return f"{counted}. {answer}"
    places = [m for m in re.finditer(r"[\w.,-]*\w", answer) if numbers(m.group()) & told]
    return answer[: places[0].start()] + counted + answer[places[0].end() :] if len(places) == 1 else answer


def _prompt_for(question: Question, delivered: Delivered, worked: str) -> str:
    if delivered.merged:
        return "read_count" if _counts(question) else "read_worked" if worked else "read_merged"
    if delivered.state is State.A:
        return "read_scene"
    verbatim, quoted = (any(field) for field in zip(*((i.turns, i.quote) for i in delivered.items), strict=True))
    return "read_round" if verbatim else "read_quote" if quoted else "read_fact"


def recall(question: Question, delivered: Delivered, reader: Reader) -> Flow[Answer]:
    """Answer one question from what was delivered. Raises OutputError when the reading never became whole."""
    asked_on = question.date.strftime("%Y-%m-%d %H:%M") if question.date else ""
    common: dict[str, Any] = {
        "question_id": question.id,
        "question": question.text,
        "condition": delivered.condition,
        "asked_on": asked_on,
        "delivered": tuple(dict.fromkeys(name for i in delivered.items for name in (i.memory_id, i.round_id) if name)),
        "delivered_sessions": tuple(dict.fromkeys(i.session_key for i in delivered.items)),
        "ranked": _ranked(delivered.items),
        "left_out": delivered.left_out,
    }
    if delivered.state is State.C:
        return Answer(**common, state=State.C, text=ABSTENTION, abstained=True, reason="nothing delivered")
    scene = (yield from _imagined(question, delivered.items, reader)) if delivered.imagined else ""
    reading = yield from ask(reader.request(question, delivered, scene))
    seen = reader.context(question, delivered.items)
    worked = _worked_facts(question, delivered)
    tokens = reader.count(seen) + reader.count(scene) + (reader.count(worked) if worked else 0)
    common |= {"notes": reading.notes, "seen": seen, "scene": scene, "worked": worked, "context_tokens": tokens}
    marked = tuple(i for i in delivered.items if i.handle in reading.used)
    named = marked or _behind(reading.answer, question, delivered.items)
    used = tuple(i for i in named if i.similarity >= CLOSE or stems(question.text) & stems(_text(i, question)))
    counted = _counted(question, marked) if delivered.merged else ""
    text = _with_count(reading.answer, counted, question, marked)
    if not used or not supported(text, question, delivered.items, f"{worked}\n{counted}"):
        unsupported = "no delivered item supports the answer"
        return Answer(**common, state=delivered.state, text=ABSTENTION, abstained=True, reason=unsupported)
    own = stems(text) - stems(question.text)
    used = tuple(i for i in used if counted or own & stems(_text(i, question))) or used
    sources = tuple(_source(i, own) for i in used)
    return Answer(**common, state=delivered.state, text=text, abstained=False, sources=sources, counted=counted)


def _ranked(items: Sequence[Item]) -> tuple[str, ...]:
    """The items' sessions, best first; nothing where no item has a score."""
    best = sorted(items, key=lambda i: -i.score) if any(i.score for i in items) else ()
    return tuple(dict.fromkeys(i.session_key for i in best))


def _imagined(question: Question, items: Sequence[Item], reader: Reader) -> Flow[str]:
    """A scene made from the delivered facts. Asked for once more when it holds a number or name that they do not; then there is none."""
    ground = Ground([Turn("user", "\n".join(_text(item, question) for item in items))])
    first = reader.scene_request(question, items)
    for request in (first, replace(first, temperature=0.3, seed=first.seed + 10)):
        try:
            moment: str = (yield from ask(request)).moment
        except OutputError:
            return ""
        if not was_cut(moment) and not ground.invented(moment):
            return f"Picture: {moment} {FOOTER}"
    return ""


def _source(item: Item, own: frozenset[str]) -> Source:
    """Where an answer with these words of its own comes from; of a round, the side that holds most of them, or both."""
    shared = {turn.role: len(own & stems(turn.text)) for turn in item.turns}
    said_by = " and ".join(role for role, n in shared.items() if n == max(shared.values()))
    return Source(item.memory_id, item.session_key, f"{item.date:%Y-%m-%d}" if item.date else "", item.anchor, said_by)


def supported(answer: str, question: Question, items: Sequence[Item], worked: str = "") -> bool:
    """Whether the delivered items bear the answer: every name in it, and enough of its own content words, stand in them.

    Of a verbatim round the words of either side count; words of the question do not. A number also counts when code can work it out
    from the listed ones (``_worked_out``), or has: ``worked``.
    Only where advice is asked for may the answer bring names of its own. An answer without own content words (yes, no) is supported.
    """
    days = _days(question, items)
    listed = "\n".join((*(_text(item, question) for item in items), *(f"{day:%A, %d %B %Y}" for day in days), worked))
    if not ADVICE.search(question.text) and Ground([Turn("user", f"{listed}\n{question.text}")]).strange(answer):
        return False
    own = stems(answer) - stems(question.text)
    if not own:
        return True
    return len(own & (stems(listed) | _worked_out(days, items))) / len(own) >= SUPPORT


_CLOCK = re.compile(r"\b(\d{1,2}):(\d\d)\b")


def _text(item: Item, question: Question) -> str:
    """All that the reader saw of an item, but for its handle."""
    shown = _shown(item, question)
    dates = (f"{k} {v}" for k, v in shown.get("dates", {}).items())
    return " ".join((shown["said"], shown.get("about", ""), item.scene, item.quote, *dates, _content(item)))


def _content(item: Item) -> str:
    """The fact, or what both sides of a round said."""
    return "\n".join((*([item.fact] if item.fact else []), *(turn.text for turn in item.turns)))


def _days(question: Question, items: Sequence[Item]) -> tuple[date, ...]:
    """Every calendar day that the reader saw, each once."""
    told = [d.date() for d in (question.date, *(i.date for i in items)) if d]
    spoken = [date.fromisoformat(d) for i in items for e in _events(i) for d in (e.day, e.end) if d]
    return tuple(sorted({*told, *spoken}))


def _worked_out(days: Sequence[date], items: Sequence[Item]) -> frozenset[str]:
    """Numbers that follow from the facts, and of rounds from what the user said: long replies hold so many that anything would follow.

    Sums of two, three or all of them, differences of two, clock times so many minutes apart, counts of facts, and the distances of
    days in days, weeks, months and years.
    """
    facts = [text for i in items if i.fact for text in ([c.text for c in i.components] or [i.fact])]
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
