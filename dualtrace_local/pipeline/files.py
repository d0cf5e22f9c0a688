"""Files of a run folder and a store: private, append-only JSON lines that survive a torn end, and JSON documents written whole."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PRIVATE_FOLDER = 0o700
PRIVATE_FILE = 0o600


def private_folder(path: Path) -> Path:
    """``path`` as a folder that only its owner can enter."""
    path.mkdir(parents=True, exist_ok=True, mode=PRIVATE_FOLDER)
    path.chmod(PRIVATE_FOLDER)
    return path


def write_json(path: Path, value: Any) -> None:
    """Write one document so that a reader sees the old or the new one, never a part."""
    text = json.dumps(value, ensure_ascii=False, indent=2, allow_nan=False) + "\n"
    beside = path.with_name(f".{path.name}.new")
    with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, PRIVATE_FILE), "wb") as file:
        file.write(text.encode("utf-8", "backslashreplace"))
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
    """An append-only file of JSON objects, one a line, split at line feeds only (other separators stay inside strings).

    ``say`` gets one line for a torn end, which is cut off, and one for each unreadable line before it, which is passed over.
    """

    path: Path
    say: Callable[[str], None]

    def read(self) -> Iterator[dict[str, Any]]:
        """The objects in file order. A torn last line is removed from the file, so that the next append starts on a new line."""
        if not self.path.exists():
            return
        content = self.path.read_bytes()
        whole, torn = content.rsplit(b"\n", 1) if b"\n" in content else (b"", content)
        if torn:
            self.say(f"{self.path.name}: the last line was cut off by an interruption and is dropped; it is done again")
            with self.path.open("r+b") as file:
                file.truncate(len(content) - len(torn))
                os.fsync(file.fileno())
        for number, line in enumerate(whole.split(b"\n"), start=1):
            if not line.strip():
                continue
            try:
                value = json.loads(line)
            except ValueError:
                value = None
            if isinstance(value, dict):
                yield value
            else:
                self.say(f"{self.path.name}:{number}: not a JSON object; the line is passed over, what it held is done again")

    def append(self, objects: Iterable[dict[str, Any]]) -> None:
        """Add objects and make them durable. Lone surrogates are written as escapes, so that nothing is refused."""
        lines = [json.dumps(o, ensure_ascii=False, allow_nan=False, separators=(",", ":")) + "\n" for o in objects]
        if not lines:
            return
        new = not self.path.exists()
        with os.fdopen(os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, PRIVATE_FILE), "ab") as file:
            file.write("".join(lines).encode("utf-8", "backslashreplace"))
            file.flush()
            os.fsync(file.fileno())
        if new:
            sync_folder(self.path.parent)
