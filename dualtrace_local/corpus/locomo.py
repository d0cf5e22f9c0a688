"""LoCoMo conversations: two people who talk over months, and the questions about both (snap-research/locomo, its README).

**Both speakers are the user.** A memory keeps what people tell of themselves, and each of the two does; were one of them the
assistant, what is said there would be no memory at all, and it holds half of the evidence. So every turn has the role ``user``, begins
with its speaker's name (``Ada: I moved flat.``), and carries it in ``Turn.name``, by which a fact names the person instead of "the
user". Captions stand behind the text as ``[image: ...]``; addresses of images are not kept; summaries and observations are not read.

**Category 5** asks for what was not said, or was said of the other one. The right answer is that it is not in memory, for all of
them, as in the benchmark's own scorer; ``adversarial_answer`` is the trap and wrong. The question's kind is ``adversarial``.

The benchmark gives questions no date: they are asked at the time of the last session.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime

from dualtrace_local.records import Entry, Gold, Question, Rejected, Scope, Session, Turn

from .text import BadRecordError, Place, Record, id_text, parse_date, shown, text_field

CATEGORIES = {1: "multi-hop", 2: "temporal", 3: "open-domain", 4: "single-hop", 5: "adversarial"}
"""Kinds of question by the file's number. The numbers are not in the order of the paper's list; the counts of its table tell them."""

ADVERSARIAL = CATEGORIES[5]

_SESSION = re.compile(r"session_([0-9]+)")
_PLACE = re.compile(r"D:?([0-9]+):([0-9]+)")
_DATE = re.compile(
    r"(?P<hour>[0-9]{1,2}):(?P<minute>[0-9]{2}) ?(?P<half>[ap])\.?m\.? on (?P<day>[0-9]{1,2}) (?P<month>[a-z]+),? (?P<year>[0-9]{4})",
    re.IGNORECASE,
)
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_LIKE_A_PLACE = re.compile(r'"?D?[\d:]+"?')
_TURN_KEYS = {"speaker", "dia_id", "text", "img_url", "blip_caption", "query", "re-download"}
_SAYS_NOTHING = re.compile(r"not (?:mentioned|stated|specified|said|known)|no information|unknown", re.IGNORECASE)

Places = dict[tuple[int, int], tuple[int, int]]
"""From (session, turn) as the file counts them, both from 1, to 0-based positions in the entry."""


def is_conversation(record: Record) -> bool:
    """Whether a record is meant as a conversation of the benchmark."""
    chat = any(key in record for key in ("turns", "messages", "session", "conversations"))
    return isinstance(record.get("conversation"), dict) or (isinstance(record.get("qa"), list) and not chat)


def parse_spoken_date(text: str) -> datetime | None:
    """``12:09 am on 13 September, 2023`` as 2023-09-13 00:09, under every locale; other spellings as ``parse_date``; else None."""
    match = _DATE.fullmatch(" ".join(text.split()))
    if match is None or match["month"][:3].lower() not in _MONTHS:
        return parse_date(text)
    month = _MONTHS.index(match["month"][:3].lower()) + 1
    return parse_date(f"{match['year']}-{month}-{match['day']} {match['hour']}:{match['minute']} {match['half']}m")


def conversation_entries(record: Record, place: Place, scope: Scope, told: set[str]) -> tuple[Entry | Rejected, ...]:
    """One entry a question, in file order, all with the same tuple of sessions; one without a question when there is none.

    A question that cannot be read is a ``Rejected`` beside the others. ``told`` holds the turn keys already named for this file.
    Notes about the conversation are on its first entry. Raises BadRecordError when the sessions cannot be read.
    """
    name = id_text(record["sample_id"], "sample_id") if record.get("sample_id") is not None else ""
    name = name or f"conversation-{place.record}"
    conversation, questions = record.get("conversation"), record.get("qa")
    if not isinstance(conversation, dict | None):
        raise BadRecordError.kind("conversation", conversation, "an object")
    if not isinstance(questions, list | None):
        raise BadRecordError.kind("qa", questions, "a list")
    sessions, places = _sessions(conversation or {}, name, place, scope)
    if conversation and not sessions:
        msg = "conversation holds no session_1, session_2 ..."
        raise BadRecordError(msg)
    _name_unknown_keys(conversation or {}, place, told)
    last = max((s.date for s in sessions if s.date), default=None)
    found: list[Entry | Rejected] = []
    for n, asked in enumerate(questions or (), start=1):
        try:
            question, gold = _question(asked, f"{name}_q{n}", last, places, place)
        except BadRecordError as problem:
            found.append(Rejected(place.source, place.record, f"qa[{n - 1}]: {problem}"))
        else:
            found.append(Entry(place.source, place.record, sessions, question, gold))
    first = next((i for i, entry in enumerate(found) if isinstance(entry, Entry)), None)
    if first is None:
        return (Entry(place.source, place.record, sessions, notes=tuple(place.notes)), *found)
    return tuple(replace(e, notes=tuple(place.notes)) if i == first and isinstance(e, Entry) else e for i, e in enumerate(found))


def _sessions(conversation: Record, name: str, place: Place, scope: Scope) -> tuple[tuple[Session, ...], Places]:
    """Sessions by date, undated ones first, and where each turn of the file lies in them."""
    read: list[tuple[int, datetime | None, tuple[Turn, ...], list[tuple[int, int]]]] = []
    for key, turns in conversation.items():
        if match := _SESSION.fullmatch(key):
            if not isinstance(turns, list):
                raise BadRecordError.kind(key, turns, "a list")
            number = int(match[1])
            said = [_turn(turn, f"{key}[{n}]") for n, turn in enumerate(turns)]
            ids = [_numbers(turn.get("dia_id")) or (number, n) for n, turn in enumerate(turns, start=1)]
            read.append((number, _date(conversation.get(f"{key}_date_time"), key, place), tuple(said), ids))
    read.sort(key=lambda r: (str(r[1] or ""), r[0]))
    places = {numbers: (s, t) for s, (_, _, _, ids) in enumerate(read) for t, numbers in enumerate(ids)}
    sessions = (
        Session(turns, date, scope, external_id=f"{name}_session_{number}", source=place.source, record=place.record)
        for number, date, turns, _ in read
    )
    return tuple(sessions), places


def _date(value: object, key: str, place: Place) -> datetime | None:
    date = parse_spoken_date(value) if isinstance(value, str) else None
    if date is None:
        why = "is missing" if value is None else f"not readable: {shown(value)}"
        place.notes.append(f"{place}: {key}_date_time {why}; the session is read as undated")
    return date


def _turn(value: object, name: str) -> Turn:
    if not isinstance(value, dict):
        raise BadRecordError.kind(name, value, "an object")
    if value.get("speaker") is None:
        msg = f"{name}.speaker is missing"
        raise BadRecordError(msg)
    speaker = id_text(value["speaker"], f"{name}.speaker")
    said = [text_field(value["text"], f"{name}.text")] if value.get("text") is not None else []
    if value.get("blip_caption") is not None:
        said.append(f"[image: {text_field(value['blip_caption'], f'{name}.blip_caption')}]")
    text = " ".join(part for part in said if part.strip())
    return Turn("user", f"{speaker}: {text}" if text and speaker else text, speaker)


def _name_unknown_keys(conversation: Record, place: Place, told: set[str]) -> None:
    turns = (turn for key, turns in conversation.items() if _SESSION.fullmatch(key) for turn in turns)
    if unknown := sorted({key for turn in turns for key in turn} - _TURN_KEYS - told):
        place.notes.append(f"{place}: unknown turn keys: {', '.join(shown(key)[1:-1] for key in unknown)}; not read")
        told.update(unknown)


def _question(value: object, question_id: str, date: datetime | None, places: Places, place: Place) -> tuple[Question, Gold]:
    if not isinstance(value, dict):
        raise BadRecordError.kind("the question", value, "an object")
    if value.get("question") is None:
        msg = "question is missing"
        raise BadRecordError(msg)
    text = text_field(value["question"], "question")
    if not text.strip():
        msg = "question is blank"
        raise BadRecordError(msg)
    category = value.get("category")
    kind = CATEGORIES.get(category) if type(category) is int else None  # True is an int, too
    if kind is None:
        raise BadRecordError.about("category", category, "is not 1 to 5")
    answer = _not_in_memory(value.get("adversarial_answer")) if kind == ADVERSARIAL else value.get("answer")
    if answer is None or (isinstance(answer, str) and not answer.strip()):
        msg = "answer is missing"
        raise BadRecordError(msg)
    turns = tuple(_evidence(value.get("evidence"), question_id, places, place))
    gold = Gold(question_id, answer, kind, kind == ADVERSARIAL, tuple(sorted({s for s, _ in turns})), turns)
    return Question(question_id, text, date), gold


def _not_in_memory(trap: object) -> str:
    """The gold of a question without an answer. The trap is named to the judge, but where it says itself that nothing is known."""
    named = isinstance(trap, str) and trap.strip() and not _SAYS_NOTHING.match(trap.strip())
    return "Not in memory: the conversations do not say this." + (f' "{trap}" is wrong.' if named else "")


def _evidence(value: object, question_id: str, places: Places, place: Place) -> Iterator[tuple[int, int]]:
    """The turns that evidence such as ``D1:3`` names, each once.

    ``D8:6; D9:17``, ``D:11:26`` and ``D30:05`` mean one thing alone and are read; what names no turn of the conversation is noted.
    """
    items = value if isinstance(value, list) else [value] if isinstance(value, str) else []
    pieces = [p for item in items for p in (re.split(r"[;,\s]+", item.strip()) if isinstance(item, str) else [item])]
    named = {shown(piece): places.get(numbers) if (numbers := _numbers(piece)) else None for piece in pieces if piece != ""}
    if lost := [piece for piece, at in named.items() if at is None]:
        ids = [piece for piece in lost if _LIKE_A_PLACE.fullmatch(piece)]  # other pieces may be words that were said
        rest = [f"{len(lost) - len(ids)} that are no turn ids"] if len(ids) < len(lost) else []
        place.notes.append(f"{place}: evidence of {question_id} names no turn: {', '.join(ids + rest)}")
    if not named:
        place.notes.append(f"{place}: {question_id} names no evidence")
    yield from dict.fromkeys(at for at in named.values() if at is not None)


def _numbers(value: object) -> tuple[int, int] | None:
    match = _PLACE.fullmatch(value) if isinstance(value, str) else None
    return (int(match[1]), int(match[2])) if match else None
