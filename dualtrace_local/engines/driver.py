"""The flow driver: runs many flows at once on one engine, whatever the engine is.

A flow (records.Flow) yields requests and is sent completions. ``Engine.run`` keeps a bounded number of them in flight, sends each
one's next request as soon as its last completion is back, and yields results as they come. An engine only has to take a request,
hand back what is finished, and forget a request.
"""

from __future__ import annotations

import itertools
import time
import traceback
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from types import TracebackType
from typing import Any, Self

from pydantic import ValidationError

from dualtrace_local import config
from dualtrace_local.errors import DualtraceError, EngineError
from dualtrace_local.records import Completion, Done, Failure, Finish, Flow, Request, Usage

POLL = 1.0
"""Longest single wait for the engine, in seconds, so that time limits and Ctrl-C are noticed."""

REPETITION = {"max_pattern_size": 32, "min_pattern_size": 1, "min_count": 12}
"""A pattern of up to 32 tokens that comes 12 times in a row ends a completion; rows of dots in prose stay below that."""


class PromptTooLongError(DualtraceError):
    """Thrown into a flow before anything is sent. ``tokens`` counts prompt and longest completion, ``limit`` is what fits."""

    def __init__(self, tokens: int, limit: int) -> None:
        super().__init__(f"prompt and completion need {tokens} tokens, the model takes {limit}; split the text or raise context")
        self.tokens = tokens
        self.limit = limit


class TimeLimitError(DualtraceError):
    """Thrown into a flow that got no completion in time; its request has been cancelled."""


class OutputError(DualtraceError):
    """No valid completion in three tries. ``raw`` is the last text; it is private and not part of the message."""

    def __init__(self, reason: str, raw: str) -> None:
        super().__init__(reason)
        self.raw = raw


class EngineDiedError(DualtraceError):
    """Raised by an engine that can answer nothing any more. ``run`` starts it again once."""


@dataclass(frozen=True)
class Job:
    """One item to work on. ``start`` makes a fresh flow; it is called again when a dead engine was restarted."""

    key: str
    start: Callable[[], Flow[Any]]


@dataclass(frozen=True)
class Reply:
    """A finished request, by the ticket it was submitted with: its completion, or an error that is thrown into its flow."""

    ticket: int
    outcome: Completion | DualtraceError


def ask(request: Request) -> Flow[Any]:
    """Yield ``request`` and return its completion as ``request.output``; for ``yield from`` in a stage.

    Only a completion that ended by itself is parsed, and nothing is repaired. A cut, looping or invalid one is asked for again
    with another seed and more room, the second time at temperature 0.3. Raises OutputError after that; PromptTooLongError
    only if the first try does not fit (a longer retry is shortened to what fits).
    """
    reason = raw = ""
    for seed, room, temperature in ((0, 1.0, request.temperature), (1, 1.5, request.temperature), (2, 2.0, 0.3)):
        trial = replace(
            request,
            seed=request.seed + seed,
            max_tokens=int(request.max_tokens * room),
            temperature=temperature,
        )
        try:
            completion = yield trial
        except PromptTooLongError as problem:
            if not seed:
                raise
            trial = replace(trial, max_tokens=trial.max_tokens - (problem.tokens - problem.limit))
            completion = yield trial
        raw = completion.text
        match completion.finish:
            case Finish.STOP:
                try:
                    return request.output.model_validate_json(raw)
                except ValidationError:
                    reason = "not of the schema"
            case Finish.LENGTH:
                reason = f"cut off at {trial.max_tokens} tokens (length)"
            case other:
                reason = other.value
    raise OutputError(f"{request.kind}: {reason}", raw)


@dataclass
class _Slot:
    """A started job. ``sent`` is the reading of the run's clock when its open request was sent."""

    job: Job
    priority: int
    flow: Flow[Any] | None = None
    kind: str = ""
    ticket: int = -1
    sent: float = 0.0
    repeated: bool = False
    usage: dict[str, Usage] = field(default_factory=dict)

    def start(self) -> Request:
        self.flow = self.job.start()
        return next(self.flow)

    def send(self, completion: Completion) -> Request:
        spent = Usage(1, completion.prompt_tokens, completion.cached_tokens, completion.completion_tokens)
        self.usage[self.kind] = self.usage.get(self.kind, Usage()) + spent
        assert self.flow is not None  # noqa: S101 - a slot with an open request has a flow
        return self.flow.send(completion)

    def go_on(self, outcome: Completion | DualtraceError) -> Request:
        return self.throw(outcome) if isinstance(outcome, DualtraceError) else self.send(outcome)

    def throw(self, problem: DualtraceError) -> Request:
        assert self.flow is not None  # noqa: S101 - as above
        return self.flow.throw(problem)

    def close(self) -> None:
        if self.flow is not None:
            self.flow.close()


def reason_of(problem: Exception) -> str:
    """One line for a failed flow. A foreign error's own text may quote a chat, so only its place is told."""
    if isinstance(problem, DualtraceError):
        return " ".join(str(problem).split()) or type(problem).__name__
    frames = traceback.extract_tb(problem.__traceback__)
    place = f" at {frames[-1].filename.rsplit('/', 1)[-1]}:{frames[-1].lineno}" if frames else ""
    return f"{type(problem).__name__}{place}"


def silent(line: str) -> None:
    """Says nothing."""


class Engine(ABC):
    """What answers requests. ``name`` is the engine's kind, ``model`` the model's name, ``limit`` the tokens of prompt and completion.

    ``say`` is told in one line what a person should know; ``remote_hosts`` are other machines that prompts are sent to.
    """

    name: str
    model: str
    limit: int
    say: Callable[[str], None] = staticmethod(silent)
    remote_hosts: tuple[str, ...] = ()

    @abstractmethod
    def submit(self, ticket: int, request: Request, priority: int) -> None:
        """Take ``request``; a lower ``priority`` is served first. Raises PromptTooLongError before anything is sent."""

    @abstractmethod
    def poll(self, timeout: float) -> list[Reply]:
        """What is finished, waiting at most about ``timeout`` seconds for something. Raises EngineDiedError."""

    @abstractmethod
    def cancel(self, ticket: int) -> None:
        """Forget a request. Never raises: the ticket may be finished, the engine dead."""

    @abstractmethod
    def restart(self) -> None:
        """Start again with no open requests. Raises EngineError."""

    @abstractmethod
    def close(self) -> None:
        """Free all memory. May be called twice."""

    @abstractmethod
    def count(self, text: str) -> int:
        """Tokens of a plain text."""

    @abstractmethod
    def count_request(self, request: Request) -> int:
        """Tokens of the whole prompt that ``request`` becomes."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def check_length(self, request: Request, prompt_tokens: int) -> None:
        """Raises PromptTooLongError when prompt and longest completion exceed the limit."""
        if prompt_tokens + request.max_tokens > self.limit:
            raise PromptTooLongError(prompt_tokens + request.max_tokens, self.limit)

    def run(self, jobs: Iterable[Job], *, window: int, time_limit: float = config.TIME_LIMIT) -> Iterator[Done | Failure]:
        """Run every job and yield one result each, as they finish; the key is the job's.

        At most ``window`` jobs are taken from ``jobs`` and unfinished at any time; the order in which they start is their
        priority. A flow that raises becomes a Failure and the others go on. One that gets no completion for ``time_limit``
        seconds is begun anew, and the first time in a run the window is halved, since a machine with too much to do at once is slow
        in all of it; over its time again, it becomes a Failure. A dead engine is restarted once, with half the window, and the
        unfinished flows start anew; the second death raises EngineError. Closing the iterator, or Ctrl-C, cancels what is open and
        closes the flows.
        """
        run = _Run(self, iter(jobs), window, time_limit)
        try:
            while True:
                try:
                    yield from run.results()
                except EngineDiedError as death:
                    run.recover(death)
                else:
                    return
        finally:
            run.stop()


_TICKETS = itertools.count()
"""Unique in the process, so that a late reply to an abandoned run is never taken for another's."""


class _Run:
    """The state of one ``Engine.run``.

    ``active``: started and unfinished jobs by priority; ``unstarted``: those that have to begin anew.
    ``clock``: seconds spent waiting for the engine, so that a caller who is
    busy between two results costs no flow its time.
    """

    def __init__(self, engine: Engine, source: Iterator[Job], window: int, time_limit: float) -> None:
        self.engine = engine
        self.source = source
        self.window = window
        self.time_limit = time_limit
        self.active: dict[int, _Slot] = {}
        self.unstarted: deque[_Slot] = deque()
        self.priorities = itertools.count()
        self.clock = 0.0
        self.died = False
        self.slow = False

    def results(self) -> Iterator[Done | Failure]:
        """Work until the jobs are used up."""
        while True:
            while len(self.active) < self.window and (slot := self.next_slot()) is not None:
                self.active[slot.priority] = slot
                yield from self.advance(slot, slot.start)
            if not self.active:
                return
            for slot, step in self.wait():
                yield from self.advance(slot, step)

    def next_slot(self) -> _Slot | None:
        """The next job to start: one that a dead engine left behind, else a new one."""
        if self.unstarted:
            return self.unstarted.popleft()
        job = next(self.source, None)
        return None if job is None else _Slot(job, next(self.priorities))

    def advance(self, slot: _Slot, step: Callable[[], Request]) -> Iterator[Done | Failure]:
        """Take one step of a flow and send what it asks for; yields the flow's result if that was its last step."""
        try:
            request = step()
            while problem := self.refused(slot, request):
                request = slot.throw(problem)
        except StopIteration as end:
            result: Done | Failure = Done(slot.job.key, end.value, slot.usage)
        except EngineDiedError:
            raise
        except Exception as problem:  # noqa: BLE001 - the one place where whatever goes wrong in an item becomes data
            slot.close()
            raw = problem.raw if isinstance(problem, OutputError) else ""
            result = Failure(slot.job.key, reason_of(problem), raw, slot.usage)
        else:
            return
        del self.active[slot.priority]
        yield result

    def refused(self, slot: _Slot, request: Request) -> PromptTooLongError | None:
        """Send ``request``, unless it is too long."""
        slot.kind, slot.ticket, slot.sent = request.kind, next(_TICKETS), self.clock
        try:
            self.engine.submit(slot.ticket, request, slot.priority)
        except PromptTooLongError as problem:
            return problem
        return None

    def wait(self) -> list[tuple[_Slot, Callable[[], Request]]]:
        """Wait for the engine; returns which flows go on, and how: with a completion or with a TimeLimitError."""
        left = min(slot.sent for slot in self.active.values()) + self.time_limit - self.clock
        before = time.monotonic()
        replies = self.engine.poll(max(0.0, min(POLL, left)))
        self.clock += time.monotonic() - before
        waiting = {slot.ticket: slot for slot in self.active.values()}
        steps: list[tuple[_Slot, Callable[[], Request]]] = [
            (slot, partial(slot.go_on, reply.outcome)) for reply in replies if (slot := waiting.pop(reply.ticket, None))
        ]
        for slot in waiting.values():
            if self.clock - slot.sent >= self.time_limit:
                self.engine.cancel(slot.ticket)
                steps.append((slot, self.overdue(slot)))
        return steps

    def overdue(self, slot: _Slot) -> Callable[[], Request]:
        """How a flow over its time goes on: from its beginning, and the second time with a TimeLimitError."""
        reason = f"{slot.kind}: no completion within {self.time_limit:g} s"
        if slot.repeated:
            return partial(slot.throw, TimeLimitError(f"{reason}; raise the limit or lower the window"))
        slot.repeated = True
        slot.close()
        if not self.slow:
            self.slow = True
            self.engine.say(f"{reason}, tried once more{self.halve()}")
        return slot.start

    def halve(self) -> str:
        """Halve the window, if there is anything to halve; returns that as the end of a sentence."""
        before, self.window = self.window, max(1, self.window // 2)
        return f"; from here on {self.window} items at a time instead of {before}" if self.window < before else ""

    def recover(self, death: EngineDiedError) -> None:
        """Restart the engine, and every unfinished flow from its beginning. Raises EngineError at the second death."""
        if self.died:
            msg = f"the engine died twice ({reason_of(death)}); finished work is kept, start the same command again to go on"
            raise EngineError(msg) from death
        self.died = True
        self.engine.say(f"{reason_of(death)}; starting again{self.halve()}")
        self.engine.restart()
        for slot in self.active.values():
            slot.close()
        self.unstarted = deque([*self.active.values(), *self.unstarted])
        self.active.clear()

    def stop(self) -> None:
        """Leave nothing open."""
        for slot in self.active.values():
            self.engine.cancel(slot.ticket)
            slot.close()
        self.active.clear()
