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
_ASCII_END = 0x7F
_JOINERS = {"\u200c", "\u200d"}


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
    out: list[str] = []
    for i, char in enumerate(text):
        if (
            char in "\n\t"
            or unicodedata.category(char) not in ("Cc", "Cf", "Co", "Cn")
            or (char in _JOINERS and 0 < i < len(text) - 1 and ord(text[i - 1]) > _ASCII_END and ord(text[i + 1]) > _ASCII_END)
        ):
            out.append(char)
    return "".join(out)


def fence(text: str, secret: bytes, key: str) -> str:
    """``text`` between marks that its author cannot know: they are derived from the store's secret and ``key``.

    The same key gives the same marks, so that all requests about one session share their prefix.
    """
    mark = hmac.new(secret, key.encode(), hashlib.sha256).hexdigest()[:8]
    return f"<data {mark}>\n{visible(text)}\n</data {mark}>"
