"""Check sums of the store's files, a line a file (SHA-256, size, path), so that one changed byte is found and named.

LanceDB writes a file once and never again; the few that change are left out and checked by what they say.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from .folder import NEWEST

SUMS = ".sums"
HINT = "latest_version_hint.json"
CHANGING = frozenset({SUMS, f"{SUMS}.new", ".lock", ".forgetting", HINT, "teaching", "failures.jsonl"})
"""Names of files that are written more than once."""


@dataclass(frozen=True)
class Sum:
    """One line."""

    digest: str
    size: int


def read_sums(root: Path) -> tuple[dict[str, Sum], list[int]]:
    """The sums by path below ``root``, the last line of each path, and the numbers of lines that are none. A torn end is no line."""
    found: dict[str, Sum] = {}
    bad: list[int] = []
    content = (root / SUMS).read_bytes() if (root / SUMS).exists() else b""
    for number, line in enumerate(content.split(b"\n")[:-1], start=1):
        digest, _, rest = line.decode("utf-8", "replace").partition(" ")
        size, _, name = rest.partition(" ")
        if len(digest) == hashlib.sha256().digest_size * 2 and size.isdecimal() and name:
            found[name] = Sum(digest, int(size))
        else:
            bad.append(number)
    return found, bad


def note_sums(root: Path, changed: Collection[str], *, first: bool) -> None:
    """Write down the sums of files that have just reached the disk (absolute paths).

    ``first``: all files of the store are given. Those that have a line keep it, so that a sum never follows damage; lines of files that
    are gone are dropped.
    """
    names = {os.path.relpath(path, root): path for path in changed if os.path.basename(path) not in CHANGING}  # noqa: PTH119 - hot walk
    known = prune_sums(root) if first else {}
    lines = [f"{s.digest} {s.size} {name}\n" for name, path in names.items() if name not in known and (s := sum_of(Path(path)))]
    if lines:
        _write(root / SUMS, "".join(lines))


def prune_sums(root: Path, *, damaged: bool = False) -> dict[str, Sum]:
    """Drop the lines of files that are gone, so that none speaks of a later file of the same name; what is left.

    ``damaged``: lines of files of another size too, after the damage was told and nothing rests on those files any more.
    """
    before, bad = read_sums(root)
    kept = {name: s for name, s in before.items() if (root / name).exists() and not (damaged and (root / name).stat().st_size != s.size)}
    if len(kept) < len(before) or bad:
        beside = root / f"{SUMS}.new"
        beside.unlink(missing_ok=True)
        _write(beside, "".join(f"{s.digest} {s.size} {name}\n" for name, s in kept.items()))
        beside.replace(root / SUMS)
    return kept


def sum_of(path: Path) -> Sum | None:
    """The sum of a file, None when it is gone."""
    try:
        with path.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
            return Sum(digest, stream.tell())
    except FileNotFoundError:
        return None


def _write(place: Path, text: str) -> None:
    """Add to a file. A torn end is closed by a line end first: it is a bad line then, which the next opening drops."""
    handle = os.open(place, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
    with os.fdopen(handle, "r+b") as stream:
        size = os.fstat(handle).st_size
        torn = size and os.pread(handle, 1, size - 1) != b"\n"
        stream.write((b"\n" if torn else b"") + text.encode())
        stream.flush()
        os.fsync(handle)


def changed_files(root: Path, *, read: bool) -> Iterator[tuple[str, str]]:
    """Path and what is wrong, of each file that is not as it was written: its size, with ``read`` every byte.

    A line whose file is gone says nothing: LanceDB removes files that it no longer needs. What it needs is found missing when read.
    """
    sums, bad = read_sums(root)
    for number in bad:
        yield SUMS, f"line {number} is not a check sum"
    for name, wanted in sorted(sums.items()):
        path = root / name
        if not path.is_file():
            continue
        if path.stat().st_size != wanted.size:
            yield name, f"has {path.stat().st_size} bytes, {wanted.size} were written"
        elif read and (found := sum_of(path)) and found.digest != wanted.digest:
            yield name, "its bytes are not those that were written"
    for hint in sorted(root.glob(f"*.lance/_versions/{HINT}")):
        if _hinted(hint) != (newest := _newest(hint.parent)):
            yield str(hint.relative_to(root)), f"does not say that {newest} is the newest version"


def _newest(versions: Path) -> int:
    return max((NEWEST - int(f.stem) for f in versions.glob("*.manifest") if f.stem.isdecimal()), default=0)


def _hinted(hint: Path) -> int:
    try:
        value = json.loads(hint.read_bytes())
    except ValueError:
        return -1
    version = value.get("version") if isinstance(value, dict) else None
    return version if isinstance(version, int) else -1
