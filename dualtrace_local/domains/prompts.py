"""Prompts are text files; this module fills their placeholders, fences data, and knows their digest.

A template holds ``{{name}}`` placeholders and nothing else that is special. Filling is a single pass, so that a text put in is never
read again as a template, and a missing or unknown name is an error.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import unicodedata
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).resolve().parent / "prompts"
_PLACEHOLDER = re.compile(r"\{\{([a-z_]+)\}\}")
_UNUSUAL = re.compile(r"[^\n\t -~]")
_ASCII_END = 0x7F
_JOINERS = {"\u200c", "\u200d"}
_FILLERS = frozenset(
    "\u034f\u115f\u1160\u3164\uffa0\u2800\u17b4\u17b5" + "".join(map(chr, (*range(0xFE00, 0xFE0E), *range(0xE0100, 0xE01F0))))
)
"""Characters that show nothing although Unicode calls them letters, marks or symbols; text can be hidden in rows of them."""


@cache
def template(name: str) -> str:
    """The text of prompt file ``name`` without its last line break."""
    return (FOLDER / f"{name}.txt").read_text(encoding="utf-8").rstrip("\n")


def fill(name: str, **values: str) -> str:
    """Prompt ``name`` with every placeholder replaced. Raises KeyError on a missing name, ValueError on one that is not in it."""
    text = template(name)
    if unknown := set(values) - set(_PLACEHOLDER.findall(text)):
        msg = f"prompt {name} has no placeholder for {sorted(unknown)}"
        raise ValueError(msg)
    return _PLACEHOLDER.sub(lambda match: values[match.group(1)], text)


def names() -> tuple[str, ...]:
    """All prompt files, sorted."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.txt")))


def digest(name: str) -> str:
    """First 16 hex characters of the SHA-256 of a prompt file; part of the fingerprints and printed in reports."""
    return hashlib.sha256(template(name).encode()).hexdigest()[:16]


def visible(text: str) -> str:
    """``text`` as a model may see it: without invisible and control characters (line breaks and tabs stay).

    The joiners U+200C and U+200D stay where a letter or symbol stands on both sides, since Persian, Indic scripts and emoji need
    them. What is stored is never changed.
    """
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    return "".join(_seen(text, i) for i in range(len(text))) if _UNUSUAL.search(text) else text


def _seen(text: str, at: int) -> str:
    char, kind = text[at], unicodedata.category(text[at])
    if char in "\n\t" or (kind not in ("Cc", "Cf", "Co", "Cn", "Cs") and char not in _FILLERS):
        return char
    if kind == "Cs":
        return "\ufffd"
    if kind == "Cc":
        return " " if char.isspace() else ""
    between = 0 < at < len(text) - 1 and all(ord(c) > _ASCII_END and unicodedata.category(c)[0] in "LMS" for c in text[at - 1 : at + 2 : 2])
    newer_emoji = kind == "Cn" and "\U0001f000" <= char <= "\U0001faff"
    return char if (char in _JOINERS and between) or newer_emoji else ""


def fence(text: str, secret: bytes, key: str) -> str:
    """``text`` between marks that its author cannot know: they are derived from the store's secret and ``key``.

    The same key gives the same marks, so that all requests about one session share their prefix. What looks like such a mark in
    ``text`` loses its bracket.
    """
    mark = hmac.new(secret, key.encode(errors="surrogatepass"), hashlib.sha256).hexdigest()[:8]
    body = re.sub(r"<(?=[ \t]{0,9}/?[ \t]{0,9}data\b)", "‹", visible(text), flags=re.IGNORECASE)
    return f"<data {mark}>\n{body}\n</data {mark}>"
