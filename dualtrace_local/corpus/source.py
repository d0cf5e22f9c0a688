"""Bytes to raw records without reading the file into memory: elements of a JSON array, lines of a JSONL file, one object, or chats as text.

Which of them, and whether it is packed with gzip, is told by the content; the name means nothing.

The array is cut into its elements by following quotes and brackets, so that a broken element costs itself alone, a torn end
costs the last one, and lone surrogates and bad bytes are met one record at a time (event parsers stop at the first of them).
"""

from __future__ import annotations

import codecs
import gzip
import hashlib
import io
import json
import math
import re
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NoReturn

from dualtrace_local.errors import DataError

from .chats import chat_record, cut, style
from .foreign import GZIP, foreign
from .packed import Unpacked
from .text import BadRecordError, Place, without_lone_surrogates

CHUNK = 1 << 18
"""Bytes read at a time."""

MOST = 64 << 20
"""Longest record in bytes. LongMemEval-M rows are about 5 MB; a record without an end must not fill the memory."""

_SPACE = b" \t\r\n"
_PROBE = 1 << 16
_HEAD = 512

Layout = Literal["array", "lines", "object", "text"]
_IN_STRING = re.compile(rb'(?:[^"\\]++|\\.)*+', re.DOTALL)
_INSIDE = re.compile(rb'["{}\[\]]')
_BETWEEN = re.compile(rb'["{}\[\],]')


@dataclass(frozen=True)
class Part:
    """One file: by itself, in a folder, or the ``member`` of a zip archive at ``path``. ``name`` is what lines and provenance call it."""

    path: Path
    name: str
    member: str = ""


@dataclass(frozen=True)
class Raw:
    """The bytes of one record, its 1-based number, and why it cannot be read when the cutting already shows that.

    ``text``: they are a chat as text and not JSON.
    """

    record: int
    data: bytes
    fault: str = ""
    text: bool = False


def raw_records(part: Part) -> Iterator[Raw]:
    """The raw records of a file. Raises DataError at the call when the file as a whole cannot be read."""
    return _opened(part, layout(part))


def is_packed(part: Part) -> bool:
    """Whether the file is packed with gzip. Raises DataError when it cannot be read."""
    if part.member:
        return False
    try:
        with part.path.open("rb") as file:
            return file.read(len(GZIP)) == GZIP
    except OSError as problem:
        unreadable(part.path, problem)


@contextmanager
def content(part: Part) -> Iterator[tuple[io.BufferedReader[Any], Unpacked | None]]:
    """The content of the file as a stream, unpacked where it is packed; then the second is what tells of faults in it."""
    if part.member:
        with zipfile.ZipFile(part.path) as archive, archive.open(part.member) as packed:
            unpacked = Unpacked(packed, archive.getinfo(part.member).compress_size, "zip archive")
            with io.BufferedReader(unpacked, CHUNK) as file:
                yield file, unpacked
    elif is_packed(part):
        with gzip.open(part.path, "rb") as packed:
            unpacked = Unpacked(packed, part.path.stat().st_size, "gzip file")
            with io.BufferedReader(unpacked, CHUNK) as file:
                yield file, unpacked
    else:
        with part.path.open("rb") as file:
            yield file, None


def layout(part: Part) -> Layout:
    """How the records lie in a file. Raises DataError when it holds none that can be read."""
    try:
        with content(part) as (file, unpacked):
            head = probe = file.read(_PROBE).removeprefix(codecs.BOM_UTF8)
            while probe and not probe.strip(_SPACE):
                probe = file.read(_PROBE)
    except OSError as problem:
        unreadable(part.path, problem)
    except zipfile.BadZipFile:
        raise DataError(f"{part.name} is damaged; copy the zip archive again.") from None
    probe = probe.lstrip(_SPACE)
    if what := _no_chats(head, probe, unpacked.fault if unpacked else ""):
        raise DataError(f"{part.name}{what}.")
    if style(probe):
        return "text"
    if probe.startswith(b"["):
        return "array"
    lines = [line for line in probe.split(b"\n") if line.strip(_SPACE)]
    if not any(line.lstrip(_SPACE).startswith(b"{") for line in lines):
        msg = (
            f"{part.name} is not JSON: it begins neither with '[' (an array) nor with '{{' (JSONL); and as a chat in text it would begin "
            "with a speaker (`## User`, `**User:** ...` or `User: ...`); see the README for the forms."
        )
        raise DataError(msg)
    inner = len(lines) > 1 and lines[1][:1] in b' \t"}' and not _is_json(lines[0])
    records = any(line.lstrip(_SPACE).startswith(b"{") and _is_json(line) for line in lines[1:-1])
    return "object" if inner and not records else "lines"


def _no_chats(head: bytes, probe: bytes, fault: str) -> str:
    """What is wrong with a file that begins with ``head``, or after white space with ``probe``, and what to do; else empty."""
    if not probe:
        return f": {fault}" if fault else " is empty; give chats in one of the forms that the README names under Data"
    if what := foreign(head[:_HEAD]):
        return f" {what}"
    if probe.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) or b"\0" in probe[:4]:
        return " is UTF-16 or binary; save it as UTF-8"
    return ""


def file_digest(path: Path) -> str:
    """Hex SHA-256 of the file's bytes. Raises DataError when it cannot be read."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as problem:
        unreadable(path, problem)


def content_digest(part: Part) -> str:
    """Hex SHA-256 of what is in the file, unpacked where it is packed. Raises DataError when it cannot be read."""
    if not part.member and not is_packed(part):
        return file_digest(part.path)
    digest = hashlib.sha256()
    with content(part) as (file, _):
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def size_and_digest(part: Part) -> tuple[int, str]:
    """Bytes and SHA-256 of the file as it lies there; of a member of an archive, unpacked."""
    if not part.member:
        return part.path.stat().st_size, file_digest(part.path)
    with zipfile.ZipFile(part.path) as archive:
        return archive.getinfo(part.member).file_size, content_digest(part)


def decoded(raw: Raw, place: Place) -> object:
    """The JSON value of a record, or a chat in text as one. Raises BadRecordError: bad UTF-8, broken JSON, NaN, or nested too deeply."""
    if raw.fault:
        raise BadRecordError(raw.fault)
    if raw.text:
        return chat_record(raw.data)
    try:
        return json.loads(without_lone_surrogates(raw.data, place).decode(), parse_constant=_no_constant, parse_float=_finite)
    except UnicodeDecodeError as problem:
        msg = f"not UTF-8 at byte {problem.start + 1} of the record"
    except json.JSONDecodeError as problem:
        msg = f"broken JSON at character {problem.pos + 1} of the record: {problem.msg}"
    except RecursionError:
        msg = "nested too deeply"
    except ValueError:
        # Python refuses integers of more than 4,300 digits.
        msg = "holds a number that is too long"
    raise BadRecordError(msg)


def _opened(part: Part, how: Layout) -> Iterator[Raw]:
    try:
        with content(part) as (file, unpacked):
            if file.peek(3).startswith(codecs.BOM_UTF8):
                file.read(3)
            last = Raw(0, b"")
            for raw in {"array": _elements, "lines": _lines, "object": _object, "text": _chats}[how](file):
                if last.record:
                    yield last
                last = raw
            if unpacked and unpacked.fault:
                torn = bool(last.fault) or last.text or not _is_json(last.data)
                if not torn:
                    yield last
                last = Raw(last.record if last.record and torn else last.record + 1, b"", unpacked.fault)
            if last.record:
                yield last
    except OSError as problem:
        unreadable(part.path, problem)


def _chats(file: io.BufferedReader[Any]) -> Iterator[Raw]:
    for record, data in enumerate(cut(file, MOST), start=1):
        yield _too_long(record) if data is None else Raw(record, data, text=True)


def _lines(file: io.BufferedReader[Any]) -> Iterator[Raw]:
    record = 0
    while line := file.readline(MOST + 1):
        record += 1
        if len(line) > MOST and not line.endswith(b"\n"):
            while line and not line.endswith(b"\n"):
                line = file.readline(CHUNK)
            yield _too_long(record)
        elif line.strip(_SPACE):
            yield Raw(record, line.strip(_SPACE))
        else:
            # A gigabyte of blank lines is gone through at the speed of the disk.
            while (ahead := file.peek(CHUNK)) and not ahead.strip(_SPACE) and b"\n" in ahead:
                record += file.read(ahead.rfind(b"\n") + 1).count(b"\n")


def _object(file: io.BufferedReader[Any]) -> Iterator[Raw]:
    """The whole file as one record."""
    data = file.read(MOST + 1)
    yield _too_long(1) if len(data) > MOST else Raw(1, data.strip(_SPACE))


class _Cutter:
    """Follows quotes and brackets through bytes that arrive in pieces, and says where elements end."""

    def __init__(self) -> None:
        self.buffer = bytearray()
        self.at = 0
        self.depth = 0
        self.in_string = False

    def feed(self, chunk: bytes) -> Iterator[tuple[bytes, bool]]:
        """Each element that is whole by now, and whether the array ended behind it."""
        self.buffer += chunk
        while True:
            if self.in_string:
                match = _IN_STRING.match(self.buffer, self.at)
                self.at = match.end() if match else self.at
                if self.at >= len(self.buffer) or self.buffer[self.at] != ord('"'):
                    return
                self.at += 1
                self.in_string = False
                continue
            mark = (_INSIDE if self.depth else _BETWEEN).search(self.buffer, self.at)
            if mark is None:
                self.at = len(self.buffer)
                return
            self.at = mark.end()
            byte = mark.group()
            if byte == b'"':
                self.in_string = True
            elif byte in b"{[":
                self.depth += 1
            elif self.depth:
                self.depth -= 1
            elif byte in b",]":
                element = bytes(self.buffer[: self.at - 1]).strip(_SPACE)
                del self.buffer[: self.at]
                self.at = 0
                yield element, byte == b"]"


def _elements(file: io.BufferedReader[Any]) -> Iterator[Raw]:
    cutter = _Cutter()
    record = 0
    head = file.read(CHUNK).lstrip(_SPACE)
    while not head:
        head = file.read(CHUNK).lstrip(_SPACE)
    chunk = head[1:]
    while True:
        for element, last in cutter.feed(chunk):
            # A comma before the closing bracket, and an empty array, are no record.
            if element or not last:
                record += 1
                yield Raw(record, element, "" if element else "nothing between two commas")
            if last:
                if cutter.buffer.strip(_SPACE) or any(more.strip(_SPACE) for more in iter(lambda: file.read(CHUNK), b"")):
                    yield Raw(record + 1, b"", "text after the end of the array is not read")
                return
        if len(cutter.buffer) > MOST:
            yield _too_long(record + 1)
            return
        chunk = file.read(CHUNK)
        if not chunk:
            break
    rest = bytes(cutter.buffer).strip(_SPACE)
    if rest and _is_json(rest):
        record += 1
        yield Raw(record, rest)
        rest = b""
    yield Raw(record + 1, b"", "the file is cut off inside this record" if rest else "the file is cut off: the array has no end")


def _too_long(record: int) -> Raw:
    return Raw(record, b"", f"the record is longer than {MOST >> 20} MiB or has no end; what follows it in an array is not read")


def _is_json(data: bytes) -> bool:
    try:
        json.loads(data)
    except (ValueError, RecursionError):
        return False
    return True


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise BadRecordError("holds a number that is too large")
    return value


def _no_constant(name: str) -> NoReturn:
    msg = f"holds {name}, which is not JSON"
    raise BadRecordError(msg)


def unreadable(path: Path, problem: OSError) -> NoReturn:
    """Say why a file cannot be read. Raises DataError."""
    what = "is a folder; name the files in it" if path.is_dir() else f"cannot be read: {problem.strerror}; check the path"
    msg = f"{path.name or path} {what}."
    raise DataError(msg) from problem
