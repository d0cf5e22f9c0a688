"""Verbatim rounds, shortened to the room that is left."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from dualtrace_local.config import Condition
from dualtrace_local.embed import Embedder
from dualtrace_local.grounding import sentences
from dualtrace_local.records import Round, Turn

LEAST = 16
"""Tokens below which what is left of a side says nothing; such a round is passed over."""

STRETCHES = 64
"""Pieces that a long side is cut into at most, to find the one that the question is about."""


def sides(source: Round) -> tuple[Turn, ...]:
    """What user and assistant said, whole; a side that said nothing is left out."""
    return tuple(Turn(role, text) for role, text in (("user", source.user), ("assistant", source.assistant)) if text)


def seen_sides(source: Round, condition: Condition) -> tuple[Turn, ...]:
    """The sides of a round that a condition shows."""
    return tuple(turn for turn in sides(source) if condition.sides in ("both", turn.role))


def shortened(
    turns: tuple[Turn, ...], room: int, about: NDArray[np.float32], embedder: Embedder, count: Callable[[str], int]
) -> tuple[Turn, ...]:
    """The sides of a round, apart, in at most ``room`` tokens; empty when there is no room.

    What is too long is shown as one stretch around the piece whose vector is closest to the question's, ``about``, with "…" where it
    was cut. The side that holds the closest piece of both gets two thirds of the room, and what the other does not need.
    """
    sizes = [size(turn.text, count) for turn in turns]
    if sum(sizes) <= room:
        return turns
    if room < LEAST * len(turns):
        return ()
    best = [float((embedder.encode([turn.text[a:b] for a, b in _pieces(turn.text)]) @ about).max()) for turn in turns]
    main = best.index(max(best))
    others = min(sum(sizes) - sizes[main], max(room // 3, room - sizes[main]))
    rooms = [room - others if side == main else others for side in range(len(turns))]
    return tuple(Turn(t.role, _stretch(t.text, r, about, embedder, count)) for t, r in zip(turns, rooms, strict=True))


def _stretch(text: str, room: int, about: NDArray[np.float32], embedder: Embedder, count: Callable[[str], int]) -> str:
    """``text``, or the pieces of it that stand together around the closest one and fit into ``room`` tokens."""
    if size(text, count) <= room:
        return text
    pieces = list(_pieces(text))
    closeness = embedder.encode([text[a:b] for a, b in pieces]) @ about
    first = last = int(closeness.argmax())
    left = room - size(text[slice(*pieces[first])], count) - 2 * count("…")
    if left < 0:
        part = text[slice(*pieces[first])]
        return _stretch(part, room, about, embedder, count) if len(pieces) > 1 else _beginning(part, room, count)
    while beside := [n for n in (first - 1, last + 1) if 0 <= n < len(pieces)]:
        nearest = max(beside, key=lambda n: closeness[n])
        if (cost := 1 + size(text[slice(*pieces[nearest])], count)) > left:
            break
        left -= cost
        first, last = min(first, nearest), max(last, nearest)
    return ("… " if first else "") + text[pieces[first][0] : pieces[last][1]] + (" …" if last < len(pieces) - 1 else "")


def _beginning(text: str, room: int, count: Callable[[str], int]) -> str:
    """The first words of one long piece."""
    while (tokens := size(f"{text} …", count)) > room and text:
        text = text[: min(len(text) - 1, len(text) * room // tokens)].rsplit(" ", 1)[0]
    return f"{text} …"


def _pieces(text: str) -> Iterator[tuple[int, int]]:
    """Where the sentences of ``text`` begin and end; of a very long text several together, so that there are few."""
    start = end = 0
    for piece in sentences(text):
        at = text.index(piece, end)
        if end - start and at + len(piece) - start > len(text) // STRETCHES:
            yield start, end
            start = at
        elif not end:
            start = at
        end = at + len(piece)
    if end:
        yield start, end


def size(text: str, count: Callable[[str], int]) -> int:
    """Tokens of ``text`` as it is shown, line breaks and quotation marks escaped."""
    return count(json.dumps(text, ensure_ascii=False))
