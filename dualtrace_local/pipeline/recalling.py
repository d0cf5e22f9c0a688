"""Stage two: the questions of a run under one condition, each from what the condition shows it of the store."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from functools import lru_cache, partial
from typing import Any, Literal

from dualtrace_local.config import Condition, Role
from dualtrace_local.domains import prompts
from dualtrace_local.engines.driver import Job
from dualtrace_local.masking import mask
from dualtrace_local.recall import MERGED_PROMPTS, MORE_PROMPTS, Reader, recall
from dualtrace_local.records import Answer, Done, Question, Scope
from dualtrace_local.search import View, search
from dualtrace_local.store import Store

from .folder import RunFolder
from .parts import Parts
from .stages import work_through

Protocol = Literal["official", "pooled"]
"""``official``: a question sees its own haystack only (LongMemEval); ``pooled``: the union of all (the paper)."""

ALWAYS_NAMED = ("stored", "minimum", "key", "shows", "search", "threshold", "items")
"""Fields of a condition that are in its fingerprint whatever they hold; the others only where they are not the default, so that a field
that is added later does not turn earlier runs away."""


def reading_parts(parts: Parts, protocol: Protocol, hide_later: bool, taught: str) -> dict[str, Any]:
    """What all conditions of a run share, since a table names one reader and one protocol."""
    return {
        "teach": taught,
        "reader": parts.identity(Role.READ),
        "context_tokens": parts.spec(Role.READ).budgets.context,
        "prompts": {name: prompts.digest(name) for name in Reader.PROMPTS},
        "protocol": protocol,
        "hide_later": hide_later,
        "seed": parts.seed,
    }


def view_parts(condition: Condition, parts: Parts, taught_jointly: str) -> dict[str, Any]:
    """What makes a condition: its entry but for the words about it, and what it alone needs of prompts, model and teaching."""
    words = {"description", "reconstruction"}
    shaping = condition.model_dump(mode="json", include=set(ALWAYS_NAMED)) | condition.model_dump(
        mode="json", exclude=words, exclude_defaults=True
    )
    if more := MORE_PROMPTS.get(condition.scene):
        shaping["prompts"] = {name: prompts.digest(name) for name in more}
    if condition.room == "context":
        shaping["context"] = parts.spec(Role.READ).context
    if condition.key == "merged":
        shaping["merged_tokens"] = parts.spec(Role.READ).budgets.merged
        shaping["prompts"] = {name: prompts.digest(name) for name in MERGED_PROMPTS}
    if condition.taught == "jointly":
        shaping["teach"] = taught_jointly
    return shaping


def budget(condition: Condition, question: Question, reader: Reader, parts: Parts) -> int:
    """Tokens that delivered items may take: the model's budget for them, or all the room that its context has."""
    spec = parts.spec(Role.READ)
    if condition.room == "context":
        return reader.room(question, spec.context)
    return spec.budgets.merged or spec.budgets.context if condition.key == "merged" else spec.budgets.context


def answer(name: str, condition: Condition, protocol: Protocol, hide_later: bool, folder: RunFolder, store: Store, parts: Parts) -> None:
    """Answer what has no answer yet under one condition.

    For the oracle the keys of a question's evidence sessions decide what is visible. Nothing else of a gold is looked at, and nothing of
    it reaches a prompt.
    """
    questions = folder.questions()
    done = {a.question_id for a in folder.answers(name)}
    pending = [q for q in questions if q.id not in done]
    reader = Reader(store.secret, parts.count(Role.READ), parts.seed)
    names = {row.key: row.external_id or row.key for row in store.sessions()}
    everything = frozenset(key for q in questions for key in q.haystack)
    only = {g.gold.question_id: frozenset(g.evidence) for g in folder.golds()} if condition.sessions == "evidence" else {}

    @lru_cache(maxsize=1)  # questions about the same sessions follow each other
    def seen_by(visible: frozenset[str], hide_after: datetime | None) -> View:
        return View(store, Scope(), condition, visible, hide_after, name, parts.seed)

    def jobs() -> Iterator[Job]:
        for question in pending:
            visible = frozenset(question.haystack) if protocol == "official" else everything
            visible = only.get(question.id, frozenset()) if condition.sessions == "evidence" else visible
            view = seen_by(visible, question.date if hide_later else None)
            tokens = budget(condition, question, reader, parts)
            delivered = search(view, question, parts.embedder, tokens, parts.count(Role.READ))
            yield Job(question.id, partial(recall, question, delivered, reader))

    def keep(batch: Sequence[Done]) -> None:
        folder.add_answers(name, (as_kept(done.value, names) for done in batch))

    work_through("recall", name, Role.READ, (len(pending), len(questions)), jobs, keep, folder, parts)
    folder.export_hypotheses(name)


def as_kept(given: Answer, names: dict[str, str]) -> Answer:
    """An answer as it is stored and shown: no credential, whatever the model wrote, and sources by the session's own id for its key."""
    sources = tuple(replace(s, session_id=names.get(s.session_id, s.session_id)) for s in given.sources)
    return replace(given, text=mask(given.text), notes=mask(given.notes), scene=mask(given.scene), sources=sources)
