"""Looking for what was removed in the bytes of files: texts, ids and vectors, as UTF-8, in small letters and as UTF-16.

Text columns of the store are not compressed, so that this can see them; a look before the removal is the control that it does.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from .erase import OWNER
from .folder import Folder
from .tables import is_any

SHORTEST, LONGEST = 10, 48
"""Characters of a piece of text that is looked for. Shorter ones are found everywhere by chance; of longer ones both ends are taken."""

_WORD = 8
"""Bytes by which a place is found; every needle is at least as long."""

_BREAKS = re.compile(r'["\\\x00-\x1f]+')
"""Where JSON writes a text otherwise than it is."""

_TEXTS = {
    "sessions": ("evidence",),
    "memories": ("scene", "components", "evidence"),
    "versions": ("scene", "components"),
    "rounds": ("said", "answered"),
    "vectors": ("text", "terms"),
}


@dataclass(frozen=True)
class Needle:
    """Something to be found: its bytes, and whether it is a ``text``, an ``id`` or a ``vector``."""

    kind: str
    content: bytes


Needles = frozenset[Needle]


def pieces(text: str) -> Iterator[str]:
    """What is looked for of one text: both ends of each run of it that every file writes as it is."""
    for run in _BREAKS.split(text):
        if len(run) >= SHORTEST:
            yield run[:LONGEST]
            yield run[-LONGEST:]


def needles_of(folder: Folder, whole: Collection[str], single: Collection[str]) -> Needles:
    """Everything of these sessions, and of these memories and rounds, that is in no other row too.

    Keys of whole sessions and ids of single memories and rounds are not among them: ``forgotten`` keeps those.
    """
    going: set[str] = set()
    ids: set[str] = set()
    vectors: set[bytes] = set()
    staying: list[bytes] = []
    for table, columns in _TEXTS.items():
        for row in folder.rows(table):
            goes = row["key" if table == "sessions" else "session_key"] in whole or row.get(_owner(table)) in single
            texts = [text for column in columns for text in _strings(column, row[column])]
            vector = np.asarray(row.get("vector", ()), np.float32).tobytes()
            if not goes:
                staying += [form.encode() for text in texts for form in (text, text.lower())] + [vector]
                continue
            going |= {form for text in texts for piece in pieces(text) for form in (piece, piece.lower())}
            ids |= {row["id"]} - set(single) if "id" in row else set()
            vectors |= {vector[:64], vector[-64:]} if vector else set()
    found = {Needle("text", text.encode()): text for text in going if len(text.encode()) >= _WORD}
    found |= {Needle("vector", part): "" for part in vectors}
    for shared in seen(b"\n".join(staying), found):
        del found[shared]
    wide = {Needle("text", text.encode("utf-16-le")) for text in found.values() if text}
    return frozenset(found) | wide | {Needle("id", i.encode(code)) for i in ids for code in ("utf-8", "utf-16-le")}


def _strings(column: str, value: str) -> list[str]:
    """The texts in a column: of components their sentences, the user's words and spoken dates, of evidence the user's words."""
    if column == "components":
        return [text for c in json.loads(value) for text in (c["text"], c["quote"], *(e["spoken"] for e in c["events"]))]
    return list(json.loads(value)["basis"]) if column == "evidence" else [value]


def _owner(table: str) -> str:
    return OWNER.get(table, "key")


def seen(data: bytes, needles: Iterable[Needle]) -> set[Needle]:
    """Those of ``needles`` that are in ``data``: every eight bytes at every place are compared with the beginnings of all needles."""
    by_start: dict[int, list[Needle]] = {}
    for needle in needles:
        by_start.setdefault(int.from_bytes(needle.content[:_WORD], "little"), []).append(needle)
    if not by_start or len(data) < _WORD:
        return set()
    starts = np.array(sorted(by_start), dtype="<u8")
    found: set[Needle] = set()
    for offset in range(min(_WORD, len(data) - _WORD + 1)):
        words = np.frombuffer(data, "<u8", count=(len(data) - offset) // _WORD, offset=offset)
        at = np.minimum(np.searchsorted(starts, words), len(starts) - 1)
        for place in np.flatnonzero(starts[at] == words):
            begin = offset + _WORD * int(place)
            found |= {n for n in by_start[int(words[place])] if data.startswith(n.content, begin)}
    return found


def search_files(root: Path, needles: Needles, *, but: Collection[str] = ()) -> dict[Path, set[Needle]]:
    """What is found in which file below ``root``, what is packed with gzip unpacked too. ``but`` names files that are left out."""
    found: dict[Path, set[Needle]] = {}
    for path in sorted(p for p in root.rglob("*") if p.is_file() and p.name not in but):
        data = path.read_bytes()
        there = seen(data, needles) | (seen(gzip.decompress(data), needles) if data[:2] == b"\x1f\x8b" else set())
        if there:
            found[path] = there
    return found


def rows_left(folder: Folder, whole: Collection[str], single: Collection[str]) -> int:
    """Rows that can still be read of what was forgotten."""
    left = folder.count("sessions", is_any("key", whole))
    for table in ("memories", "versions", "rounds", "vectors"):
        left += folder.count(table, is_any("session_key", whole)) + folder.count(table, is_any(_owner(table), single))
    return left
