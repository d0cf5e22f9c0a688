"""Source files to entries: one record at a time, whatever the file's size; the format is found from the content, not the name.

Two formats, each as a JSON array or as JSONL: LongMemEval rows (s, m, oracle, cleaned) and plain sessions.
A record that cannot be read becomes a ``Rejected`` and the rest goes on; only a file that cannot be read as a whole is an error.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from dualtrace_local.records import Entry, Rejected, Scope

from .jsonl import session_entry
from .longmemeval import is_row, row_entry
from .source import Raw, decoded, file_digest, raw_records
from .text import BadRecordError, Place, parse_date

__all__ = ["file_digest", "parse_date", "read"]


def read(path: Path, scope: Scope | None = None, limit: int | None = None) -> Iterator[Entry | Rejected]:
    """The records of ``path`` in file order, at most ``limit`` of them, each an ``Entry`` or a ``Rejected``.

    Records are numbered from 1: by element in an array, by line in JSONL (blank lines count, as an editor counts them).

    Raises:
        DataError: the file is missing, a folder, empty, not text, or not JSON of one of the two kinds. Raised by the call
            itself, before the first record is asked for.
    """
    return islice(_entries(raw_records(path), path.name, scope or Scope()), limit)


def _entries(raws: Iterator[Raw], source: str, scope: Scope) -> Iterator[Entry | Rejected]:
    seen: set[str] = set()
    for raw in raws:
        place = Place(source, raw.record)
        try:
            entry = _entry(raw, place, scope)
            if entry.question and entry.question.id in seen:
                raise BadRecordError.about("question_id", entry.question.id, "appears twice")
        except BadRecordError as problem:
            yield Rejected(source, raw.record, str(problem))
            continue
        if entry.question:
            seen.add(entry.question.id)
        yield entry


def _entry(raw: Raw, place: Place, scope: Scope) -> Entry:
    value = decoded(raw, place)
    if not isinstance(value, dict):
        raise BadRecordError.kind("the record", value, "an object")
    return row_entry(value, place, scope) if is_row(value) else session_entry(value, place, scope)
