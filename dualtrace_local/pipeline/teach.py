"""Stage one: sources to a taught store. Read, mask, skip what is known, encode the rest, commit in durable batches."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from dualtrace_local.config import BATCH, Role, TeachSettings
from dualtrace_local.corpus import found, read
from dualtrace_local.domains import prompts
from dualtrace_local.domains.personal import Personal
from dualtrace_local.encode import encode
from dualtrace_local.engines.driver import Job
from dualtrace_local.errors import DataError
from dualtrace_local.joint import Joint, encode_jointly
from dualtrace_local.masking import mask, mask_session
from dualtrace_local.records import Encoded, Entry, Evidence, Failure, Rejected, Scope, Session, Tier, Usage, digest_of
from dualtrace_local.report import TeachTotals
from dualtrace_local.store import Outcome, Store
from dualtrace_local.store.durable import FILE_MODE

from .files import JsonLines
from .folder import tally
from .parts import Listener, Parts

MARKER = "teaching"
"""An empty file that lies in the store's folder while a teach is under way; one that is found at a start tells of an interruption."""

Seen = Callable[[Entry, tuple[Session, ...]], None]
"""Is told of every entry with its masked sessions, for a benchmark's questions."""

Committed = Callable[[dict[str, Usage]], None]
"""Is told after each durable batch what was used since the one before."""


@dataclass(frozen=True)
class Sources:
    """What to teach: files that can be read, and a line for each file that cannot be.

    ``sessions`` is for the progress bar: sessions that differ, and records that cannot be read. ``others`` counts files of folders and
    archives that hold no chats.
    """

    paths: tuple[Path, ...]
    sessions: int
    unreadable: tuple[str, ...] = ()
    others: int = 0
    limit: int | None = None
    questions: frozenset[str] | None = None

    def entries(self, path: Path, scope: Scope | None = None) -> Iterator[Entry | Rejected]:
        """The entries of a file that are to be taught; with ``questions``, those of these questions alone."""
        return (e for e in read(path, scope, self.limit) if isinstance(e, Rejected) or self._asked(e))

    def _asked(self, entry: Entry) -> bool:
        return self.questions is None or (entry.question is not None and entry.question.id in self.questions)


def readable(paths: Sequence[Path], limit: int | None = None, questions: frozenset[str] | None = None) -> Sources:
    """Pass over the files once, before anything is made or loaded. Raises DataError when none of them can be read."""
    asked = Sources((), 0, limit=limit, questions=questions)
    good: list[Path] = []
    bad: list[DataError] = []
    rejected = others = 0
    keys: set[str] = set()
    for path in paths:
        try:
            others += found(path).others
            for entry in asked.entries(path):
                if isinstance(entry, Rejected):
                    rejected += 1
                else:
                    keys.update(session.key for session in entry.sessions)
        except DataError as problem:
            bad.append(problem)
        else:
            good.append(path)
    if bad and not good:
        raise bad[0]
    lines = tuple(str(problem) for problem in bad)
    return replace(asked, paths=tuple(good), sessions=len(keys) + rejected, unreadable=lines, others=others)


def fingerprint_parts(parts: Parts, settings: TeachSettings, *, jointly: bool = False) -> dict[str, Any]:
    """All that changes what is written: model, prompts, settings, gate, budgets, seed (design section 9).

    ``jointly``: both traces in one completion, which is told by its prompts and shapes.
    """
    spec = parts.spec(Role.ENCODE)
    domain = (Joint if jointly else Personal)(b"", len, spec.gate, spec.budgets, settings)
    return {
        "model": parts.identity(Role.ENCODE),
        "gate": spec.gate.value,
        "excerpt_tokens": spec.budgets.excerpt,
        "prompts": {name: prompts.digest(name) for name in domain.prompt_names},
        "shapes": domain.shapes,
        "settings": settings.model_dump(mode="json"),
        "embedder": parts.identity(Role.EMBED),
    }


@dataclass
class _Counts:
    """Running totals of one teach."""

    sessions: Counter[str] = field(default_factory=Counter)
    tiers: Counter[str] = field(default_factory=Counter)
    left_out: Counter[str] = field(default_factory=Counter)
    memories: int = 0
    with_scene: int = 0
    usage: dict[str, Usage] = field(default_factory=dict)

    def totals(self, seconds: float) -> TeachTotals:
        names = ("taught", "dropped", "empty", "unchanged", "forgotten", "failed")
        each = {name: self.sessions[name] for name in names}
        return TeachTotals(
            read=self.sessions["read"],
            **each,
            memories=self.memories,
            with_scene=self.with_scene,
            tiers=dict(self.tiers),
            usage=self.usage,
            seconds=seconds,
            left_out=dict(sorted((+self.left_out).items())),
        )


class Teaching:
    """One teach of some sources into a store that is open for writing; ``jointly`` with both traces in one completion.

    ``again`` teaches what was forgotten too. ``run`` may be interrupted at any moment: what was committed stays, the flows in flight are
    done again by the same command.
    """

    def __init__(
        self,
        store: Store,
        parts: Parts,
        settings: TeachSettings,
        *,
        scope: Scope,
        seen: Seen | None = None,
        committed: Committed | None = None,
        jointly: bool = False,
        again: bool = False,
    ) -> None:
        self.again = again
        self.store = store
        self.parts = parts
        self.settings = settings
        self.scope = scope
        self.seen = seen
        self.committed = committed
        self.listener: Listener = parts.listener
        self.jointly = jointly
        self.fingerprint = digest_of(fingerprint_parts(parts, settings, jointly=jointly))
        self.known = dict(store.known())
        self.forgotten = store.forgotten()
        self.failures = JsonLines(store.path / "failures.jsonl", self.listener.say)
        self._counts = _Counts()
        self._spent: dict[str, Usage] = {}
        self._batch: list[Outcome] = []
        self._open: dict[str, Session] = {}
        self._met: set[str] = set()
        self._other_fingerprint = 0

    def run(self, sources: Sources) -> TeachTotals:
        """Teach all sources. Returns totals that add up; failed records have been told one line each."""
        started = time.monotonic()
        self._tell_interruption()
        self.listener.stage("teach", sources.sessions)
        for line in sources.unreadable:
            self._count("read", "failed")
            self.listener.say(line)
        self._counts.left_out["files without chats"] += sources.others
        try:
            fresh = self._fresh(sources)
            if (first := next(fresh, None)) is not None:
                self._encode_all(itertools.chain([first], fresh))
        finally:
            self._commit()
            self.listener.end()
        (self.store.path / MARKER).unlink(missing_ok=True)
        if self._other_fingerprint:
            self.listener.say(
                f"{self._other_fingerprint} sessions were taught earlier with another model, prompt or setting and stay as they are; "
                "teach them into a new store to write them again"
            )
        return self._counts.totals(time.monotonic() - started)

    def _tell_interruption(self) -> None:
        if (self.store.path / MARKER).exists():
            self.listener.say(f"resumed: an earlier teach was interrupted; {len(self.known)} sessions are already in the store and stay")

    def _fresh(self, sources: Sources) -> Iterator[Session]:
        """Masked sessions that the model must read, in order; everything else is counted on the way."""
        for source in sources.paths:
            shared: tuple[Session, ...] | None = None
            masked: tuple[Session, ...] = ()
            for entry in sources.entries(source, self.scope):
                if isinstance(entry, Rejected):
                    self._count("read", "failed")
                    self.listener.say(mask(str(entry)))
                    self.listener.advance()
                    continue
                self._counts.left_out.update(entry.left_out)
                for note in entry.notes:
                    self.listener.say(mask(note))
                # The questions about one conversation have the same tuple: it is masked, counted and taught once.
                again, shared = entry.sessions is shared, entry.sessions
                masked = masked if again else tuple(mask_session(session) for session in entry.sessions)
                if self.seen is not None:
                    self.seen(entry, masked)
                for session in () if again else masked:
                    if self._is_new(session):
                        yield session

    def _is_new(self, session: Session) -> bool:
        self._count("read")
        met_before = session.key in self._met
        self._met.add(session.key)
        if session.key in self.forgotten and session.key not in self.known and not self.again:
            status = "forgotten"
        elif session.key in self.known:
            status = "unchanged"
            self._other_fingerprint += self.known[session.key] not in (self.fingerprint, "")
        elif session.empty:
            status = "empty"
            self._keep(Outcome(Encoded(session, Tier.DROP, Evidence()), "empty", self.fingerprint))
        else:
            self.known[session.key] = ""
            self._open[session.key] = session
            return True
        self._count(status)
        if not met_before:
            self.listener.advance()
        return False

    def _encode_all(self, sessions: Iterator[Session]) -> None:
        spec = self.parts.spec(Role.ENCODE)
        kind, write = (Joint, encode_jointly) if self.jointly else (Personal, encode)
        domain = kind(self.store.secret, self.parts.count(Role.ENCODE), spec.gate, spec.budgets, self.settings)
        embed = self.parts.embedder.encode
        jobs = (Job(s.key, partial(write, s, domain, embed)) for s in sessions)
        engine = self.parts.engine(Role.ENCODE)
        (self.store.path / MARKER).touch(FILE_MODE)
        for result in engine.run(jobs, window=spec.window):
            session = self._open.pop(result.key)
            tally(self._counts.usage, result.usage)
            tally(self._spent, result.usage)
            if isinstance(result, Failure):
                self._fail(session, result)
            else:
                self._finish(result.value)
            self.listener.advance()

    def _finish(self, encoded: Encoded) -> None:
        status = "dropped" if encoded.tier is Tier.DROP else "taught"
        self._count(status)
        self._counts.tiers[encoded.tier.value] += 1
        self._counts.memories += len(encoded.memories)
        self._counts.with_scene += sum(bool(m.scene) for m in encoded.memories)
        self._keep(Outcome(encoded, status, self.fingerprint))

    def _fail(self, session: Session, failure: Failure) -> None:
        """Note a failure. The key stays known, so that only the next start tries again, not every later place that holds the session."""
        self._count("failed")
        self.failures.append(
            [
                {
                    "stage": "teach",
                    "key": session.key,
                    "source": session.source,
                    "record": session.record,
                    "reason": failure.reason,
                    "raw": mask(failure.raw),
                }
            ]
        )
        self.listener.say(f"{session.source}:{session.record}: {failure.reason}; not stored, the next teach tries again")

    def _keep(self, outcome: Outcome) -> None:
        self.known[outcome.encoded.session.key] = self.fingerprint
        self._batch.append(outcome)
        if len(self._batch) >= BATCH:
            self._commit()

    def _commit(self) -> None:
        batch, self._batch = self._batch, []
        spent, self._spent = self._spent, {}
        if batch and self.again:
            self.store.allow_again([o.encoded.session.key for o in batch])
        if batch:
            self.store.commit(batch)
        if self.committed is not None:
            self.committed(spent)

    def _count(self, *names: str) -> None:
        self._counts.sessions.update(names)
