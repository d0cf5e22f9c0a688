"""Values of a record to clean text, ids and dates. What is wrong is named by its field; chat text is never repeated.

Dates are naive local wall times: an offset or ``Z`` is dropped, since "yesterday" was said on the speaker's clock.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from dualtrace_local.records import Turn

Record = dict[str, Any]

_DATE = re.compile(
    r"""(?P<year>[0-9]{4}) (?P<mark>[-/.]) (?P<month>[0-9]{1,2}) (?P=mark) (?P<day>[0-9]{1,2})
    (?:\s* \(? [^\W\d_]+ \.? \)? )?                                       # a weekday in any language; not believed, not checked
    (?:[T\s]+ (?P<hour>[0-9]{1,2}) : (?P<minute>[0-9]{2}) (?: : (?P<second>[0-9]{2}) (?:[.,][0-9]+)? )?
       (?:\s* (?P<half>[AaPp])\.?[Mm]\.? )?
       (?:\s* (?:Z | UTC | [+-][0-9]{2}:?[0-9]{2}) )? )?""",
    re.VERBOSE,
)
_SURROGATES = re.compile(
    # An escaped backslash first, so that the u behind it is not taken for an escape.
    rb"""\\\\ | \\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2} | (?P<lone>\\u[dD][89a-fA-F][0-9a-fA-F]{2})""",
    re.VERBOSE,
)
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_MILLISECONDS_FROM = 1e11
"""An epoch number from here on is milliseconds: as seconds it would be after the year 5000."""
_NOON = 12
_SHOWN = 40
_SPEAKERS = ("role", "from")
_CONTENTS = ("content", "value")
_SIDES = ("system", "human", "user", "gpt", "chatgpt", "assistant")
"""Keys of a turn that holds one or more sides of a round, in the order in which they are spoken."""

ROLES = {"human": "user", "user": "user", "gpt": "assistant", "chatgpt": "assistant", "assistant": "assistant", "system": "system"}
"""What speakers are called in chat exports, in any case of letters. Others stay as they are called; none is guessed from its place."""


@dataclass
class Place:
    """Where a record stands, and the notes about what was repaired in it."""

    source: str
    record: int
    notes: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return f"{self.source}:{self.record}"


class BadRecordError(Exception):
    """This record cannot be read. Caught by ``read``, which goes on with the next one."""

    @classmethod
    def about(cls, name: str, value: object, what: str) -> BadRecordError:
        """``name what: value``. Only for dates and ids; nothing that was said may stand in a message."""
        return cls(f"{name} {what}: {shown(value)}")

    @classmethod
    def kind(cls, name: str, value: object, expected: str) -> BadRecordError:
        """``name`` has a wrong JSON type."""
        return cls(f"{name} is {_KINDS.get(type(value), 'something else')}, not {expected}")


_KINDS = {
    dict: "an object",
    list: "a list",
    str: "text",
    int: "a number",
    float: "a number",
    bool: "true or false",
    type(None): "null",
}


def shown(value: object) -> str:
    """A short printable form on one line."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    text = text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"
    return "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in text)


def without_lone_surrogates(data: bytes, place: Place) -> bytes:
    """JSON in which each half of a surrogate pair that stands alone is U+FFFD, with one note for the record.

    Done before anything is parsed or hashed: half a pair is legal JSON, and no UTF-8.
    """
    lone = 0

    def repair(match: re.Match[bytes]) -> bytes:
        nonlocal lone
        lone += match.lastgroup == "lone"
        return rb"\ufffd" if match.lastgroup == "lone" else match.group()

    repaired = _SURROGATES.sub(repair, data)
    if lone:
        place.notes.append(f"{place}: {lone} half surrogate{'' if lone == 1 else 's'} replaced by U+FFFD")
    return repaired


def parse_date(text: str) -> datetime | None:
    """``2023/05/30 (Tue) 23:40`` and its relatives as a naive local time, or None. The same under every locale and clock.

    Read: year first with ``-``, ``/`` or ``.``; a weekday in any language; hours and minutes, seconds, fractions, am and pm;
    ``Z`` or an offset, which is dropped.
    """
    match = _DATE.fullmatch(text.strip())
    if match is None:
        return None
    year, month, day, hour, minute, second = (int(match[g] or 0) for g in ("year", "month", "day", "hour", "minute", "second"))
    if match["half"]:
        if not 1 <= hour <= _NOON:
            return None
        hour = hour % _NOON + (_NOON if match["half"] in "pP" else 0)
    try:
        return datetime(year, month, day, hour, minute, second)
    except ValueError:
        return None


def date_field(value: object, name: str) -> datetime:
    """A date that must be there. Raises BadRecordError ``name not readable: value``; never falls back to today."""
    date = parse_date(value) if isinstance(value, str) else None
    if date is None:
        raise BadRecordError.about(name, value, "not readable")
    return date


def epoch_field(value: float, name: str) -> datetime:
    """Seconds or milliseconds since 1970 as UTC wall time, since a number carries no zone."""
    try:
        seconds = value / 1000 if abs(value) >= _MILLISECONDS_FROM else value
        return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)).replace(tzinfo=None)
    except (OverflowError, ValueError):
        raise BadRecordError.about(name, value, "not readable") from None


def text_field(value: object, name: str) -> str:
    """Text as said, without the carriage returns of Windows line ends; everything else in it stays."""
    if not isinstance(value, str):
        raise BadRecordError.kind(name, value, "text")
    return value.replace("\r\n", "\n").rstrip("\r")


def id_text(value: object, name: str) -> str:
    """An id as one line of text: numbers become text, control characters their visible pictures (``a␊b``)."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise BadRecordError.kind(name, value, "text or a number")
    return _CONTROL.sub(_picture, str(value)).strip()


def turns_of(value: object, name: str, place: Place) -> tuple[Turn, ...]:
    """A list of turns, each ``{"role", "content"}``, ``{"from", "value"}`` (ShareGPT) or both sides as ``{"user", "assistant"}``.

    Order is kept. Of several keys for one thing the first that is not null counts; content null is blank, parts of text are joined.
    """
    if not isinstance(value, list):
        raise BadRecordError.kind(name, value, "a list")
    return tuple(turn for n, given in enumerate(value) for turn in _turns(given, f"{name}[{n}]", place))


def _turns(value: object, name: str, place: Place) -> Iterator[Turn]:
    if not isinstance(value, dict):
        raise BadRecordError.kind(name, value, "an object")
    speaker, content = given_key(value, _SPEAKERS), given_key(value, _CONTENTS)
    if not speaker and not content and (sides := [side for side in _SIDES if side in value]):
        for side in sides:
            yield Turn(ROLES[side], _content(value[side], f"{name}.{side}", place))
        return
    if not speaker or not content:
        msg = f"{name}.{'content' if speaker else 'role'} is missing"
        raise BadRecordError(msg)
    role = text_field(value[speaker], f"{name}.{speaker}")
    yield Turn(ROLES.get(role.lower(), role), _content(value[content], f"{name}.{content}", place))


def given_key(record: Record, names: Sequence[str]) -> str:
    """Which of ``names`` the record has: the first that is not null, else the first, else none (empty)."""
    found = [name for name in names if name in record]
    return next((name for name in found if record[name] is not None), found[0] if found else "")


def _content(content: object, name: str, place: Place) -> str:
    if content is None:
        return ""
    return text_field(_joined(content, name, place) if isinstance(content, list) else content, name)


def _joined(parts: list[object], name: str, place: Place) -> str:
    """The text parts of a message, one under the other; parts that are no text are left out with a note."""
    texts = [p if isinstance(p, str) else p.get("text") if isinstance(p, dict) else p for p in parts]
    for n, (part, text) in enumerate(zip(parts, texts, strict=True)):
        if not isinstance(text, str) and not (isinstance(part, dict) and "text" not in part):
            part_name = f"{name}[{n}]"
            raise BadRecordError.kind(part_name, text, "text")
    if left_out := sum(not isinstance(t, str) for t in texts):
        place.notes.append(f"{place}: {name}: {left_out} of {len(parts)} parts hold no text and were left out")
    return "\n".join(t for t in texts if isinstance(t, str))


def _picture(match: re.Match[str]) -> str:
    code = ord(match.group())
    if code < ord(" "):
        return chr(0x2400 + code)
    return "\u2421" if match.group() == "\x7f" else "\ufffd"
