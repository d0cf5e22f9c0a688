"""The demo: a run over the shipped sample, and the few things of it that show what the idea is."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from dualtrace_local.config import Conditions, Role, TeachSettings, cache_folder
from dualtrace_local.corpus import file_digest
from dualtrace_local.domains import prompts
from dualtrace_local.records import Answer, Memory, Scope, State, digest_of
from dualtrace_local.sample import sample_path
from dualtrace_local.store import LedgerRow, Store

from .experiment import Plan, Result, run
from .files import private_folder
from .folder import RunFolder
from .parts import Parts
from .teach import fingerprint_parts

SHOWN = ("c6", "c7")


@dataclass(frozen=True)
class Story:
    """What the demo tells. ``memory`` and ``answer`` are None when the model kept or answered nothing."""

    out: Path
    result: Result
    sessions: tuple[LedgerRow, ...]
    memory: Memory | None
    answer: Answer | None

    @property
    def kept(self) -> int:
        """Sessions that passed the gate."""
        return sum(row.status == "taught" for row in self.sessions)


def story(out: Path | None, parts: Parts, conditions: Conditions) -> Story:
    """Run (or resume) the sample under c6 and c7 and choose what to show.

    Without ``out`` the run lies in the cache, in a folder named after what shapes it, so that a changed prompt or model starts anew.
    """
    settings = TeachSettings(seed=parts.seed)
    shaping = (
        file_digest(sample_path()),
        fingerprint_parts(parts, settings),
        [parts.identity(role) for role in Role],
        [prompts.digest(name) for name in prompts.names()],
        [parts.seed, parts.spec(Role.READ).budgets.context],
        conditions.model_dump(mode="json"),
    )
    identity = digest_of(*shaping, length=8)
    folder = out or private_folder(cache_folder() / "demo") / identity
    result = run(Plan(sample_path(), SHOWN, settings=settings), folder, parts, conditions)
    with Store.open(folder / "store", parts.embedder, say=parts.listener.say) as store:
        sessions = tuple(store.sessions())
        memories = store.memories(Scope())
    answers = RunFolder(folder, parts.listener.say).answers(SHOWN[0])
    correct = {o.question_id for o in result.report.outcomes if o.outcomes.get(SHOWN[0]) == "correct"}
    answered = [a for a in answers if not a.abstained]
    answer = max(answered, key=lambda a: (a.question_id in correct, a.state is State.A, len(a.sources)), default=None)
    shown = {s.memory_id for s in answer.sources} if answer else set()
    memory = max(memories, key=lambda m: (m.id in shown, bool(m.scene), m.evidence.total), default=None)
    return Story(folder, result, sessions, memory, answer)
