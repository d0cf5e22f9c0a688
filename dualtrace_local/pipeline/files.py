"""Files of a run folder and a store: private, append-only JSON lines that survive a torn end, and JSON documents written whole."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from dualtrace_local.errors import RunError

PRIVATE_FOLDER = 0o700
PRIVATE_FILE = 0o600

T = TypeVar("T")


def private_folder(path: Path) -> Path:
    """``path`` as a folder that only its owner can enter. Raises RunError when it cannot be made."""
    with _told(path):
        path.mkdir(parents=True, exist_ok=True, mode=PRIVATE_FOLDER)
        path.chmod(PRIVATE_FOLDER)
    return path


def write_json(path: Path, value: Any) -> None:
    """Write one document so that a reader sees the old or the new one, never a part. Raises RunError when it cannot be written."""
    _replace(path, json.dumps(value, ensure_ascii=False, indent=2, allow_nan=False) + "\n")


def write_text(path: Path, text: str) -> None:
    """Write a text in the same way."""
    _replace(path, text)


def private_lines(path: Path, objects: Iterable[dict[str, Any]]) -> None:
    """Write a file of JSON lines, one object at a time; it has its name only when all of it is there. Raises RunError as above."""
    beside = path.with_name(f".{path.name}.new")
    with _told(path), _private(beside, os.O_WRONLY | os.O_TRUNC) as file:
        for value in objects:
            file.write(_text([value]))
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make the names in ``folder`` durable."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@dataclass(frozen=True)
class JsonLines:
    """A file of JSON objects, one a line, split at line feeds only (other separators stay inside strings).

    ``say`` gets one line for a torn end, which no reader counts and the next ``append`` cuts off, and one for each line before it
    that holds no such object, which is passed over.
    """

    path: Path
    say: Callable[[str], None]

    def read(self) -> Iterator[dict[str, Any]]:
        """The objects in file order."""
        return self.records(dict)

    def records(self, make: Callable[[dict[str, Any]], T]) -> Iterator[T]:
        """What ``make`` makes of each object. One that it raises KeyError, TypeError or ValueError for is a bad line."""
        content = self.path.read_bytes() if self.path.exists() else b""
        *whole, torn = content.split(b"\n")
        if torn:
            self._tell_torn()
        for number, line in enumerate(whole, start=1):
            if not line.strip():
                continue
            try:
                made = make(_object(line))
            except (KeyError, TypeError, ValueError):
                self.say(f"{self.path.name}:{number}: not a whole record; the line is passed over, what it held is done again")
            else:
                yield made

    def append(self, objects: Iterable[dict[str, Any]]) -> None:
        """Add objects and make them durable. Raises RunError when they cannot be written."""
        text = _text(objects)
        if not text:
            return
        new = not self.path.exists()
        with _told(self.path), _private(self.path, os.O_RDWR) as file:
            self._cut(file.fileno())
            file.seek(0, os.SEEK_END)
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        if new:
            sync_folder(self.path.parent)

    def replace(self, objects: Iterable[dict[str, Any]]) -> None:
        """Write the file anew with these objects alone; a reader sees the old or the new one."""
        _replace(self.path, _text(objects).decode())

    def _cut(self, handle: int) -> None:
        """Take a torn end off, so that what is added starts on a new line."""
        size = os.fstat(handle).st_size
        if size and os.pread(handle, 1, size - 1) != b"\n":
            self._tell_torn()
            os.ftruncate(handle, os.pread(handle, size, 0).rfind(b"\n") + 1)

    def _tell_torn(self) -> None:
        self.say(f"{self.path.name}: the last line was cut off by an interruption and is dropped; what it held is done again")


def _object(line: bytes) -> dict[str, Any]:
    value = json.loads(line)
    if not isinstance(value, dict):
        msg = "not an object"
        raise TypeError(msg)
    return value


def _text(objects: Iterable[dict[str, Any]]) -> bytes:
    """Lone surrogates are written as escapes, which JSON reads back, so that nothing is refused."""
    lines = (json.dumps(o, ensure_ascii=False, allow_nan=False, separators=(",", ":")) + "\n" for o in objects)
    return "".join(lines).encode("utf-8", "backslashreplace")


def _replace(path: Path, text: str) -> None:
    beside = path.with_name(f".{path.name}.new")
    with _told(path), _private(beside, os.O_WRONLY | os.O_TRUNC) as file:
        file.write(text.encode("utf-8", "backslashreplace"))
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
    sync_folder(path.parent)


def _private(path: Path, flags: int) -> Any:
    return os.fdopen(os.open(path, flags | os.O_CREAT, PRIVATE_FILE), "r+b" if flags & os.O_RDWR else "wb")


@contextmanager
def _told(path: Path) -> Iterator[None]:
    """A full disk or a missing right as one line instead of a traceback."""
    try:
        yield
    except OSError as problem:
        msg = f"{path} cannot be written: {problem.strerror}; what was finished is kept, put that right and start the same command again"
        raise RunError(msg) from problem
