"""The shipped sample: a small invented corpus in the LongMemEval schema, for the demo and for trying things out.

``sample.json`` is generated: edit ``source.yaml`` beside it, then run
``python -c "from dualtrace_local import sample; sample.write()"``. A test holds the two together.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, NotRequired, TypedDict

import yaml

SAMPLE = Path(__file__).with_name("sample.json")
"""The corpus, a LongMemEval JSON array."""

SOURCE = Path(__file__).with_name("source.yaml")
"""What it is built from."""

WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
# strftime("%a") would follow the machine's locale.


class TurnRow(TypedDict):
    """One turn as LongMemEval writes it; ``has_answer`` is there, and true, only where the row's answer rests on the turn."""

    role: str
    content: str
    has_answer: NotRequired[bool]


class Row(TypedDict):
    """One LongMemEval record: a question, its gold and its whole haystack. The three ``haystack_`` lists are parallel."""

    question_id: str
    question_type: str
    question: str
    question_date: str
    answer: str | int
    answer_session_ids: list[str]
    haystack_dates: list[str]
    haystack_session_ids: list[str]
    haystack_sessions: list[list[TurnRow]]


def sample_path() -> Path:
    """Where the corpus lies."""
    return SAMPLE


def load_source() -> dict[str, Any]:
    """``source.yaml``, parsed: ``sessions`` and ``questions`` as the comment at its top describes them."""
    source: dict[str, Any] = yaml.safe_load(SOURCE.read_text(encoding="utf-8"))
    return source


def build(source: Mapping[str, Any]) -> list[Row]:
    """The rows of ``source``, one a question in its order, each with all sessions as its haystack; equal sources give equal rows.

    Raises:
        KeyError: a question names a session that the source does not hold.
    """
    sessions = {session["id"]: session for session in source["sessions"]}
    return [_row(question, sessions) for question in source["questions"]]


def render(rows: list[Row]) -> str:
    """The text of ``sample.json``: one JSON array, a row a line, so that a diff shows which questions changed."""
    lines = (json.dumps(row, ensure_ascii=False, separators=(",", ":")) for row in rows)
    return "[\n" + ",\n".join(lines) + "\n]\n"


def write(target: Path = SAMPLE) -> None:
    """Build the corpus from ``source.yaml`` and write it to ``target``."""
    target.write_text(render(build(load_source())), encoding="utf-8", newline="\n")


def _row(question: Mapping[str, Any], sessions: Mapping[str, Mapping[str, Any]]) -> Row:
    evidence: Mapping[str, list[int]] = question["evidence"]
    return {
        "question_id": question["id"],
        "question_type": question["type"],
        "question": question["question"],
        "question_date": _stamp(question["date"]),
        "answer": question["answer"],
        "answer_session_ids": [sessions[session_id]["id"] for session_id in evidence],
        "haystack_dates": [_stamp(session["date"]) for session in sessions.values()],
        "haystack_session_ids": list(sessions),
        "haystack_sessions": [_turns(session["rounds"], evidence.get(name, [])) for name, session in sessions.items()],
    }


def _turns(rounds: list[Mapping[str, str]], evidence: list[int]) -> list[TurnRow]:
    turns: list[TurnRow] = []
    for number, pair in enumerate(rounds):
        said: TurnRow = {"role": "user", "content": pair["user"]}
        if number in evidence:
            said["has_answer"] = True
        turns += [said, {"role": "assistant", "content": pair["assistant"]}]
    return turns


def _stamp(written: str) -> str:
    """``2024-02-03 09:12`` as LongMemEval writes it, ``2024/02/03 (Sat) 09:12``. YAML leaves a time without seconds a string."""
    moment = datetime.strptime(written, "%Y-%m-%d %H:%M")
    return f"{moment:%Y/%m/%d} ({WEEKDAYS[moment.weekday()]}) {moment:%H:%M}"
