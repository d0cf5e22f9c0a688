"""Plain sessions: ``{"id", "date", "turns": [{"role", "content"}]}``, one a line or as elements of an array.

``messages``, ``session``, ``conversations`` (ShareGPT) or ``conversation`` may stand for ``turns``, ``session_id`` for ``id``. Id and date
may be missing.
"""

from __future__ import annotations

from datetime import datetime

from dualtrace_local.records import Entry, Scope, Session, digest_of

from .text import BadRecordError, Place, Record, date_field, epoch_field, given_key, id_text, turns_of

SHAREGPT = "conversations"
"""The key of the turns in ShareGPT files."""

_TURNS = ("turns", "messages", "session", SHAREGPT, "conversation")
_IDS = ("id", "session_id")


def session_entry(record: Record, place: Place, scope: Scope) -> Entry:
    """The record as an entry with one session. Raises BadRecordError naming the field."""
    name = given_key(record, _TURNS)
    if not name:
        msg = (
            "turns is missing (messages, session, conversations are read too); a benchmark row has haystack_sessions, a conversation "
            "of ChatGPT mapping, of Claude chat_messages"
        )
        raise BadRecordError(msg)
    turns = turns_of(record[name], name, place)
    given = given_key(record, _IDS)
    external = id_text(record[given], given).removeprefix("answer_") if record.get(given) is not None else ""
    session = Session(
        turns=turns,
        date=_date(record.get("date")),
        scope=scope,
        external_id=external or "text-" + digest_of([(t.role, t.text) for t in turns], length=12),
        source=place.source,
        record=place.record,
    )
    return Entry(place.source, place.record, (session,), notes=tuple(place.notes))


def _date(value: object) -> datetime | None:
    """None when there is none: an undated session is allowed, a date that cannot be read is not."""
    if value is None or (isinstance(value, str) and not value.strip()):
        return None
    if isinstance(value, int | float) and not isinstance(value, bool):
        return epoch_field(value, "date")
    return date_field(value, "date")
