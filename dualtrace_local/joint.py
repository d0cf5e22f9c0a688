"""Flow: Session -> Encoded, with both traces of a memory written in one completion, as the paper's agent does (condition c6-joint).

All else is ``encode``: the same gate, grounding, grouping, anchors and refusals. Only the requests for statements ask for a scene beside
each, and the requests for scenes that follow are answered from those, without the model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from .config import GateWay
from .domains import prompts
from .domains.personal import MAX_GROUPS, Anchor, Depiction, Embed, Gate, GroupedFacts, Moment, Personal, Scene, Sentence, Topic, WholeScene
from .encode import encode
from .errors import DualtraceError
from .grounding import Said, statement_of, stems
from .records import Completion, Encoded, Finish, Flow, Request, Session, digest_of

SAME = 0.5
"""Share of a statement's content words that a memory must hold for the scene beside it to be the memory's."""

NONE_WRITTEN = "no scene was written beside these facts"


class Pair(BaseModel):
    """One statement and the moment that brings it back."""

    model_config = ConfigDict(extra="forbid")

    fact: Sentence
    moment: Moment


class Pairs(BaseModel):
    """Statements as ``encode`` reads them, each with its moment."""

    model_config = ConfigDict(extra="forbid")

    notes: list[Pair]

    @property
    def facts(self) -> list[str]:
        """The statements alone."""
        return [pair.fact for pair in self.notes]

    @property
    def scenes(self) -> list[tuple[str, BaseModel]]:
        """Each statement with its scene, as a reply to a request for one."""
        return [(pair.fact, Scene(moment=pair.moment)) for pair in self.notes]


class JointGroups(GroupedFacts):
    """Facts in topics, each topic with its scene."""

    class Group(GroupedFacts.Group):
        """One topic."""

        picture: Depiction

    groups: list[Group] = Field(min_length=1, max_length=MAX_GROUPS)  # type: ignore[assignment]

    @property
    def scenes(self) -> list[tuple[str, BaseModel]]:
        """Each topic's facts with its scene, as a reply to a request for one."""
        return [(" ".join(group.facts), WholeScene(picture=group.picture)) for group in self.groups]


@cache
def pairs_type(at_most: int, at_least: int = 0) -> type[Pairs]:
    """A list of pairs with bounds."""
    notes = (list[Pair], Field(min_length=at_least, max_length=at_most))
    return create_model(f"Pairs{at_least}to{at_most}", __base__=Pairs, notes=notes)


class Joint(Personal):
    """The personal domain with requests for both traces at once. Its requests for scenes are for ``encode_jointly`` and reach no model."""

    def facts(self, session: Session, excerpt: str) -> Request:
        """Ask for statements and moments."""
        n = self.most_statements(excerpt)
        return self._request("facts+scene", session, excerpt, prompts.template("facts_joint"), pairs_type(n), 190 * n + 40)

    def details(self, missed: Sequence[Said]) -> Request:
        """Ask for a statement and a moment for each sentence."""
        lines = self._fitting([statement_of(said.text) for said in missed])
        n = len(lines)
        task = prompts.fill("details_joint", lines=self._fenced(lines))
        return Request("details+scene", prompts.template("system"), task, pairs_type(n, n), 190 * n + 40, seed=self.settings.seed)

    def grouped_facts(self, session: Session, excerpt: str) -> Request:
        """Ask for topics with their scenes."""
        return self._request("facts+scene", session, excerpt, prompts.template("facts_grouped_joint"), JointGroups, 2800)

    def scene(self, topic: Topic) -> Request:
        """The topic's facts, to find the scene beside them."""
        return Request("scene", "", "\n".join(c.text for c in topic.components), Scene, 160)

    def whole_scene(self, session: Session, excerpt: str, topic: Topic) -> Request:
        """The topic's facts, to find the scene beside them."""
        del session, excerpt
        return replace(self.scene(topic), output=WholeScene)

    @property
    def shapes(self) -> str:
        """Digest of the output types, for the fingerprint."""
        types = (Gate, JointGroups, pairs_type(5), Anchor)
        return digest_of([t.model_json_schema() for t in types], length=16)

    @property
    def prompt_names(self) -> tuple[str, ...]:
        """The prompt files, for the fingerprint."""
        always = ("system", "session", "facts_joint", "details_joint", "anchor_system", "anchor")
        return (*always, "gate", "facts_grouped_joint") if self.gate is GateWay.SCORED else always


def encode_jointly(session: Session, domain: Personal, embed: Embed) -> Flow[Encoded]:
    """Write one session down with both traces in one completion. ``domain`` is a ``Joint``; raises what ``encode`` does."""
    flow = encode(session, domain, embed)
    scenes: list[tuple[str, BaseModel]] = []
    try:
        request = next(flow)
        while True:
            if request.kind == "scene":
                request = flow.send(_beside(request.user, scenes))
                continue
            try:
                completion = yield request
            except DualtraceError as problem:  # of the driver's, for the flow to deal with
                request = flow.throw(problem)
                continue
            scenes += _scenes(request, completion)
            request = flow.send(completion)
    except StopIteration as end:
        encoded: Encoded = end.value
    unwritten = f"scene: {Finish.ERROR.value}"
    memories = (replace(m, scene_refused=NONE_WRITTEN) if m.scene_refused == unwritten else m for m in encoded.memories)
    return replace(encoded, memories=tuple(memories))


def _scenes(request: Request, completion: Completion) -> list[tuple[str, BaseModel]]:
    """What a whole completion holds of scenes; one that is not whole is asked for again by ``encode``."""
    if completion.finish is not Finish.STOP or not issubclass(request.output, Pairs | JointGroups):
        return []
    try:
        return request.output.model_validate_json(completion.text).scenes
    except ValidationError:
        return []


def _beside(facts: str, scenes: Sequence[tuple[str, BaseModel]]) -> Completion:
    """The scene that was written beside the statement closest to ``facts``, as the completion of a request for it."""
    mine = stems(facts)
    shares = [len(stems(fact) & mine) / max(1, len(stems(fact))) for fact, _ in scenes]
    if not shares or max(shares) < SAME:
        return Completion("", Finish.ERROR)
    return Completion(scenes[shares.index(max(shares))][1].model_dump_json(), Finish.STOP)
