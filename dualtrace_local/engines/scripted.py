"""An engine that answers from a table or a function: for tests of logic and for trying the command line without a model.

It behaves like a real one where that matters: prompts have a length and a limit, a shared prefix counts as cached, and it can be
told to hang, to die, or to take the whole process with it at a given call.
"""

from __future__ import annotations

import os
import signal
import time
from collections import deque
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, replace

from dualtrace_local.errors import EngineError
from dualtrace_local.records import Completion, Finish, Request

from .driver import Engine, EngineDiedError, Reply

Answer = str | Completion
Table = Mapping[str, Answer | Iterable[Answer]]
"""By kind of request: one answer for all, or answers that are used up in order."""

BLOCK = 32
"""Words of one block of the simulated prefix cache."""


@dataclass(frozen=True)
class _Open:
    """A request that waits for its answer. ``due``: the poll at which it is finished."""

    ticket: int
    priority: int
    request: Request
    due: int


class ScriptedEngine(Engine):
    """Answers ``reply``: a function of the request, or a table by kind.

    A ``str`` is what the model would write, cut (``length``) at the request's ``max_tokens`` words; a ``Completion`` is handed on
    as it is, with token counts filled in where they are 0. ``requests`` holds all that arrived, ``order`` their priorities.

    Args:
        reply: the answers.
        model: name of the model.
        limit: tokens (words) of prompt and completion.
        latency: polls that a request takes.
        batch: requests answered in one poll at most, lowest priority number first; 0 answers all.
        hang_on: requests for which this is true are never answered.
        die_at: the call (1-based) at which the engine dies, or several: ``range(3, 1000)`` is one that stays broken.
        stop_process_at: the call (1-based) at which the whole process is killed as by ``kill -9``.
    """

    name = "scripted"

    def __init__(
        self,
        reply: Callable[[Request], Answer] | Table,
        *,
        model: str = "scripted",
        limit: int = 4096,
        latency: int = 1,
        batch: int = 0,
        hang_on: Callable[[Request], bool] = lambda _: False,
        die_at: int | Container[int] = (),
        stop_process_at: int = 0,
    ) -> None:
        self.model = model
        self.limit = limit
        self.requests: list[Request] = []
        self.order: list[int] = []
        self.starts = 1
        self._reply = reply if callable(reply) else _from_table(reply)
        self._latency = latency
        self._batch = batch
        self._hang_on = hang_on
        self._die_at = (die_at,) if isinstance(die_at, int) else die_at
        self._stop_process_at = stop_process_at
        self._polls = 0
        self._open: dict[int, _Open] = {}
        self._seen: set[int] = set()

    @property
    def pending(self) -> int:
        """Requests that are open."""
        return len(self._open)

    def submit(self, ticket: int, request: Request, priority: int) -> None:
        """See Engine. Every request that arrives is a call, and is kept in ``requests``."""
        self.check_length(request, self.count_request(request))
        self.requests.append(request)
        self.order.append(priority)
        if len(self.requests) == self._stop_process_at:
            os.kill(os.getpid(), signal.SIGKILL)
        if len(self.requests) in self._die_at:
            self._open.clear()
            msg = f"the scripted engine was told to die at call {len(self.requests)}"
            raise EngineDiedError(msg)
        self._open[ticket] = _Open(ticket, priority, request, self._polls + self._latency)

    def poll(self, timeout: float) -> list[Reply]:
        """See Engine."""
        self._polls += 1
        answerable = [o for o in self._open.values() if not self._hang_on(o.request)]
        if not answerable:
            time.sleep(timeout)
            return []
        due = sorted((o for o in answerable if o.due <= self._polls), key=lambda o: (o.priority, o.ticket))
        if self._batch:
            due = due[: self._batch]
        return [Reply(o.ticket, self._complete(self._open.pop(o.ticket).request)) for o in due]

    def cancel(self, ticket: int) -> None:
        """See Engine."""
        self._open.pop(ticket, None)

    def restart(self) -> None:
        """See Engine. ``starts`` counts."""
        self.starts += 1
        self._open.clear()
        self._seen.clear()

    def close(self) -> None:
        """See Engine."""
        self._open.clear()

    def count(self, text: str) -> int:
        """Words."""
        return len(text.split())

    def count_request(self, request: Request) -> int:
        """Words of system and user text."""
        return self.count(request.system) + self.count(request.user)

    def _complete(self, request: Request) -> Completion:
        answer = self._reply(request)
        made = answer if isinstance(answer, Completion) else self._cut(answer, request.max_tokens)
        words = [*request.system.split(), *request.user.split()]
        return replace(
            made,
            prompt_tokens=made.prompt_tokens or len(words),
            cached_tokens=made.cached_tokens or self._cached(words),
            completion_tokens=made.completion_tokens or self.count(made.text),
        )

    def _cut(self, text: str, most: int) -> Completion:
        """``text`` as far as ``most`` words reach."""
        if self.count(text) <= most:
            return Completion(text, Finish.STOP)
        return Completion(" ".join(text.split()[:most]), Finish.LENGTH)

    def _cached(self, words: list[str]) -> int:
        """Words of the longest prefix, in whole blocks, that an earlier prompt began with; remembers this prompt's prefixes."""
        cached, prefix = 0, 0
        for end in range(BLOCK, len(words) + 1, BLOCK):
            prefix = hash((prefix, *words[end - BLOCK : end]))
            if prefix in self._seen:
                cached = end
            self._seen.add(prefix)
        return cached


def _from_table(table: Table) -> Callable[[Request], Answer]:
    """The table as a function. Raises EngineError (fatal) when it has no answer: a test that asks too much is wrong."""
    single = {kind: answer for kind, answer in table.items() if isinstance(answer, str | Completion)}
    queues = {kind: deque(answers) for kind, answers in table.items() if not isinstance(answers, str | Completion)}

    def reply(request: Request) -> Answer:
        if request.kind in single:
            return single[request.kind]
        if queues.get(request.kind):
            return queues[request.kind].popleft()
        msg = f"the scripted table holds no (further) answer for {request.kind!r}; it knows {', '.join(table) or 'nothing'}"
        raise EngineError(msg)

    return reply
