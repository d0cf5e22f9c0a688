"""What a memory is found by: key texts, and the words of a text as BM25 counts them. Pure functions."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

from dualtrace_local.records import Memory

if TYPE_CHECKING:
    from Stemmer import Stemmer

Kind = Literal["anchor", "fact", "fact-without-anchor", "fact+scene", "round"]
"""A way to turn what is stored into one text that is embedded and ranked."""

TAUGHT_KINDS: tuple[Kind, ...] = ("fact", "fact+scene")
"""Kinds of a memory whose vectors are written when it is taught; others are made when they are first asked for."""

_COMMON = """
a about all also am an and any are as at be been but by can could did do does for from had has have he her him his how i if in
into is it its just may me my no
not of on or our out she should so some such than that the their them then there these they this to up
us user was we were what when where which who whom whose why will with would you your
"""
STOP_WORDS = frozenset(_COMMON.split())
"""English function words; and ``user``, which every fact holds."""

CJK = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af"
WORD = re.compile(rf"[{CJK}]|[^\W_{CJK}]+")
"""A run of letters and digits; in scripts without spaces, one character."""


def key_text(memory: Memory, kind: Kind) -> str:
    """The text that ``memory`` is ranked by.

    ``fact``: the anchor's words, the session's day, the components. ``fact-without-anchor``: the same without the anchor.
    ``fact+scene``: ``fact`` and then the scene; a memory without a scene has the same key in both. ``anchor``: its words alone.
    """
    if kind == "anchor":
        return memory.anchor.replace("-", " ")
    day = memory.date.strftime("%Y-%m-%d") if memory.date else ""
    anchor = "" if kind == "fact-without-anchor" else memory.anchor.replace("-", " ")
    head = ", ".join(part for part in (anchor, day) if part)
    scene = memory.scene if kind == "fact+scene" else ""
    return "\n".join(part for part in (head, memory.fact, scene) if part)


@lru_cache(maxsize=1)
def _stemmer() -> Stemmer:
    from Stemmer import Stemmer

    return Stemmer("english")


def terms(text: str) -> list[str]:
    """The words of ``text`` for BM25: lower case, without accents and stop words, English Snowball stems; order kept."""
    folded = "".join(c for c in unicodedata.normalize("NFKD", text.casefold()) if not unicodedata.combining(c))
    words = [w for w in WORD.findall(unicodedata.normalize("NFC", folded)) if w not in STOP_WORDS]
    stems: list[str] = _stemmer().stemWords(words)
    return stems
