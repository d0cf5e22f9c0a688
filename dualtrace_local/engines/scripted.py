"""An engine whose replies come from a table or a function: for every test of logic, and for trying the command line.

It keeps the whole contract of ``Engine`` and can be told to go wrong in each way that a real one does.
"""

from __future__ import annotations

import os
import signal
from collections import deque
from collections.abc import Callable, Mapping, Sequence

from dualtrace_local.records import Completion, Finish, Request

from .driver import Engine, EngineDiedError, Reply

Answer = str | Completion
Table = Mapping[str, Answer | Sequence[Answer]]
"""By kind of request: one reply for all, or replies that are used up in order."""

BLOCK = 32
"""Words in a block of the pretended prefix cache; only whole blocks are reused, as in vLLM."""


def words(text: str) -> int:
    """Tokens as this engine counts them: words between white space."""
    return len(text.split())


class ScriptedEngine(Engine):
    """Answers from ``reply``, a function or a table by kind of request.

    ``die_at``: the calls (1-based) at which the engine dies; ``stop_process_at``: the call at which the whole process is killed, as
    ``kill -9`` does; ``hang_on``: requests that are never answered; ``latency``: polls that a reply takes. All requests that
    were taken are in ``requests``, cancelled tickets in ``cancelled``. A string reply longer than the request's ``max_tokens``
    words is cut there and finishes as ``length``.
    """

    name = "scripted"

    def __init__(  # noqa: PLR0913 - each names one way to go wrong
        self,
        reply: Callable[[Request], Answer] | Table,
        *,
        model: str = "scripted",
        limit: int = 4096,
        die_at: Sequence[int] = (),
        stop_process_at: int = 0,
        hang_on: Callable[[Request], bool] | None = None,
        latency: int = 0,
    ) -> None:
        self.model = model
        self.limit = limit
        self.requests: list[Request] = []
        self.cancelled: list[int] = []
        self.restarts = 0
        self.closed = False
        self._reply = reply if callable(reply) else _from_table(reply)
        self._die_at = frozenset(die_at)
        self._stop_process_at = stop_process_at
        self._hang_on = hang_on
        self._latency = latency
        self._open: dict[int, tuple[int, int, Request]] = {}
        self._polls = 0
        self._seen: set[tuple[str, ...]] = set()

    def submit(self, ticket: int, request: Request, priority: int) -> None:
        """Take a request; dies or stops the process where it was told to."""
        self.check_length(request, self.count_request(request))
        self.requests.append(request)
        if len(self.requests) == self._stop_process_at:
            os.kill(os.getpid(), signal.SIGKILL)
        if len(self.requests) in self._die_at:
            msg = f"told to die at call {len(self.requests)}"
            raise EngineDiedError(msg)
        self._open[ticket] = (priority, self._polls + self._latency, request)

    def poll(self, timeout: float) -> list[Reply]:
        """Everything that is due, by priority."""
        del timeout
        due = sorted(
            (priority, ticket) for ticket, (priority, when, request) in self._open.items() if when <= self._polls and self._answers(request)
        )
        self._polls += 1
        return [Reply(ticket, self._complete(self._open.pop(ticket)[2])) for _, ticket in due]

    def _answers(self, request: Request) -> bool:
        return self._hang_on is None or not self._hang_on(request)

    def _complete(self, request: Request) -> Completion:
        prompt = f"{request.system}\n{request.user}".split()
        cached = self._cached(prompt)
        answer = self._reply(request)
        if isinstance(answer, Completion):
            return answer
        pieces = answer.split()
        if len(pieces) > request.max_tokens:
            return Completion(" ".join(pieces[: request.max_tokens]), Finish.LENGTH, len(prompt), cached, request.max_tokens)
        return Completion(answer, Finish.STOP, len(prompt), cached, len(pieces))

    def _cached(self, prompt: list[str]) -> int:
        """Words of the longest prefix, in whole blocks, that an earlier prompt had too."""
        cached = 0
        for end in range(BLOCK, len(prompt) + 1, BLOCK):
            prefix = tuple(prompt[:end])
            if prefix in self._seen:
                cached = end
            self._seen.add(prefix)
        return cached

    def cancel(self, ticket: int) -> None:
        """Forget a request."""
        if self._open.pop(ticket, None) is not None:
            self.cancelled.append(ticket)

    def restart(self) -> None:
        """Go on with nothing open."""
        self.restarts += 1
        self._open.clear()

    def close(self) -> None:
        """Nothing to free."""
        self.closed = True

    def count(self, text: str) -> int:
        """Words."""
        return words(text)

    def count_request(self, request: Request) -> int:
        """Words of system and user text."""
        return words(request.system) + words(request.user)


def _from_table(table: Table) -> Callable[[Request], Answer]:
    waiting = {kind: None if isinstance(value, str | Completion) else deque(value) for kind, value in table.items()}

    def reply(request: Request) -> Answer:
        value = table[request.kind]
        queue = waiting[request.kind]
        if isinstance(value, str | Completion):
            return value
        if not queue:
            msg = f"the table has no reply left for a request of kind {request.kind}"
            raise EngineDiedError(msg)
        return queue.popleft()

    return reply
