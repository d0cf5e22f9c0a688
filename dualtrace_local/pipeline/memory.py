"""``Memory``: the store and its models behind a few verbs, for Python programs and the daily commands."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

from dualtrace_local.config import Condition, Models, Role, TeachSettings, read_conditions, read_models
from dualtrace_local.engines.driver import Job
from dualtrace_local.errors import ConfigError, DataError, EngineError
from dualtrace_local.grounding.lineup import line_up
from dualtrace_local.masking import mask
from dualtrace_local.recall import Reader, recall
from dualtrace_local.records import RETRACTED, VERIFIED, Answer, Delivered, Failure, Question, Scope, State, digest_of
from dualtrace_local.records import Memory as MemoryRecord
from dualtrace_local.report import TeachTotals
from dualtrace_local.search import View, search
from dualtrace_local.store import Change, Store

from .correct import Edit, Stamp, back, change, edited, whoami, with_status
from .forget import Forgotten, Plan, Which, forget
from .keys import embed_keys
from .parts import Listener, Parts
from .recalling import as_kept
from .recalling import budget as room_for
from .remember import Remembered, remember
from .teach import Teaching, readable

DEFAULT_CONDITION = "c6"


class Memory:
    """One scope of one store.

    ``Memory.open("chats.store").teach("chats.jsonl")``, then ``.ask("What did I name the boat?")``. Models are loaded when they are
    first needed and freed by ``close`` (or at the end of a ``with`` block). Raises the errors of ``dualtrace_local.errors``.
    """

    def __init__(self, path: Path, parts: Parts, scope: Scope) -> None:
        self.path = path
        self.parts = parts
        self.scope = scope

    @classmethod
    def open(
        cls,
        path: str | Path,
        *,
        user: str = "default",
        project: str = "default",
        models: Models | None = None,
        listener: Listener | None = None,
        seed: int = 0,
    ) -> Self:
        """Name a store and a scope. Nothing is read or loaded yet; ``teach`` makes a store that does not exist."""
        return cls(Path(path), Parts(models or read_models(), listener, seed=seed), Scope(user, project))

    def teach(
        self, *sources: str | Path, settings: TeachSettings | None = None, limit: int | None = None, again: bool = False
    ) -> TeachTotals:
        """Teach files, folders and archives of chats, whatever their form. Doing it again adds nothing; an interrupted one is resumed.

        What was forgotten does not come back, unless ``again``.

        Totals add up; a file that cannot be read counts as one failed session. Raises DataError when none of them can be read.
        """
        files = readable([Path(s) for s in sources], limit)
        with Store.open(self.path, self.parts.embedder, write=True, create=True, say=self.parts.listener.say) as store:
            teaching = Teaching(store, self.parts, settings or TeachSettings(seed=self.parts.seed), scope=self.scope, again=again)
            return teaching.run(files)

    def remember(self, text: str, *, as_of: datetime | None = None) -> Remembered:
        """Keep one statement of the owner's, as a session of this one turn on ``as_of`` (now by default): fact, scene and verbatim round.

        It is masked, and its sentences are grounded in the owner's words, as when taught; the gate does not decide, since the owner
        did. Makes a store that does not exist. Raises DataError when nothing in it can be remembered.
        """
        now = datetime.now().replace(second=0, microsecond=0)  # noqa: DTZ005 - local wall time, as sessions have it
        return remember(text, as_of or now, self.path, self.parts, self.scope)

    def search(
        self, query: str, *, as_of: datetime | None = None, condition: str = DEFAULT_CONDITION, budget: int | None = None
    ) -> Delivered:
        """What would be delivered for ``query``: the state and the items. No language model is asked."""
        rules = _usable(condition, read_conditions().get(condition))
        embed_keys(self.path, self.parts, self.scope, [rules])
        with self._store() as store:
            return self._search(store, self._question(query, as_of), condition, rules, budget)

    def ask(
        self,
        question: str,
        *,
        as_of: datetime | None = None,
        condition: str = DEFAULT_CONDITION,
        rules: Condition | None = None,
    ) -> Answer:
        """Answer from memory. ``as_of`` is the day on which the question is asked, for distances; sessions are never hidden by it.

        In state C no model is started. Raises EngineError when the reading model gave no whole answer.
        """
        asked = self._question(question, as_of)
        rules = _usable(condition, rules or read_conditions().get(condition))
        embed_keys(self.path, self.parts, self.scope, [rules])
        with self._store() as store:
            delivered = self._search(store, asked, condition, rules, None)
            names = {row.key: row.external_id or row.key for row in store.sessions(self.scope)}
            secret = store.secret
        if delivered.state is State.C:
            return _without_a_model(asked, delivered)
        reader = Reader(secret, self.parts.count(Role.READ), self.parts.seed)
        job = Job(asked.id, partial(recall, asked, delivered, reader))
        (result,) = self.parts.engine(Role.READ).run([job], window=1)
        if isinstance(result, Failure):
            raise EngineError(f"{self.parts.name(Role.READ)} gave no whole answer ({result.reason}); ask again or use another --read-model")
        answer: Answer = result.value
        return as_kept(answer, names)

    def edit(self, memory_id: str, edit: Edit, *, by: str = "", at: datetime | None = None) -> Change:
        """Say something else instead. ``memory_id`` may be its beginning; ``by`` is the account's name by default, ``at`` now.

        An edit of the fact alone takes its scene away, which holds the old details. Raises DataError for what cannot be kept.
        """
        return self._changed(memory_id, "edit", by, at, lambda _, memory: edited(memory, edit))

    def verify(self, memory_id: str, *, by: str = "", at: datetime | None = None) -> Change:
        """Say that a memory is right; one that was retracted comes back."""
        return self._changed(memory_id, "verify", by, at, with_status(VERIFIED))

    def retract(self, memory_id: str, *, by: str = "", at: datetime | None = None) -> Change:
        """Take a memory out of every search, answer, list and export. It stays in the history; its verbatim rounds stay too."""
        return self._changed(memory_id, "retract", by, at, with_status(RETRACTED))

    def resolve(self, memory_id: str, *, by: str = "", at: datetime | None = None) -> list[Change]:
        """Say that this memory holds: it is verified, and those that contradict it are retracted. Raises ConfigError when none does."""
        with self._store_for_reading() as store:
            known, chosen = store.memories(self.scope), store.memory(memory_id, self.scope)
        pairs = [(known[p.earlier], known[p.later]) for p in line_up(known) if p.kind == "conflict"]
        others = [b if a.id == chosen.id else a for a, b in pairs if chosen.id in (a.id, b.id)]
        if not others:
            raise ConfigError(f"memory {chosen.id[:12]} is in no conflict; `dualtrace memory conflicts` lists those that are")
        made = [] if chosen.status == VERIFIED else [self.verify(chosen.id, by=by, at=at)]
        return made + [self.retract(other, by=by, at=at) for other in dict.fromkeys(o.id for o in others)]

    def undo(self, memory_id: str, number: int | None = None, *, by: str = "", at: datetime | None = None) -> Change:
        """Put back what change ``number`` changed (the newest by default), whatever was changed elsewhere since."""
        which = len(self.history(memory_id)) - 1 if number is None else number
        return self._changed(memory_id, f"undo {which}", by, at, back(which))

    def history(self, memory_id: str = "") -> list[Change]:
        """Every version of one memory, or of all that were ever changed, as taught first."""
        with self._store_for_reading() as store:
            every = [*store.memories(self.scope), *store.retracted(self.scope)]
            return store.history([store.memory(memory_id, self.scope)] if memory_id else every)

    def forget(self, which: Which, agreed: Callable[[Plan], bool] = lambda _: True) -> Forgotten | None:
        """Remove for good what ``which`` names in this scope, when ``agreed`` says yes to what will go. None when it says no.

        Texts, vectors, index terms, rounds, versions, failures and a run's copies; the result proves it by a search of all bytes.
        """
        return forget(self.path, self.scope, which, agreed, self.parts.listener.say)

    def _changed(
        self, memory_id: str, action: str, by: str, at: datetime | None, made: Callable[[Store, MemoryRecord], MemoryRecord]
    ) -> Change:
        now = at or datetime.now().replace(microsecond=0)  # noqa: DTZ005 - local wall time, as sessions have it
        return change(self.path, self.parts, self.scope, memory_id, Stamp(action, by or whoami(), now), made)

    def _store_for_reading(self) -> Store:
        return Store.open(self.path, None, say=self.parts.listener.say)

    def close(self) -> None:
        """Free the models."""
        self.parts.close_engine()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _store(self) -> Store:
        return Store.open(self.path, self.parts.embedder, say=self.parts.listener.say)

    def _search(self, store: Store, question: Question, name: str, condition: Condition, budget: int | None) -> Delivered:
        reader = Reader(store.secret, self.parts.count(Role.READ))
        tokens = budget or room_for(condition, question, reader, self.parts)
        view = View(store, self.scope, condition, name=name, seed=self.parts.seed)
        return search(view, question, self.parts.embedder, tokens, self.parts.count(Role.READ))

    @staticmethod
    def _question(text: str, as_of: datetime | None) -> Question:
        try:
            text.encode()
        except UnicodeEncodeError as problem:
            raise DataError(f"the question is not valid Unicode at character {problem.start + 1}; write it again") from problem
        return Question(digest_of("question", text, as_of), mask(text), as_of)


def _usable(name: str, condition: Condition) -> Condition:
    """Raises ConfigError for a condition whose memories are not those of a store that is taught day by day."""
    if condition.taught == "jointly":
        raise ConfigError(f"condition {name!r} reads memories that are taught for it alone; use it in `dualtrace run`, or another one here")
    return condition


def _without_a_model(question: Question, delivered: Delivered) -> Answer:
    """State C, worked out by the flow itself, which asks for nothing then."""
    flow = recall(question, delivered, Reader(b"", len))
    try:
        next(flow)
    except StopIteration as end:
        answer: Answer = end.value
        return answer
    msg = "a flow in state C asked for a model"
    raise AssertionError(msg)
