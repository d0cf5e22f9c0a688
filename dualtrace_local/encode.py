"""Flow: Session -> Encoded. Whoever reads this file reads section 3 of the paper: gate, facts, anchor, scene.

Two gate ways lead to the same records. ``facts_first`` lets the model list what the user revealed, finds the user's words behind each
sentence, and works the scores out from those words. ``scored`` asks the model for the scores as the paper does, then for facts.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from .config import GateWay
from .dates import find_events
from .domains.personal import LONGEST_SENTENCE, Embed, Personal, Topic, rounds, was_cut
from .engines.driver import OutputError, ask
from .grounding import (
    TOP,
    Ground,
    Refused,
    addresses_somebody,
    details_of,
    forbidden,
    in_first_person,
    score,
    session_evidence,
    statement_of,
    unmistakable,
    without_guessed_gender,
    without_repetitions,
)
from .records import Component, Encoded, Evidence, Flow, Memory, Session, Tier


def encode(session: Session, domain: Personal, embed: Embed) -> Flow[Encoded]:
    """Write one (masked, non-empty) session down: the gate's evidence and, above DROP, its memories.

    Raises OutputError when a completion never became whole; nothing of the session is stored then.
    """
    kept = () if domain.settings.keep_rounds == "none" else rounds(session)
    if forbidden(session.turns):
        return Encoded(session, Tier.DROP, session_evidence((), session.turns))
    ground = Ground(session.turns)
    parts = domain.excerpts(session)
    if domain.gate is GateWay.SCORED:
        evidence, topics, refused = yield from _scored(session, parts, domain, ground, embed)
    else:
        evidence, topics, refused = yield from _facts_first(session, parts, domain, ground, embed)
    tier = domain.tier(evidence)
    if not topics:
        tier = Tier.DROP
    if tier is Tier.DROP:
        rounds_of_dropped = kept if domain.settings.keep_rounds == "all" else ()
        return Encoded(session, tier, evidence, rounds=rounds_of_dropped, dropped_sentences=refused)
    memories: list[Memory] = []
    for ordinal, topic in enumerate(topics):
        anchor = topic.anchor or (yield from ask(domain.anchor(topic))).slug
        scene, why_not = yield from _scene(session, parts, domain, ground, topic)
        memories.append(
            Memory(
                session_key=session.key,
                ordinal=ordinal,
                scope=session.scope,
                date=session.date,
                anchor=anchor,
                info_type=topic.info_type,
                category=topic.category,
                tier=tier,
                evidence=evidence,
                components=topic.components,
                scene=scene,
                scene_refused=why_not,
            )
        )
    return Encoded(session, tier, evidence, tuple(memories), kept, refused)


def _facts_first(
    session: Session, parts: Sequence[str], domain: Personal, ground: Ground, embed: Embed
) -> Flow[tuple[Evidence, tuple[Topic, ...], tuple[str, ...]]]:
    """Statements of all parts, grounded and scored by code, then grouped by topic."""
    written: list[str] = []
    for part in parts:
        written += (yield from ask(domain.facts(session, part))).facts
    components, refused = _grounded(written, session, ground)
    each = [(c, score(c)) for c in components]
    evidence = session_evidence([e for _, e in each if e.relevance], session.turns, ordered=domain.ordered)
    about = [c for c, e in each if domain.ordered or e.relevance == TOP]
    refused += ("not about the user",) * (len(components) - len(about))
    about += _asked(evidence, session, domain, ground, about)
    about += yield from _missed(session, domain, ground, about, sure=domain.tier(evidence) is Tier.DROP)
    if about:
        evidence = session_evidence([score(c) for c in about], session.turns, ordered=domain.ordered)
    if domain.tier(evidence) is Tier.DROP:
        return evidence, (), refused
    return evidence, domain.topics([_named(c, session) for c in about], embed), refused


def _missed(session: Session, domain: Personal, ground: Ground, written: Sequence[Component], *, sure: bool) -> Flow[list[Component]]:
    """A second look at the user's sentences whose numbers, names, dates or leanings no statement tells.

    The model rewrites just these, one for one, which small models do almost without a fault. What it still leaves out, and what is
    part of a question (rewritten, "do you know whether" becomes "the user knows"), is kept as a quotation. ``sure``: only sentences
    that leave no doubt, since the first look found nothing to keep.
    """
    missed = [said for said in ground.untold(written, session.date) if not sure or unmistakable(said, session.date)]
    told = [said for said in missed if len(said.text) <= LONGEST_SENTENCE and not statement_of(said.text).endswith("?")]
    rewritten: list[Component] = []
    if told:
        try:
            rewritten, _ = _grounded((yield from ask(domain.details(told))).facts, session, ground)
        except OutputError:
            rewritten = []  # nothing is lost: all of them are quoted below
    quoted = {c.quote for c in written}
    found = [c for c in rewritten if details_of([c]) - details_of(written) or c.quote not in quoted]
    left = [said for said in ground.untold([*written, *found], session.date) if said in missed]
    return found + [_dated(domain.quotation(said), session) for said in left]


def _asked(evidence: Evidence, session: Session, domain: Personal, ground: Ground, written: Sequence[Component]) -> list[Component]:
    """What the user asked to remember and the model did not write."""
    if evidence.override != "remember":
        return []
    quoted = {c.quote for c in written}
    return [_dated(c, session) for c in domain.asked_to_remember(ground) if c.quote not in quoted]


def _scored(
    session: Session, parts: Sequence[str], domain: Personal, ground: Ground, embed: Embed
) -> Flow[tuple[Evidence, tuple[Topic, ...], tuple[str, ...]]]:
    """The model's own scores (the best part counts), then facts in the model's own topics, from the parts that pass the gate.

    The evidence rests on the user's sentence behind the model's quote, and on none where nobody said it.
    """
    scores: list[Evidence] = []
    passed: list[str] = []
    for part in parts:
        gate = yield from ask(domain.scores(session, part))
        rests_on = ground.component(gate.disclosed)
        quoted = (rests_on.quote,) if isinstance(rests_on, Component) else ()
        scores.append(Evidence(gate.relevance, gate.specificity, gate.explicitness, quoted))
        passed += [part] if domain.tier(scores[-1]) is not Tier.DROP else []
    evidence = session_evidence(scores, session.turns, ordered=domain.ordered)
    if domain.tier(evidence) is Tier.DROP:
        return evidence, (), ()
    topics: list[Topic] = []
    refused: tuple[str, ...] = ()
    kept: dict[str, Component] = {}
    for part in passed:
        for group in (yield from ask(domain.grouped_facts(session, part))).groups:
            components, lost = _grounded([f for f in group.facts if f not in kept], session, ground)
            refused += lost
            kept |= {c.text: c for c in components}
            if components:
                topics.append(Topic(tuple(_named(c, session) for c in components), group.category, group.kind, group.topic))
    later = _asked(evidence, session, domain, ground, tuple(kept.values()))
    later += yield from _missed(session, domain, ground, [*kept.values(), *later], sure=not kept)
    return evidence, (*topics, *domain.topics([_named(c, session) for c in later], embed)), refused


def _grounded(written: Sequence[str], session: Session, ground: Ground) -> tuple[list[Component], tuple[str, ...]]:
    """The sentences that rest on the user's words, each once, and the reasons of the others."""
    found = [_component(text, ground) for text in dict.fromkeys(written)]
    components = without_repetitions([_dated(c, session) for c in found if isinstance(c, Component)])
    return components, tuple(f.reason for f in found if isinstance(f, Refused))


def _component(text: str, ground: Ground) -> Component | Refused:
    """One written sentence as a component, or why not."""
    if was_cut(text):
        return Refused("cut off at its longest")
    if in_first_person(text):
        return Refused("not in the third person")
    if addresses_somebody(text):
        text = statement_of(text)
        if addresses_somebody(text):
            return Refused("what the user asks for")
    found = ground.component(text)
    return found if isinstance(found, Refused) else replace(found, text=without_guessed_gender(found.text, found.quote))


def _dated(component: Component, session: Session) -> Component:
    """Dates come from the user's own words, resolved from the day of the talk; the spoken form stays beside them."""
    return replace(component, events=find_events(component.quote, session.date))


def _named(component: Component, session: Session) -> Component:
    """Where several people are users, "the user" of a sentence is the one whose words it rests on."""
    return replace(component, text=_calling(component.text, session.turns[component.turn].name))


def _calling(text: str, name: str) -> str:
    return re.sub(r"\b[Tt]he user\b", lambda _: name, text) if name else text


def _scene(session: Session, parts: Sequence[str], domain: Personal, ground: Ground, topic: Topic) -> Flow[tuple[str, str]]:
    """The scene trace of a topic, or why there is none: rewritten once after a refusal, then the memory stays fact only."""
    whole = domain.gate is GateWay.SCORED
    first = domain.whole_scene(session, _part_of(topic, parts), topic) if whole else domain.scene(topic)
    names = {session.turns[c.turn].name for c in topic.components}
    who = names.pop() if len(names) == 1 else ""
    refusal = ""
    for request in (first, replace(first, temperature=0.3, seed=first.seed + 10)):
        try:
            written = yield from ask(request)
        except OutputError as problem:
            return "", str(problem)
        text = written.picture if whole else written.moment
        refusal = "cut off" if not whole and was_cut(text) else domain.scene_refusal(text, topic, session, ground)
        if not refusal:
            text = _calling(text, who)
            return (domain.whole_picture(text, session) if whole else domain.picture(text, topic, session)), ""
    return "", "cut off at its longest" if refusal == "cut off" else f"{refusal} that the session does not hold"


def _part_of(topic: Topic, parts: Sequence[str]) -> str:
    """The part of the session that holds the topic's first quote."""
    return next((p for p in parts if topic.components[0].quote in p), parts[0])
