"""Models behind OpenAI-compatible servers: vLLM, llama.cpp's llama-server, Ollama, LM Studio.

One event loop in a thread of its own does all the talking; the methods of the engine hand it requests and take replies from a queue.
Several endpoints share the work: one that cannot be reached is left out, its requests go to the others, and it is taken in again when
it is back. When none is left the engine has died, and a restart waits for one to come back.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import queue
import threading
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from pydantic import Field, ValidationError

from dualtrace_local import config
from dualtrace_local.config import ModelSpec, Strict
from dualtrace_local.errors import ConfigError, DualtraceError, EngineError
from dualtrace_local.records import Request

from .chat import estimate
from .driver import Engine, EngineDiedError, Reply, silent
from .endpoint import Endpoint, PassingError
from .probe import TEMPLATE, Dialect, offered, probe, reported

T = TypeVar("T")

TRIES = 6
"""Times that a request is sent before a passing failure is taken for a lasting one."""

LONGEST_WAIT = 60.0
"""Most seconds between two tries, whatever the server asks for."""

CHECKS = 4
"""Checks in a row that find an endpoint unreachable, after which it counts as gone (about 2 s)."""

CARD_LIMIT = 30.0
"""Seconds for what a server answers without a model's work: which models there are, how many tokens a text has."""

START = "start the server, or correct the address (--server, or endpoints in models.yaml)"

PROBE_LIMIT = 300.0
"""Seconds for the checks at the start; a server may load the model on the first request."""


class Options(Strict):
    """``engine_options`` of a server's entry.

    ``parallel``: requests at one endpoint at a time, by default the window; ``patience``: seconds that a restart waits for a server to
    come back; ``body``: fields added to every request, for what a server wants beside the protocol (Ollama: ``reasoning_effort: none``).
    """

    parallel: int | None = Field(default=None, ge=1)
    patience: float = Field(default=120.0, ge=0)
    body: dict[str, Any] = Field(default_factory=dict)


class _Loop:
    """An event loop in a daemon thread, so that it runs beside whatever loop the caller has."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="dualtrace-server", daemon=True)
        self._thread.start()

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run ``work`` there and wait for its result; interrupted, it is cancelled."""
        future = asyncio.run_coroutine_threadsafe(work, self.loop)
        try:
            return future.result()
        finally:
            future.cancel()  # does nothing to one that is done

    def stop(self) -> None:
        """End the thread."""
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(timeout=5)
        if not self._thread.is_alive():
            self.loop.close()


@dataclass
class _Open:
    """A request under way. ``tries``: how often it was sent in vain."""

    ticket: int
    request: Request
    priority: int
    tries: int = 0
    task: asyncio.Task[None] | None = None


@dataclass
class _Place:
    """An endpoint in use. ``busy``: requests there; ``misses``: checks in a row that found it unreachable."""

    dialect: Dialect
    up: bool = True
    busy: int = 0
    misses: int = 0


class ServerEngine(Engine):
    """A model served elsewhere. Raises ConfigError for a wrong entry or an unknown model, EngineError for a server that cannot be used.

    Everything from ``_waiting`` on belongs to the loop's thread; ``_mine`` is the caller's own list of open tickets.
    """

    name = "server"

    def __init__(self, model: str, spec: ModelSpec, say: Callable[[str], None] = silent) -> None:
        self.model = model
        self.say = say
        self._spec = spec
        try:
            self._options = Options.model_validate(spec.engine_options)
        except ValidationError as problem:
            first = problem.errors()[0]
            raise ConfigError(f"model {model!r}: engine_options.{'.'.join(map(str, first['loc']))}: {first['msg']}") from problem
        self._parallel = self._options.parallel or spec.window
        self._key = config.api_key(spec.api_key_env)
        self._loop: _Loop | None = None
        self._mine: set[int] = set()
        self._told: queue.SimpleQueue[Reply | str | Exception] = queue.SimpleQueue()
        self._waiting: list[tuple[int, int]] = []
        self._open: dict[int, _Open] = {}
        self._places: list[_Place] = []
        self._checks: set[asyncio.Task[None]] = set()
        self._start(patience=0.0)
        self.remote_hosts = tuple(sorted({p.dialect.endpoint.host for p in self._places if p.dialect.endpoint.remote}))

    @property
    def pending(self) -> int:
        """Requests that are open."""
        return len(self._mine)

    def _start(self, patience: float) -> None:
        self._told = queue.SimpleQueue()
        self._loop = _Loop()
        with contextlib.ExitStack() as unless_found:
            unless_found.callback(self.close)
            self._loop.call(self._find(patience))
            unless_found.pop_all()
        contexts = [p.dialect.context for p in self._places if p.dialect.context]
        self.limit = min([self._spec.context, *contexts])
        for place in self._places:
            if not place.up:
                self.say(_left_out(place.dialect.endpoint.address))

    # ------------------------------------------------------------------------------------------------ contract

    def submit(self, ticket: int, request: Request, priority: int) -> None:
        """See Engine. Counted by the server where it counts, else estimated."""
        loop = self._running()
        self.check_length(request, self.count_request(request))
        self._mine.add(ticket)
        loop.loop.call_soon_threadsafe(self._queue, _Open(ticket, request, priority))

    def poll(self, timeout: float) -> list[Reply]:
        """See Engine."""
        self._running()
        replies: list[Reply] = []
        while True:
            try:
                told = self._told.get(timeout=0 if replies else timeout)
            except queue.Empty:
                return replies
            if isinstance(told, Reply):
                self._mine.discard(told.ticket)
                replies.append(told)
            elif isinstance(told, str):
                self.say(told)
            elif replies:
                self._told.put(told)
                return replies
            else:
                raise told

    def cancel(self, ticket: int) -> None:
        """See Engine. The connection is closed, so that the server can stop, too."""
        self._mine.discard(ticket)
        if self._loop is not None:
            self._loop.loop.call_soon_threadsafe(self._forget, ticket)

    def restart(self) -> None:
        """See Engine. Waits up to ``patience`` seconds for a server to come back."""
        self.close()
        self._start(self._options.patience)

    def close(self) -> None:
        """See Engine. Nothing stays at the servers."""
        loop, self._loop = self._loop, None
        self._mine.clear()
        if loop is not None:
            try:
                loop.call(self._end())
            finally:
                loop.stop()

    def count(self, text: str) -> int:
        """See Engine. The server's count where it gives one, else an estimate that is meant not to be too low."""
        return self._counted(lambda dialect: dialect.count(text), estimate(text))

    def count_request(self, request: Request) -> int:
        """See Engine. As ``count``."""
        texts = estimate(request.system) + estimate(request.user) + TEMPLATE
        return self._counted(lambda dialect: dialect.count_request(request), texts)

    def _counted(self, ask: Callable[[Dialect], Coroutine[Any, Any, int]], otherwise: int) -> int:
        place = next((p for p in self._places if p.up and p.dialect.counting), None)
        if place is None:
            return otherwise
        try:
            return self._running().call(asyncio.wait_for(ask(place.dialect), CARD_LIMIT))
        except (PassingError, EngineError, TimeoutError):
            return otherwise

    def _running(self) -> _Loop:
        if self._loop is None:
            raise EngineDiedError("the connection to the server was closed")
        return self._loop

    # ---------------------------------------------------------------------------------------------- in the loop

    async def _find(self, patience: float) -> None:
        """Every endpoint, probed; at least one is up. Raises ConfigError, and EngineError when none is up in time."""
        endpoints = [Endpoint(address, self._key) for address in self._spec.endpoints]
        self._places = [_Place(Dialect(e, self._spec, "", body=self._options.body), up=False) for e in endpoints]
        until = time.monotonic() + patience
        wait, told = 0.5, False
        while True:
            problems = await asyncio.gather(*(self._try(place) for place in self._places))
            if any(place.up for place in self._places):
                break
            problem = min(filter(None, problems), key=lambda p: p.unreachable)
            if not problem.unreachable and not told:
                told = True
                self.say(f"{problem}; waiting for it")
            if time.monotonic() + wait > until + (0 if problem.unreachable else PROBE_LIMIT):
                raise EngineError(f"{problem}; {START}")
            await asyncio.sleep(wait)
            wait = min(2 * wait, 5.0)
        self._one_model()
        for place in self._places:
            if not place.up:
                place.misses = CHECKS
                self._revive(place)

    async def _try(self, place: _Place) -> PassingError | None:
        """Probe an endpoint; returns why it is not up. Raises what is wrong with it for good."""
        endpoint = place.dialect.endpoint
        try:
            async with asyncio.timeout(PROBE_LIMIT):
                place.dialect = await probe(endpoint, self._spec, self._options.body)
        except PassingError as problem:
            return problem
        except TimeoutError as problem:
            raise EngineError(f"{endpoint.address} did not answer the checks at the start within {PROBE_LIMIT:g} s") from problem
        place.up = True
        place.misses = 0
        return None

    def _queue(self, opened: _Open) -> None:
        self._open[opened.ticket] = opened
        self._again(opened)

    def _again(self, opened: _Open) -> None:
        """Put a request into the line, if nobody has forgotten it meanwhile."""
        if opened.ticket in self._open:
            heapq.heappush(self._waiting, (opened.priority, opened.ticket))
            self._serve()

    def _serve(self) -> None:
        """Send what waits, lowest priority number first, as far as there is room.

        A flow's requests go to one endpoint where they can, whose cache knows the session by then.
        """
        while self._waiting:
            up = [place for place in self._places if place.up]
            free = [place for place in up if place.busy < self._parallel]
            if not free:
                return
            priority, ticket = heapq.heappop(self._waiting)
            if (opened := self._open.get(ticket)) is None:
                continue
            home = up[priority % len(up)]
            place = home if home in free else min(free, key=lambda p: p.busy)
            place.busy += 1
            opened.task = asyncio.ensure_future(self._send(opened, place))
            opened.task.add_done_callback(partial(self._done, place))

    def _done(self, place: _Place, _task: asyncio.Task[None]) -> None:
        place.busy -= 1
        self._serve()

    async def _send(self, opened: _Open, place: _Place) -> None:
        try:
            outcome = await place.dialect.complete(opened.request, opened.priority)
        except PassingError as problem:
            opened.tries += 1
            if problem.unreachable:
                self._lost(place)
            if opened.tries < TRIES:
                wait = problem.wait or (0.0 if problem.unreachable else 0.1 * 2**opened.tries)
                asyncio.get_running_loop().call_later(min(wait, LONGEST_WAIT), self._again, opened)
            else:
                self._finish(opened, EngineError(f"{problem}, {TRIES} times"))
        except DualtraceError as problem:
            self._finish(opened, problem)
        except Exception as problem:  # noqa: BLE001 - a bug in here must end the run with its traceback, not leave it waiting
            self._told.put(problem)
        else:
            self._finish(opened, outcome)

    def _finish(self, opened: _Open, outcome: Any) -> None:
        if self._open.pop(opened.ticket, None) is not None:
            self._told.put(Reply(opened.ticket, outcome))

    def _forget(self, ticket: int) -> None:
        opened = self._open.pop(ticket, None)
        if opened is not None and opened.task is not None:
            opened.task.cancel()

    def _lost(self, place: _Place) -> None:
        """An endpoint gave no answer: send nothing there until it is checked."""
        if place.up:
            place.up = False
            self._revive(place)

    def _revive(self, place: _Place) -> None:
        task = asyncio.ensure_future(self._check(place))
        self._checks.add(task)
        task.add_done_callback(self._checks.discard)

    async def _check(self, place: _Place) -> None:
        """Take an endpoint in again when it answers."""
        address = place.dialect.endpoint.address
        wait = 0.0
        while not place.up:
            await asyncio.sleep(wait)
            wait = min(2 * wait or 0.25, 10.0)
            was_out = place.misses >= CHECKS
            try:
                problem = await self._look(place)
            except DualtraceError as lasting:
                place.up, place.misses = False, CHECKS
                self._told.put(f"{address} is left out: {lasting}")
                break
            if problem is None:
                place.up, place.misses = True, 0
                if was_out:
                    self._told.put(f"{address} is back")
            elif problem.unreachable:
                place.misses += 1
                if place.misses == CHECKS:
                    self._told.put(_left_out(address))
                    self._all_gone()
        self._all_gone()
        self._serve()

    async def _look(self, place: _Place) -> PassingError | None:
        """Why an endpoint is not up; None when it is.

        One that answers at once after a failure was not away. Else another server may stand there by now, and is probed.
        """
        if place.misses:
            problem = await self._try(place)
            self._one_model()
            return problem
        try:
            async with asyncio.timeout(CARD_LIMIT):
                await offered(place.dialect.endpoint, place.dialect.served)
        except PassingError as problem:
            return problem
        except TimeoutError:
            return PassingError("no answer", unreachable=True)
        return None

    def _all_gone(self) -> None:
        if not any(place.up or place.misses < CHECKS for place in self._places):
            self._told.put(EngineDiedError("no server can be reached"))

    def _one_model(self) -> None:
        if len(names := {place.dialect.served for place in self._places if place.up}) > 1:
            raise ConfigError(
                f"the endpoints serve different models ({', '.join(sorted(names))}); all endpoints of an entry must serve one"
            )

    async def _end(self) -> None:
        """Drop every request and connection."""
        self._open.clear()
        self._waiting.clear()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        if others:
            await asyncio.wait(others, timeout=2)
        for place in self._places:
            await place.dialect.endpoint.close()


def _left_out(address: str) -> str:
    return f"{address} cannot be reached and is left out until it can"


def identity(spec: ModelSpec) -> dict[str, str]:
    """Name and digest of the served model as a server of ``spec`` tells them. Raises EngineError when none can be asked."""
    key = config.api_key(spec.api_key_env)

    async def ask() -> dict[str, str]:
        problem: Exception = EngineError("no endpoint")
        for address in spec.endpoints:
            endpoint = Endpoint(address, key)
            try:
                async with asyncio.timeout(CARD_LIMIT):
                    return reported(await offered(endpoint, spec.served_as))
            except (PassingError, TimeoutError) as passing:
                problem = passing
            finally:
                await endpoint.close()
        raise EngineError(f"{str(problem) or f'{spec.endpoints[-1]} does not answer'}; {START}") from problem

    loop = _Loop()
    try:
        return loop.call(ask())
    finally:
        loop.stop()
