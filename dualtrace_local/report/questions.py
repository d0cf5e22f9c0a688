"""A page for each question: gold, what was delivered, what the reader saw, its notes and answer, every verdict, and which step failed.

All pages are in one file, questions.html, which holds text of chats and stays private (0600); it needs neither network nor script.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from dualtrace_local.records import Answer, Verdict

from .details import Step

LONGEST = 24_000
"""Characters of what a reader saw that a page shows; the rest is in the run's file."""


@dataclass(frozen=True)
class EvidenceSession:
    """A session that the benchmark marks as evidence, and what the gate made of it: ``total`` is 0-6."""

    name: str
    date: str
    status: str
    total: int
    memories: int


@dataclass(frozen=True)
class Reading:
    """One question under one condition.

    ``outcome`` is as in the tables, ``step`` where a wrong answer went wrong; ``seen`` holds a JSON object a line. ``verdicts`` are by
    the judge whose file they lie in.
    """

    condition: str
    outcome: str
    step: str
    answer: Answer | None
    seen: str
    verdicts: tuple[tuple[str, Verdict], ...]


@dataclass(frozen=True)
class Page:
    """One question under all conditions. ``evidence_items`` are ids of memories and rounds of the evidence sessions."""

    question_id: str
    kind: str
    abstention: bool
    question: str
    asked_on: str
    gold: str
    fault: str
    evidence: tuple[EvidenceSession, ...]
    evidence_items: frozenset[str]
    readings: tuple[Reading, ...]


@dataclass(frozen=True)
class Shown:
    """One delivered item as the page shows it. ``parts`` are names and texts in the order in which the reader saw them."""

    handle: str
    item: str
    evidence: bool
    used: bool
    parts: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class ShownReading:
    """A reading with its items taken apart. ``left_out`` counts items that are too many to be shown."""

    reading: Reading
    items: tuple[Shown, ...]
    left_out: int


@dataclass(frozen=True)
class ShownPage:
    """A page as the template takes it. ``anchor`` is its place in the file, ``marks`` the classes that the filters go by."""

    anchor: str
    page: Page
    marks: str
    readings: tuple[ShownReading, ...]


def anchor(place: int) -> str:
    """The address of the question at 0-based ``place`` within questions.html; ids of others' files are no addresses."""
    return f"q{place + 1}"


def shown(pages: Iterable[Page]) -> Iterator[ShownPage]:
    """The pages as the template takes them, one after the other."""
    for place, page in enumerate(pages):
        yield ShownPage(anchor(place), page, _marks(page), tuple(_reading(page, r) for r in page.readings))


def _marks(page: Page) -> str:
    outcomes = {r.outcome for r in page.readings}
    steps = {Step(r.step).name.lower() for r in page.readings if r.step}
    differ, faulty = len(outcomes & {"correct", "wrong"}) > 1, bool(page.fault)
    marks = [*sorted(outcomes | steps), *(["differ"] if differ else []), *(["faulty"] if faulty else [])]
    return " ".join(f"is-{mark}" for mark in marks)


def _reading(page: Page, reading: Reading) -> ShownReading:
    lines = reading.seen.split("\n") if reading.seen else []
    ids = reading.answer.delivered if reading.answer else ()
    used = {s.memory_id for s in reading.answer.sources} if reading.answer else set()
    items: list[Shown] = []
    length = 0
    for place, line in enumerate(lines):
        length += len(line)
        if length > LONGEST:
            break
        item = ids[place] if place < len(ids) else ""
        parts = _parts(line)
        items.append(Shown(parts.pop("id", ""), item, item in page.evidence_items, item in used, tuple(parts.items())))
    return ShownReading(reading, tuple(items), len(lines) - len(items))


def _parts(line: str) -> dict[str, str]:
    try:
        found = json.loads(line)
    except ValueError:
        return {"text": line}
    return {str(name): _text(value) for name, value in found.items()} if isinstance(found, dict) else {"text": line}


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return "; ".join(f"{k}: {v}" for k, v in value.items())
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
