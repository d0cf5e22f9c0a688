"""One OpenAI-compatible address: what goes over the wire, which failures are worth another try, and every other one in one line.

Nothing of a prompt and no key ever stands in an error: a server's own words are shortened and stripped of both.
"""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Mapping
from typing import Any

import httpx

from dualtrace_local.errors import ConfigError, DualtraceError, EngineError

PASSING = frozenset({408, 425, 429, 500, 502, 503, 504})
"""Statuses that another try may cure."""

LONGEST_REASON = 240
"""Characters of a server's own words in an error."""

ECHO = 16
"""A run of so many characters that also stands in the prompt is taken for a quotation of it."""

_TOO_LONG = re.compile(r"context.{0,20}(?:length|size|window)|max_model_len|n_ctx|too long|longer than", re.IGNORECASE)

CONTEXT_REMEDY = (
    "start the server with a larger context (vLLM: --max-model-len, llama.cpp: -c, Ollama: OLLAMA_CONTEXT_LENGTH) "
    "or lower context and budgets of this model in models.yaml"
)


class PassingError(DualtraceError):
    """Worth another try after ``wait`` seconds (as the server asked, else 0). ``unreachable``: there was no answer at all."""

    def __init__(self, reason: str, wait: float = 0.0, *, unreachable: bool = False) -> None:
        super().__init__(reason)
        self.wait = wait
        self.unreachable = unreachable


class RefusedError(EngineError):
    """The server said no, and would say so again. ``status`` is the HTTP status."""

    def __init__(self, reason: str, status: int) -> None:
        super().__init__(reason)
        self.status = status


def is_loopback(host: str) -> bool:
    """Whether ``host`` is this machine, by its name or address alone."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


class Endpoint:
    """A base address such as ``http://127.0.0.1:8000/v1``. Made and used inside one event loop. Raises ConfigError for another form.

    Redirects are not followed. Proxies of the environment count for other machines only.
    """

    def __init__(self, address: str, key: str = "") -> None:
        self.address = address.rstrip("/")
        self._key = key
        try:
            url = httpx.URL(self.address)
        except httpx.InvalidURL as problem:
            raise ConfigError(f"endpoint {address!r} is no address ({problem}); write http://HOST:PORT/v1") from problem
        if url.scheme not in ("http", "https") or not url.host or url.userinfo:
            raise ConfigError(
                f"endpoint {url.copy_with(userinfo=b'')!s}: write http://HOST:PORT/v1, and a key as api_key_env in models.yaml"
            )
        if url.port is not None and not 0 < url.port < 65536:  # noqa: PLR2004 - the ports that there are
            raise ConfigError(f"endpoint {self.address}: there is no port {url.port}")
        if not key.isascii() or not key.isprintable():
            raise ConfigError(f"the key for {self.address} holds characters that no header can carry; copy it again")
        self.host = url.host
        self.remote = not is_loopback(url.host)
        self.root = self.address.removesuffix("/v1")
        self._client = httpx.AsyncClient(
            headers={"Authorization": f"Bearer {key}"} if key else {},
            trust_env=self.remote,
            timeout=httpx.Timeout(None, connect=10.0),
            limits=httpx.Limits(max_connections=None, keepalive_expiry=2.0),
        )

    async def get(self, path: str, *, beside: bool = False) -> Any:
        """The JSON at ``path`` below the base address, or at the server's root. Raises as ``post``."""
        return await self._send("GET", (self.root if beside else self.address) + path, None)

    async def post(self, path: str, body: Mapping[str, Any], *, beside: bool = False) -> Any:
        """The JSON answer to ``body``; ``beside``: at the server's root instead of below the base address.

        Raises PassingError, RefusedError, or EngineError for an answer that is no JSON. Cancelling it closes the connection.
        """
        return await self._send("POST", (self.root if beside else self.address) + path, body)

    async def close(self) -> None:
        """Close all connections."""
        await self._client.aclose()

    async def _send(self, method: str, url: str, body: Mapping[str, Any] | None) -> Any:
        try:
            response = await self._client.request(method, url, json=body)
        except httpx.TransportError as problem:
            raise PassingError(f"{self.address} cannot be reached ({type(problem).__name__})", unreachable=True) from problem
        except httpx.RequestError as problem:
            raise EngineError(f"{self.address} sends an answer that cannot be read ({type(problem).__name__})") from problem
        if response.is_success:
            try:
                return response.json()
            except (ValueError, RecursionError) as problem:
                kind = response.headers.get("content-type", "no type").split(";")[0][:60]
                raise EngineError(f"{self.address} answers {kind} instead of JSON; {_FORM}") from problem
        if response.has_redirect_location:
            raise RefusedError(
                f"{self.address} redirects to another address; name the final one, redirects are not followed", response.status_code
            )
        reason = f"{self.address}: {response.status_code}{self._words(response, body)}"
        if response.status_code in PASSING:
            raise PassingError(reason, _seconds(response.headers.get("retry-after", "")))
        if _TOO_LONG.search(reason):
            reason += f"; the prompt does not fit the server's context: {CONTEXT_REMEDY}"
        elif response.status_code in (401, 403):
            reason += "; the server wants another key: set api_key_env in models.yaml"
        elif response.status_code == httpx.codes.NOT_FOUND:
            reason += f"; {_FORM}"
        raise RefusedError(reason, response.status_code)

    def _words(self, response: httpx.Response, body: Mapping[str, Any] | None) -> str:
        """The server's own reason, one line, without the key and without anything quoted from the prompt."""
        try:
            told = response.json()
        except (ValueError, RecursionError):
            return ""
        for name in ("error", "message", "detail"):
            told = told.get(name, told) if isinstance(told, dict) else told
        said = _bare((told if isinstance(told, str) else json.dumps(told, ensure_ascii=False))[:2000])
        if self._key:
            said = said.replace(self._key, "[key]")
        prompt = _bare(" ".join(str(m.get("content", "")) for m in (body or {}).get("messages", ())))
        return ": " + _without(said, prompt)[:LONGEST_REASON] if said else ""


def _bare(text: str) -> str:
    """One line, with escapes undone, so that a quoted prompt is recognised however the server wrote it."""
    return " ".join(re.sub(r"""\\+(?:[nrt]|(["'\\/]))""", lambda match: match[1] or " ", text).split())


_FORM = "an OpenAI-compatible base address usually ends in /v1"


def _without(said: str, prompt: str) -> str:
    """``said`` with every run of ECHO characters or more that also stands in ``prompt`` as ``[...]``."""
    echoed = [False] * len(said)
    for start in range(len(said) - ECHO + 1):
        if said[start : start + ECHO] in prompt:
            echoed[start : start + ECHO] = [True] * ECHO
    shown = "".join("\0" if hidden else char for char, hidden in zip(said, echoed, strict=True))
    return re.sub("\0+", "[...]", shown)


def _seconds(value: str) -> float:
    """A Retry-After header in seconds; 0 for a date or none."""
    return float(value) if re.fullmatch(r"\d{1,4}", value) else 0.0
