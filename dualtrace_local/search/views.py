"""What a condition makes of a store: which memories it sees, by which text each is found, and what stands in its scene's place.

The functions are pure: what a memory is, is found by and shows follows from it and the condition, so that one taught store serves all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from dualtrace_local.config import Condition
from dualtrace_local.grounding import at_stake
from dualtrace_local.records import Memory, Round, Scope, Tier, digest_of
from dualtrace_local.store import Keys, Kind, Selection, Store, total_of

from .places import MERGED, Places, places_of, word_index

if TYPE_CHECKING:
    import bm25s


def tier_of(memory: Memory, condition: Condition) -> Tier:
    """What ``memory`` is in this view: nothing, a fact, or a fact with the scene that was written with it.

    Three tiers route on the evidence total (paper section 3.2): below ``minimum`` DROP, from ``scene_from`` on FULL, between them
    STREAMLINED. A discrete fact with consequences is FULL from ``stakes_from`` on, what the user asked to remember always.
    """
    total = total_of(memory.evidence)
    if total < condition.minimum:
        return Tier.DROP
    at = condition.scene_from
    if condition.stakes_from and memory.info_type == "discrete" and any(at_stake(c.quote) for c in memory.components):
        at = condition.stakes_from
    return Tier.FULL if "scenes" in condition.stored and total >= at else Tier.STREAMLINED


def key_of(memory: Memory, condition: Condition) -> Kind:
    """The kind of text that ``memory`` is found by: without its scene where it has none in this view."""
    key: Kind = "fact+scene" if condition.key == "merged" else condition.key
    return "fact" if key == "fact+scene" and tier_of(memory, condition) is not Tier.FULL else key


def kinds_of(condition: Condition) -> tuple[Kind, ...]:
    """The kinds of key that a view of this condition is ranked by."""
    return MERGED if condition.key == "merged" else (condition.key,)


def shows_scene(memory: Memory, condition: Condition) -> bool:
    """Whether a reader sees the memory's scene beside its fact, or what the condition puts in its place."""
    return "scene" in condition.shows and bool(memory.scene) and tier_of(memory, condition) is Tier.FULL


def shown_scene(memory: Memory, condition: Condition, dealt: Mapping[str, str]) -> str:
    """The scene that a reader sees beside the memory's fact, empty for none. ``dealt``: for ``scene: shuffled``, by memory id."""
    if not shows_scene(memory, condition):
        return ""
    return {"own": memory.scene, "shuffled": dealt.get(memory.id, "")}.get(condition.scene, "")


def quote_for(memory: Memory, rounds: Sequence[Round]) -> str:
    """What the user said around the words that ``memory`` rests on, as long as its scene but for the word that is cut at either end.

    From the ``rounds`` of its session, from the memory's own quotes where none are kept; shorter where the user said less.
    """
    said = "\n".join(r.user for r in rounds if r.user) or "\n".join(dict.fromkeys(c.quote for c in memory.components))
    length = len(memory.scene)
    if len(said) <= length:
        return said
    quote = memory.components[0].quote if memory.components else ""
    middle = max(0, said.find(quote)) + len(quote) // 2
    start = min(max(0, middle - length // 2), len(said) - length)
    end = start + length
    if start and not said[start - 1].isspace():
        start = next((i + 1 for i in range(start, end) if said[i].isspace()), start)
    if end < len(said) and not said[end].isspace():
        end = next((i for i in range(end - 1, start, -1) if said[i].isspace()), end)
    return said[start:end].strip()


@dataclass(frozen=True)
class View:
    """What one condition may see of a store, as it was when first ranked.

    ``session_keys`` None means the whole scope (a frozenset: exactly these, as under the official protocol); sessions dated after
    ``hide_after`` are hidden. ``name`` is the condition's name; ``seed`` deals the scenes of ``scene: shuffled``. Keep a view for all
    questions that share it: its keys are read once.
    """

    store: Store
    scope: Scope
    condition: Condition
    session_keys: frozenset[str] | None = None
    hide_after: datetime | None = None
    name: str = ""
    seed: int = 0

    @property
    def selection(self) -> Selection:
        """The same as the store's filter."""
        return Selection(self.scope, self.session_keys, self.condition.minimum, self.hide_after)

    @property
    def mixed(self) -> bool:
        """Whether memories of this view are found by keys of different kinds, which LanceDB cannot rank together."""
        return self.condition.key == "fact+scene" and self.condition.scene_from > self.condition.minimum

    @cached_property
    def size(self) -> int:
        """Keys that could be ranked."""
        return sum(self.store.size(self.selection, kind) for kind in kinds_of(self.condition))

    @cached_property
    def lacking(self) -> int:
        """Keys that LanceDB does not know of, since nobody has asked for them yet."""
        return sum(self.store.lacking(self.selection, kind) for kind in kinds_of(self.condition))

    @cached_property
    def memories(self) -> dict[str, Memory]:
        """Every visible memory by id, in the order of their dates; only for conditions that look at all of them."""
        found = self.store.memories(self.scope, self.session_keys, self.condition.minimum, self.hide_after)
        return {m.id: m for m in found}

    @cached_property
    def rounds(self) -> tuple[Round, ...]:
        """Every visible round, in the order of their dates, undated first."""
        found = self.store.rounds(self.scope, self.session_keys)
        return tuple(r for r in found if self.hide_after is None or r.date is None or r.date <= self.hide_after)

    @cached_property
    def said(self) -> dict[str, list[Round]]:
        """The visible rounds of each session, by its key."""
        found: dict[str, list[Round]] = {}
        for item in self.rounds:
            found.setdefault(item.session_key, []).append(item)
        return found

    @cached_property
    def dealt(self) -> dict[str, str]:
        """For ``scene: shuffled``: every visible memory with a scene gets another's, each scene once; by memory id.

        One ring through all of them, in an order that the seed and the ids decide, so that the order of teaching does not matter. A
        memory that is alone gets none.
        """
        if self.condition.scene != "shuffled":
            return {}
        ring = [m for m in self.memories.values() if m.scene and tier_of(m, self.condition) is Tier.FULL]
        ring.sort(key=lambda m: digest_of("shuffled", self.seed, m.id))
        return {m.id: other.scene for m, other in zip(ring, ring[1:] + ring[:1], strict=True)} if len(ring) > 1 else {}

    @cached_property
    def keys(self) -> Keys:
        """All keys, in memory; for a merged key those of its parts, see ``Places``."""
        (kind,) = kinds_of(self.condition)
        keys = self.store.keys(self.selection, kind)
        if not self.mixed:
            return keys
        plain = self.store.keys(self.selection, "fact")
        at = {owner: n for n, owner in enumerate(plain.owner_ids)}
        words, matrix = list(keys.words), keys.matrix.copy()
        for n, owner in enumerate(keys.owner_ids):
            if owner in at and owner in self.memories and key_of(self.memories[owner], self.condition) == "fact":
                words[n], matrix[n] = plain.words[at[owner]], plain.matrix[at[owner]]
        return Keys(keys.owner_ids, tuple(words), matrix)

    @cached_property
    def vectors(self) -> Keys:
        """All keys without their words, in memory."""
        (kind,) = kinds_of(self.condition)
        return self.store.keys(self.selection, kind, words=False)

    @cached_property
    def places(self) -> Places:
        """Rounds and memories as one ranking, for a merged key."""
        keys = [self.store.keys(self.selection, kind) for kind in MERGED]
        return Places(places_of(self.rounds, self.memories.values(), self.said), keys)

    @cached_property
    def anchors(self) -> dict[str, tuple[str, ...]]:
        """The index of anchors: the ids of the visible memories of each, in the order of their dates."""
        found: dict[str, list[str]] = {}
        for memory in self.memories.values():
            found.setdefault(memory.anchor, []).append(memory.id)
        return {anchor: tuple(ids) for anchor, ids in found.items()}

    @cached_property
    def anchor_vectors(self) -> tuple[tuple[str, ...], np.ndarray]:
        """The anchors of the index and their unit vectors, shape [n, dimension]."""
        keys = self.store.keys(self.selection, "anchor")
        at = {owner: n for n, owner in enumerate(keys.owner_ids)}
        first = {anchor: at[ids[0]] for anchor, ids in self.anchors.items() if ids[0] in at}
        return tuple(first), keys.matrix[list(first.values())]

    @cached_property
    def words(self) -> bm25s.BM25:
        """BM25 over the visible keys alone; only asked for when there are any words."""
        return word_index(self.keys.words)
