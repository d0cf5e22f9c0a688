"""The conditions file as typed values: each entry is a named way to use a taught store."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from dualtrace_local.errors import ConfigError

from .strict import Strict


class Condition(Strict):
    """A named way to use a taught store (one entry of conditions.yaml).

    What of the store exists in the view:

    * ``stored``: which traces; ``minimum``: lowest evidence total that is visible.
    * ``scene_from``: lowest total of a memory that has a scene in this view, the others are facts alone; ``stakes_from``: the same for
      a discrete fact with real consequences. 0: every memory has the scene that it was written with.
    * ``taught``: ``jointly`` reads a store of its own, in which both traces were written in one completion.
    * ``sessions``: ``evidence`` shows nothing but the sessions that a benchmark names as a question's evidence.

    How it is found:

    * ``key``: the text that it is ranked by; ``merged``: a round and the memories that rest on it are ranked, and come, together.
    * ``search``: ``vectors``; ``hybrid``, vectors and words; ``named``, what the question names by its anchor as it is written;
      ``everything``, newest first as far as the room goes.
    * ``threshold``: lowest cosine with the question that is delivered; ``items``: at most so many, unless the room is all of the context.
    * ``anchors``: so many anchors closest to the question, from ``anchor_threshold`` on, have all their memories read.

    What the reader sees:

    * ``shows``; ``scene``: what stands for the scene: its ``own``, one ``recalled`` (made when the question is asked), one ``shuffled``
      (of another fact), or a ``quote`` of the user's, as long as the scene.
    * ``sides``: of a round what both said, or what the ``user`` said alone.
    * ``room``: the model's token budget for delivered items, or all that its ``context`` takes.

    ``reconstruction``: the paper leaves parts of it open.
    """

    description: str
    stored: Literal["nothing", "facts", "facts+scenes", "rounds", "facts+scenes+rounds"]
    minimum: int = Field(default=0, ge=0, le=6)
    key: Literal["anchor", "fact", "fact-without-anchor", "fact+scene", "round", "merged"] = "fact"
    shows: Literal["fact", "fact+scene", "round", "fact+scene+round"] = "fact"
    search: Literal["none", "vectors", "hybrid", "named", "everything"] = "hybrid"
    threshold: float = Field(default=0.0, ge=-1, le=1)
    items: int = Field(default=12, ge=1)
    scene_from: int = Field(default=0, ge=0, le=6)
    stakes_from: int = Field(default=0, ge=0, le=6)
    scene: Literal["own", "recalled", "shuffled", "quote"] = "own"
    anchors: int = Field(default=0, ge=0)
    anchor_threshold: float = Field(default=0.4, ge=-1, le=1)
    taught: Literal["once", "jointly"] = "once"
    sessions: Literal["visible", "evidence"] = "visible"
    room: Literal["budget", "context"] = "budget"
    sides: Literal["both", "user"] = "both"
    reconstruction: bool = False

    @model_validator(mode="after")
    def _parts_go_together(self) -> Condition:
        rounds, scenes, merged = self.stored == "rounds", "scenes" in self.stored, self.stored == "facts+scenes+rounds"
        named, everything = self.search == "named", self.search == "everything"
        wrong = {
            "stored: rounds goes with key: round and shows: round": len({rounds, self.key == "round", self.shows == "round"}) > 1,
            "stored: facts+scenes+rounds goes with key: merged, shows: fact+scene+round and search: hybrid": len(
                {merged, self.key == "merged", self.shows == "fact+scene+round", merged and self.search == "hybrid"}
            )
            > 1,
            "stored: facts+scenes+rounds knows no anchors, scene_from or other scenes": merged
            and (self.anchors or self.scene_from or self.scene != "own"),
            "sides goes with stored: rounds": self.sides != "both" and not rounds,
            "key: fact+scene needs stored: facts+scenes": self.key == "fact+scene" and not scenes,
            "shows: fact+scene needs stored: facts+scenes, or scene: recalled": self.shows == "fact+scene"
            and not scenes
            and self.scene != "recalled",
            f"scene: {self.scene} needs shows: fact+scene": self.scene != "own" and self.shows != "fact+scene",
            "search: named needs key: anchor": named and self.key != "anchor",
            "search: everything needs stored: rounds": everything and not rounds,
            "anchors needs search: vectors or hybrid, and no rounds": self.anchors and (rounds or self.search not in ("vectors", "hybrid")),
            "scene_from needs stored: facts+scenes": self.scene_from and not scenes,
            "stakes_from needs a higher scene_from": self.stakes_from and self.stakes_from >= self.scene_from,
            "taught: jointly goes with facts and scenes, not with rounds": self.taught == "jointly" and not scenes,
        }
        if msg := next((reason for reason, is_so in wrong.items() if is_so), ""):
            raise ValueError(msg)
        return self

    @property
    def ranked(self) -> bool:
        """Whether keys are compared with the question."""
        return self.stored != "nothing" and self.search in ("vectors", "hybrid")

    @property
    def told(self) -> str:
        """The description as it is shown everywhere."""
        return self.description + (" (reconstruction: the paper leaves parts open)" if self.reconstruction else "")


class Conditions(Strict):
    """The whole conditions file."""

    conditions: dict[str, Condition]

    def get(self, name: str) -> Condition:
        """The condition called ``name``. Raises ConfigError with the known names."""
        if name not in self.conditions:
            known = ", ".join(self.conditions)
            msg = f"no condition named {name!r}; known: {known}"
            raise ConfigError(msg)
        return self.conditions[name]
