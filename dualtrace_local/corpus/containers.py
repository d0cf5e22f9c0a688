"""Folders and zip archives: which of their files hold chats that a person exported. Told by the content; nothing is unpacked to disk."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import NoReturn

from dualtrace_local.errors import DataError

from .exported import is_chatgpt, is_claude
from .foreign import ZIPS
from .source import Part, decoded, layout, raw_records, unreadable
from .text import BadRecordError, Place, id_text

TRIED = 100
"""Records that are looked at before a file counts as none of chats."""

_ENCRYPTED = 1
_PACKINGS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


@dataclass(frozen=True)
class Found:
    """The files of a source that hold chats, in order of their names, and how many others it has."""

    parts: tuple[Part, ...]
    others: int = 0


def found(path: Path) -> Found:
    """The files to read for ``path``: itself, or the exported chats in a folder or zip archive.

    In a folder and its folders (no deeper) and in an archive, exports of ChatGPT and Claude and chats as Markdown or text are looked for;
    files of other formats are named one by one instead. Raises DataError when there are none, or when an archive cannot be read.
    """
    if path.is_dir():
        candidates = tuple(_in_folder(path))
    elif _is_zip(path):
        candidates = tuple(_in_archive(path))
    else:
        return Found((Part(path, _name(path.name)),))
    parts = tuple(part for part in candidates if _holds_chats(part))
    if not parts:
        _no_export(path)
    return Found(parts, len(candidates) - len(parts))


def _no_export(path: Path) -> NoReturn:
    what = "is a folder" if path.is_dir() else "is a zip archive or an Office file (xlsx, docx)"
    remedy = "name the files in it" if path.is_dir() else "unpack it and name the JSON file that was in it"
    raise DataError(f"{path.name or path} {what} without an export of ChatGPT or Claude or chats as text; {remedy}.")


def _is_zip(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(4) in ZIPS
    except OSError as problem:
        unreadable(path, problem)


def _in_folder(path: Path) -> Iterator[Part]:
    try:
        files = sorted(f for pattern in ("*", "*/*") for f in path.glob(pattern) if f.is_file())
    except OSError as problem:
        unreadable(path, problem)
    for file in files:
        yield Part(file, _name(f"{path.name}/{file.relative_to(path).as_posix()}"))


def _in_archive(path: Path) -> Iterator[Part]:
    try:
        with zipfile.ZipFile(path) as archive:
            members = sorted((m for m in archive.infolist() if not m.is_dir()), key=lambda m: m.filename)
    except (zipfile.BadZipFile, NotImplementedError, UnicodeDecodeError):  # the second for a version of zip that Python does not know
        raise DataError(f"{path.name} is a damaged zip archive; copy it again, or unpack it and name the file in it.") from None
    except OSError as problem:
        unreadable(path, problem)
    for member in members:
        if member.flag_bits & _ENCRYPTED or member.compress_type not in _PACKINGS:
            how = "protected by a password" if member.flag_bits & _ENCRYPTED else "packed in a way that is not read here"
            raise DataError(f"{path.name} is {how}; unpack it and name the folder.")
        yield Part(path, _name(f"{path.name}/{member.filename}"), member.filename)


def _name(text: str) -> str:
    """A file's name as text on one line: bytes that are no UTF-8 stand there as escapes."""
    return id_text(text.encode("utf-8", "backslashreplace").decode(), "name")


def _holds_chats(part: Part) -> bool:
    try:
        if layout(part) == "text":
            return True
        raws = raw_records(part)
    except DataError:
        return False
    for raw in islice(raws, TRIED):
        try:
            record = decoded(raw, Place(part.name, raw.record))
        except BadRecordError:
            continue
        if isinstance(record, dict):
            return is_chatgpt(record) or is_claude(record)
    return False
