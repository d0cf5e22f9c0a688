"""Source files to entries: one record at a time, whatever the file's size; the format is found from the content, not the name.

LongMemEval rows (s, m, oracle, cleaned), LoCoMo conversations, ShareGPT conversations, conversations of ChatGPT and Claude exports and
plain sessions, each as a JSON array, as JSONL or as one object, packed with gzip or not; chats as Markdown or text; exports as a folder or
zip archive. A record that cannot be read becomes a ``Rejected`` and the rest goes on; only a file that cannot be read as a whole, or
that this program wrote itself, is an error.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path

from dualtrace_local.errors import DataError
from dualtrace_local.records import Entry, Rejected, Scope

from .containers import found
from .exported import chatgpt_entry, claude_entry, is_chatgpt, is_claude
from .foreign import own
from .jsonl import SHAREGPT, session_entry
from .locomo import conversation_entries, is_conversation
from .longmemeval import is_row, row_entry
from .names import file_name
from .source import Part, Raw, decoded, file_digest, raw_records
from .text import BadRecordError, Place, Record, parse_date

__all__ = ["Parsed", "file_digest", "file_name", "found", "parse_date", "parsed", "read"]

HOPELESS = 100_000
"""Records in a row that cannot be read, from which the rest of a file is left: it holds something else than chats."""


@dataclass(frozen=True)
class Parsed:
    """What was read from one record: its format, and one or (from a conversation with many questions) several entries.

    ``format`` is ``longmemeval``, ``locomo``, ``sharegpt``, ``chatgpt``, ``claude``, ``text`` or ``sessions``, and empty where the record
    is no JSON object.
    """

    record: int
    format: str
    found: tuple[Entry | Rejected, ...]


def read(path: Path, scope: Scope | None = None, limit: int | None = None) -> Iterator[Entry | Rejected]:
    """The entries of ``path`` in file order, at most ``limit`` of them, each an ``Entry`` or a ``Rejected``.

    Records are numbered from 1: by element in an array, by line in JSONL (blank lines count, as an editor counts them), by chat in text;
    each file of a folder or archive has numbers of its own. Every record is one entry, but a LoCoMo conversation, which is one for each of
    its questions; these have the same tuple of sessions.

    Raises:
        DataError: the file is missing, empty, none that can be read, or output of this program; a folder or archive holds no export.
            Raised by the call itself, before the first record is asked for; of later files of a folder, when they are reached.
    """
    first, *others = found(path).parts
    records = chain(parsed(first, scope), chain.from_iterable(parsed(part, scope) for part in others))
    return islice(chain.from_iterable(record.found for record in records), limit)


def parsed(part: Part, scope: Scope | None = None) -> Iterator[Parsed]:
    """The records of one file with their format; as ``read``."""
    raws = raw_records(part)
    first = next(raws, None)
    if first is not None and (what := _own(first, Place(part.name, first.record))):
        msg = f"{part.name} holds {what}; what this program wrote is never taught."
        raise DataError(msg)
    return _parsed(chain(() if first is None else (first,), raws), part.name, scope or Scope())


def _own(raw: Raw, place: Place) -> str:
    try:
        value = decoded(raw, place)
    except BadRecordError:
        return ""
    return own(value) if isinstance(value, dict) else ""


def _parsed(raws: Iterator[Raw], source: str, scope: Scope) -> Iterator[Parsed]:
    asked: set[str] = set()
    told: set[str] = set()
    bad = 0
    for raw in raws:
        place = Place(source, raw.record)
        name = ""
        found: tuple[Entry | Rejected, ...]
        try:
            value = decoded(raw, place)
            if not isinstance(value, dict):
                raise BadRecordError.kind("the record", value, "an object")
            name = "text" if raw.text else format_of(value)
            found = tuple(_once(entry, asked) for entry in _entries(name, value, place, scope, told))
        except BadRecordError as problem:
            found = (Rejected(source, raw.record, str(problem)),)
        bad = 0 if any(isinstance(entry, Entry) for entry in found) else bad + 1
        yield Parsed(raw.record, name, found)
        if bad == HOPELESS:
            yield Parsed(raw.record, "", (Rejected(source, raw.record + 1, f"{bad} records in a row cannot be read; the rest is left"),))
            return


def format_of(record: Record) -> str:
    """Which format a record is meant to have (it may still lack fields)."""
    if is_row(record):
        return "longmemeval"
    if is_conversation(record):
        return "locomo"
    if is_claude(record):
        return "claude"
    if is_chatgpt(record):
        return "chatgpt"
    return "sharegpt" if SHAREGPT in record else "sessions"


def _entries(name: str, record: Record, place: Place, scope: Scope, told: set[str]) -> tuple[Entry | Rejected, ...]:
    if what := own(record):
        msg = f"{what}; what this program wrote is never taught"
        raise BadRecordError(msg)
    if name == "locomo":
        return conversation_entries(record, place, scope, told)
    entry_of = {"longmemeval": row_entry, "chatgpt": chatgpt_entry, "claude": claude_entry}.get(name, session_entry)
    return (entry_of(record, place, scope),)


def _once(entry: Entry | Rejected, asked: set[str]) -> Entry | Rejected:
    """The entry, or why its question is not asked: every question id may stand once in a file."""
    if isinstance(entry, Rejected) or entry.question is None:
        return entry
    if entry.question.id in asked:
        return Rejected(entry.source, entry.record, str(BadRecordError.about("question_id", entry.question.id, "appears twice")))
    asked.add(entry.question.id)
    return entry
