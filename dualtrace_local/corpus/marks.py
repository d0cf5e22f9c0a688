"""Marked answers of any system: ``{"question_id", "correct"}`` a record, optionally ``question_type``; other fields are passed over.

JSON arrays, JSONL and gzip are told from the content, as everywhere. Verdict files of a run have this form too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from dualtrace_local.errors import DataError
from dualtrace_local.records import Gold, Rejected

from .longmemeval import NO_ANSWER
from .source import Part, decoded, raw_records
from .text import BadRecordError, Place, id_text, text_field


@dataclass(frozen=True)
class Marks:
    """One file's marks by question id, and its kinds where it names them. A None is no verdict. ``bad`` cannot be read."""

    source: str
    correct: Mapping[str, bool | None]
    kinds: Mapping[str, str]
    bad: tuple[Rejected, ...]


def read_marks(path: Path) -> Marks:
    """The marks of ``path``. Of several for one question the first counts and the others are bad, but one after a null replaces it.

    Raises:
        DataError: the file cannot be read as a whole, or holds no mark.
    """
    correct: dict[str, bool | None] = {}
    kinds: dict[str, str] = {}
    bad: list[Rejected] = []
    for raw in raw_records(Part(path, path.name)):
        place = Place(path.name, raw.record)
        try:
            question_id, kind, mark = _mark(decoded(raw, place))
            if correct.get(question_id) is not None:
                raise BadRecordError.about("question_id", question_id, "appears twice")
        except BadRecordError as problem:
            bad.append(Rejected(path.name, raw.record, str(problem)))
            continue
        correct[question_id] = mark
        if kind:
            kinds[question_id] = kind
    if not correct:
        first = f" ({bad[0]})" if bad else ""
        raise DataError(f"{path.name} holds no marked answer{first}; give one object a line with question_id and correct (true or false)")
    return Marks(path.name, correct, kinds, tuple(bad))


def golds_of(*files: Marks) -> tuple[dict[str, Gold], tuple[str, ...]]:
    """The questions of all ``files`` with their kinds, abstention told by the id, and a line for each kind that they disagree on."""
    golds: dict[str, Gold] = {}
    said: list[str] = []
    for file in files:
        for question_id in file.correct:
            kind = file.kinds.get(question_id, "")
            known = golds.get(question_id)
            if known is None or (kind and not known.kind):
                golds[question_id] = Gold(question_id, None, kind, question_id.endswith(NO_ANSWER))
            elif kind and kind != known.kind:
                said.append(f"{file.source}: question_type of {question_id} is {kind}, before it was {known.kind}; the first counts")
    return golds, tuple(said)


def _mark(value: object) -> tuple[str, str, bool | None]:
    if not isinstance(value, dict):
        raise BadRecordError.kind("the record", value, "an object")
    if missing := [name for name in ("question_id", "correct") if name not in value]:
        raise BadRecordError(f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing")
    question_id, correct, kind = id_text(value["question_id"], "question_id"), value["correct"], value.get("question_type")
    if not question_id.strip():
        raise BadRecordError("question_id is blank")
    if correct is not None and not isinstance(correct, bool):
        raise BadRecordError.kind("correct", correct, "true, false or null")
    return question_id, text_field(kind, "question_type") if kind is not None else "", correct
