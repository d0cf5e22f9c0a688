"""What a reader is shown of one memory, what that costs, and the order in which all of it comes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from dualtrace_local.records import Item, Memory, Round, State

from .ranking import Ranked
from .rounds import size
from .views import View, quote_for, shown_scene, shows_scene

AROUND = 40
"""Tokens that are reserved for what a reader sees around an item's texts: its id, dates and anchor."""

A_ROUND = 4
"""A round takes at most one part in so many of the budget, so that one long reply does not keep all others out."""


def in_order(taken: Sequence[tuple[Memory | Round, Item]]) -> tuple[tuple[Item, ...], State]:
    """The items in the order of their dates, undated first, named m1, m2 ...; and the state that follows from them."""
    by_date = sorted(taken, key=lambda t: (t[0].date is not None, t[0].date, t[0].session_key, t[0].ordinal))
    items = tuple(replace(item, handle=f"m{number}") for number, (_, item) in enumerate(by_date, 1))
    return items, State.A if any(i.scene for i in items) else State.B if items else State.C


def memory_item(view: View, memory: Memory, key: Ranked) -> Item:
    """``memory`` as this view shows it."""
    quoted = view.condition.scene == "quote" and shows_scene(memory, view.condition)
    return Item(
        handle="",
        memory_id=memory.id,
        session_key=memory.session_key,
        date=memory.date,
        anchor=memory.anchor,
        fact=memory.fact,
        scene=shown_scene(memory, view.condition, view.dealt),
        components=memory.components,
        quote=quote_for(memory, view.said.get(memory.session_key, ())) if quoted else "",
        confidence=memory.confidence,
        similarity=key.similarity,
        score=key.score,
    )


def cost_of(item: Item, count: Callable[[str], int]) -> int:
    """Tokens that an item takes of the budget."""
    texts = [text for text in (item.fact, item.scene, item.quote) if text]
    return AROUND + sum(map(count, texts)) + sum(size(turn.text, count) for turn in item.turns)
