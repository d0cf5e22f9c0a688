"""File names of ours from any text: what a person named a condition, a model or a memory never becomes a path as it is."""

from __future__ import annotations

import hashlib
import re
import unicodedata

LONGEST = 45
"""Characters of a made name. Two of them, a dot between and an ending stay under 120 bytes, which every file system takes."""

_HASH = 12
_PLAIN = re.compile(r"[a-z0-9](?:[a-z0-9._-]*[a-z0-9_-])?")
_OTHER = re.compile(r"[^a-z0-9]+")
_RESERVED = re.compile(r"(?:con|prn|aux|nul|(?:com|lpt)[0-9])(?:\..*)?")
"""Names that mean a device on Windows, whatever their ending."""


def file_name(text: str, *, dots: bool = True) -> str:
    """A file name (without ending) for ``text``: another one for every other text, the same on every machine and disk.

    A plain text stays as it is: small letters of a to z, digits, ``-``, ``_`` and dots, at most LONGEST, no device name. Any other
    becomes what is readable of it, ``~`` and a hash of all of it; since no plain text holds ``~``, the two never meet. The case of letters
    and the two spellings of an accent (NFC, NFD) count in the hash alone, so that disks which ignore them keep the files apart.
    ``dots`` False is for a name that others are joined to by dots: one with a dot in it is then not plain.
    """
    plain = _PLAIN.fullmatch(text) and len(text) <= LONGEST and not _RESERVED.fullmatch(text)
    if plain and (dots or "." not in text):
        return text
    letters = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode().lower()
    readable = _OTHER.sub("-", letters).strip("-")[: LONGEST - _HASH - 1].rstrip("-") or "text"
    return f"{readable}~{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:_HASH]}"
