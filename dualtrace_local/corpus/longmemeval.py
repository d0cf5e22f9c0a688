"""LongMemEval rows: a question with its dated haystack. What only a judge may know goes into ``Gold`` and nowhere else.

Schema: the data format section of the benchmark's README (xiaowu0162/LongMemEval), the same for s, m, oracle and cleaned.
"""

from __future__ import annotations

from dualtrace_local.records import Entry, Gold, Question, Scope, Session

from .text import BadRecordError, Place, Record, date_field, id_text, text_field, turns_of

_LISTS = ("haystack_dates", "haystack_session_ids", "haystack_sessions", "answer_session_ids")
_FIELDS = ("question_id", "question_type", "question", "question_date", "answer", *_LISTS)

NO_ANSWER = "_abs"
"""End of the id of a question that has no answer in its haystack; in the middle of an id it means nothing."""


def is_row(record: Record) -> bool:
    """Whether a record is meant as a row of the benchmark (it may still lack fields)."""
    return "haystack_sessions" in record or "question_id" in record


def row_entry(record: Record, place: Place, scope: Scope) -> Entry:
    """The row as sessions in file order, question and gold. Raises BadRecordError naming the field.

    ``Question.haystack`` stays empty: keys are known only after masking.
    """
    if missing := [name for name in _FIELDS if record.get(name) is None]:
        msg = f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing"
        raise BadRecordError(msg)
    for name in _LISTS:
        if not isinstance(record[name], list):
            raise BadRecordError.kind(name, record[name], "a list")
    dates, ids, sessions, evidence = (record[name] for name in _LISTS)
    if not len(dates) == len(ids) == len(sessions):
        lengths = f"{len(dates)}, {len(ids)}, {len(sessions)}"
        msg = f"haystack_dates, haystack_session_ids and haystack_sessions differ in length: {lengths}"
        raise BadRecordError(msg)
    question = _question(record)
    names = [id_text(value, f"haystack_session_ids[{n}]") for n, value in enumerate(ids)]
    answering = {id_text(value, f"answer_session_ids[{n}]") for n, value in enumerate(evidence)}
    read = tuple(
        Session(
            turns=turns_of(turns, f"haystack_sessions[{n}]", place),
            date=date_field(dates[n], f"haystack_dates[{n}]"),
            scope=scope,
            # The prefix marks the sessions that hold the answer; nothing that a model or an index sees may carry it.
            external_id=names[n].removeprefix("answer_"),
            source=place.source,
            record=place.record,
        )
        for n, turns in enumerate(sessions)
    )
    gold = Gold(
        question_id=question.id,
        answer=record["answer"],
        kind=text_field(record["question_type"], "question_type"),
        abstention=question.id.endswith(NO_ANSWER),
        evidence=tuple(n for n, name in enumerate(names) if name in answering),
        evidence_turns=tuple((n, t) for n, turns in enumerate(sessions) for t, turn in enumerate(turns) if turn.get("has_answer") is True),
    )
    return Entry(place.source, place.record, read, question, gold, tuple(place.notes))


def _question(record: Record) -> Question:
    question_id = id_text(record["question_id"], "question_id")
    text = text_field(record["question"], "question")
    for name, value in (("question_id", question_id), ("question", text)):
        if not value.strip():
            msg = f"{name} is blank"
            raise BadRecordError(msg)
    return Question(question_id, text, date_field(record["question_date"], "question_date"))
