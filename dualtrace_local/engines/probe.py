"""What a server can do, found out by asking it before any chat is sent, and how requests and replies look for it.

Servers accept fields that they do not honour, and some drop the beginning of what is too long for them without a word. So nothing is
believed: a constraint that no model would meet by itself must be met, and a long prompt must be counted whole.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from dualtrace_local.config import ModelSpec
from dualtrace_local.errors import ConfigError, EngineError
from dualtrace_local.records import Completion, Finish, Request, digest_of

from .chat import KNOWN_CONTROLS, estimate, neutralise
from .driver import REPETITION
from .endpoint import CONTEXT_REMEDY, Endpoint, PassingError, RefusedError

EXTRAS = (("structured_outputs", "repetition_detection", "priority"), ("structured_outputs", "repetition_detection"), ())
"""Fields beside the common ones; the first set that is not refused is sent. All are vLLM's, the last goes with its priority scheduling."""

TEMPLATE = 100
"""Tokens allowed for what a chat template adds, where they cannot be counted."""

INSTRUCTIONS = 1300
"""Tokens of a prompt's instructions and its longest first completion, beside the excerpt or the delivered items."""


class _Odd(BaseModel):
    """Something that no model writes unless it must, made of all that the patterns of the stages are made of.

    A server may drop a pattern that it does not understand without a word.
    """

    model_config = ConfigDict(extra="forbid")
    greeting: Literal["vexolit-17", "quandrel-42"]
    code: Annotated[str, StringConstraints(pattern=r'^J([^"\\.!?\na-z ]|\.[0-9]|(Qx|Zy)\. ){3,6}\.$')]
    sign: Annotated[str, StringConstraints(pattern=r'^[^"\\ \n,.;:!?()a-zA-Z-][^"\\\na-zA-Z]{2,5}\.$')]
    marks: list[Annotated[str, StringConstraints(pattern=r"^z[aeiou]{2}$")]] = Field(min_length=2, max_length=3)


class _Demanding(BaseModel):
    """One of each thing that the types of the stages use, at its largest: what a server cannot take it must refuse here."""

    class Group(BaseModel):
        model_config = ConfigDict(extra="forbid")
        kind: Literal["one", "two"]
        score: Literal[0, 1, 2]
        lines: list[Annotated[str, StringConstraints(pattern=r'^The user([^"\\.!?\n]|\.[0-9a-z]|(Dr|Mrs)\. ){8,240}\.$')]] = Field(
            min_length=1, max_length=6
        )

    model_config = ConfigDict(extra="forbid")
    picture: Annotated[str, StringConstraints(pattern=r'^Picture: [^"\\\n]{40,700}\.$')]
    note: Annotated[str, StringConstraints(pattern=r'^[^"\\ \n,.;:!?()-][^"\\\n]{0,240}\.$')]
    slug: Annotated[str, StringConstraints(pattern=r"^[a-z]{3,14}([ -][a-z0-9]{2,14}){1,2}$")]
    groups: list[Group] = Field(max_length=4)


class _Usage(BaseModel):
    class Details(BaseModel):
        cached_tokens: int | None = None

    prompt_tokens: int = 0
    completion_tokens: int = 0
    prompt_tokens_details: Details | None = None


class _Answer(BaseModel):
    """What is read of a chat completion. Reasoning, in whatever field, is not."""

    class Choice(BaseModel):
        class Message(BaseModel):
            content: str | None = None

        message: Message
        finish_reason: str | None = None

    choices: list[Choice] = Field(min_length=1)
    usage: _Usage = _Usage()


@dataclass(frozen=True)
class Dialect:
    """How to talk to one endpoint.

    ``served``: the model's name there; ``extras``: optional fields that it takes; ``counting``: whether it counts tokens of a ``chat``,
    of a ``text``, or (empty) not at all; ``context``: its context in tokens, 0 when it does not tell; ``body``: what a user adds to
    every request.
    """

    endpoint: Endpoint
    spec: ModelSpec
    served: str
    extras: tuple[str, ...] = ()
    counting: str = ""
    context: int = 0
    body: dict[str, Any] = field(default_factory=dict)

    def messages(self, request: Request) -> list[dict[str, str]]:
        """System and user message, with control tokens broken up: the server's template alone sets those."""
        said = (("system", request.system), ("user", request.user))
        return [{"role": role, "content": neutralise(text, KNOWN_CONTROLS)} for role, text in said if text]

    async def complete(self, request: Request, priority: int = 0) -> Completion:
        """Send one request. Raises PassingError, and EngineError for a refusal or an answer of another form."""
        schema = request.output.model_json_schema()
        body: dict[str, Any] = {
            "model": self.served,
            "messages": self.messages(request),
            "max_tokens": request.max_tokens,
            "temperature": request.temperature,
            "seed": request.seed,
            "response_format": {"type": "json_schema", "json_schema": {"name": request.output.__name__, "schema": schema, "strict": True}},
        }
        extras = {"structured_outputs": {"json": schema}, "repetition_detection": REPETITION, "priority": priority}
        body |= {name: extras[name] for name in self.extras} | self._template | self.body
        return self._completion(await self.endpoint.post("/chat/completions", body))

    @property
    def _template(self) -> dict[str, Any]:
        return {"chat_template_kwargs": self.spec.chat_template_kwargs} if self.spec.chat_template_kwargs else {}

    def _completion(self, answer: Any) -> Completion:
        try:
            read = _Answer.model_validate(answer)
        except ValidationError as problem:
            place = ".".join(map(str, problem.errors()[0]["loc"]))
            raise EngineError(f"{self.endpoint.address} answers in another form than the protocol's ({place or 'top level'})") from problem
        choice, usage = read.choices[0], read.usage
        text = choice.message.content or ""
        finish = {"stop": Finish.STOP, "length": Finish.LENGTH, "repetition": Finish.REPETITION}.get(
            choice.finish_reason or "", Finish.ERROR
        )
        if finish is Finish.STOP and not text.strip():
            finish = Finish.ERROR
        cached = usage.prompt_tokens_details.cached_tokens if usage.prompt_tokens_details else None
        return Completion(text, finish, usage.prompt_tokens, cached or 0, usage.completion_tokens)

    async def count(self, text: str) -> int:
        """Tokens of a plain text, estimated where the server does not count."""
        if not self.counting:
            return estimate(text)
        both = {"prompt": text, "content": text, "add_special_tokens": False, "add_special": False}
        answer = await self.endpoint.post("/tokenize", {"model": self.served, **both}, beside=True)
        return len(answer["tokens"])

    async def count_request(self, request: Request) -> int:
        """Tokens of the whole prompt."""
        if self.counting == "chat":
            body = {"model": self.served, "messages": self.messages(request), **self._template}
            return len((await self.endpoint.post("/tokenize", body, beside=True))["tokens"])
        return sum([await self.count(message["content"]) for message in self.messages(request)]) + TEMPLATE


# --------------------------------------------------------------------------------------------------------- asking


async def probe(endpoint: Endpoint, spec: ModelSpec, body: dict[str, Any]) -> Dialect:
    """Find out how to talk to ``endpoint``. Some seconds, and no chat is sent.

    Raises PassingError when it is not up (yet), ConfigError when it does not offer the model, EngineError when it cannot be used.
    """
    card = await offered(endpoint, spec.served_as)
    base = Dialect(endpoint, spec, card["id"], context=await _context(endpoint, card), body=body)
    extras = await _enforced(base)
    made = Dialect(endpoint, spec, base.served, extras, await _counting(base), base.context, body)
    await _takes_demanding_types(made)
    if not made.context:
        await _reads_long_prompts(made)
    return made


async def offered(endpoint: Endpoint, name: str) -> dict[str, Any]:
    """The server's entry of the model ``name``, or of its only one. Raises ConfigError listing what there is."""
    answer = await endpoint.get("/models")
    cards = answer.get("data") if isinstance(answer, dict) else None
    if not isinstance(cards, list):
        raise EngineError(f"{endpoint.address}/models answers in another form than the protocol's; is this an OpenAI-compatible server?")
    known = {str(card["id"]): card for card in cards if isinstance(card, dict) and card.get("id")}
    if name in known or (not name and len(known) == 1):
        return known[name] if name else next(iter(known.values()))
    listed = ", ".join(sorted(known)[:20]) or "none"
    wanted = f"does not offer {name!r}" if name else "does not offer exactly one model"
    raise ConfigError(f"{endpoint.address} {wanted}; it has: {listed}. Name one with --model or served_as in models.yaml")


async def _context(endpoint: Endpoint, card: dict[str, Any]) -> int:
    """The context that the server states: vLLM and llama.cpp with the model, older llama.cpp elsewhere. Both refuse what is longer."""
    stated = card.get("max_model_len") or _meta(card).get("n_ctx")
    if isinstance(stated, int):
        return stated
    if card.get("owned_by") != "llamacpp":
        return 0
    try:
        return int((await endpoint.get("/props", beside=True))["default_generation_settings"]["n_ctx"])
    except (EngineError, KeyError, TypeError, ValueError):
        return 0


async def _enforced(base: Dialect) -> tuple[str, ...]:
    """The optional fields that are not refused, once a reply under constraint had to be, and was, odd. Raises EngineError."""
    asked = Request("probe", "You greet people.", "Answer with the one word hello.", _Odd, 200)
    for extras in EXTRAS:
        try:
            completion = await Dialect(base.endpoint, base.spec, base.served, extras, body=base.body).complete(asked, priority=1)
        except RefusedError:
            if not extras:
                raise
            continue
        if not completion.prompt_tokens:
            raise EngineError(f"{base.endpoint.address} counts no tokens (usage), so it cannot be seen whether it reads prompts whole")
        try:
            _Odd.model_validate_json(completion.text)
        except ValidationError as problem:
            why = "its reply was empty" if not completion.text.strip() else "its reply was not of the form that was asked for"
            raise EngineError(
                f"{base.endpoint.address} does not enforce constraints ({why}); use a server that takes a JSON schema as response_format "
                "(vLLM, llama.cpp's llama-server, Ollama, LM Studio), and switch a model's thinking off"
            ) from problem
        return extras
    raise AssertionError


async def _takes_demanding_types(made: Dialect) -> None:
    """Raises EngineError when the server refuses a constraint as large as ours."""
    try:
        await made.complete(Request("probe", "", "Say something.", _Demanding, 1))
    except (RefusedError, PassingError) as problem:
        if isinstance(problem, PassingError) and problem.unreachable:
            raise
        raise EngineError(f"the constraints that this project uses are refused: {problem}") from problem


async def _counting(base: Dialect) -> str:
    """Whether the server counts tokens: vLLM those of a chat, llama.cpp's server those of a text."""
    for kind in ("chat", "text"):
        trial = Dialect(base.endpoint, base.spec, base.served, counting=kind, body=base.body)
        asked = Request("probe", "", "One two three.", _Odd, 1)
        try:
            if (await trial.count_request(asked)) > (TEMPLATE if kind == "text" else 0):
                return kind
        except (EngineError, PassingError, KeyError, TypeError):
            continue
    return ""


_FILLING = "it the of and is to in for as on".split()
"""Words that are one token each for every common tokenizer."""


async def _reads_long_prompts(made: Dialect) -> None:
    """Raises EngineError when a prompt as long as ours are at most is not read whole.

    It starts with the time, so that nothing of it is known from an earlier probe and left out of the count.
    """
    budgets = made.spec.budgets
    words = min(made.spec.context - TEMPLATE, max(budgets.excerpt, budgets.context) + INSTRUCTIONS)
    text = f"{time.time_ns()} " + " ".join(_FILLING[n % len(_FILLING)] for n in range(words))
    completion = await made.complete(Request("probe", "", text, _Odd, 1))
    if completion.prompt_tokens < words:
        raise EngineError(
            f"{made.endpoint.address} drops parts of long prompts without a word: of at least {words} tokens it read "
            f"{completion.prompt_tokens}; {CONTEXT_REMEDY}"
        )


def _meta(card: Mapping[str, Any]) -> Mapping[str, Any]:
    meta = card.get("meta")
    return meta if isinstance(meta, dict) else {}


def reported(card: Mapping[str, Any]) -> dict[str, str]:
    """Name and digest of a model as its server tells them: nothing of the address, nothing that changes from start to start."""
    name = str(card["id"])
    meta = _meta(card)
    told = [PurePath(str(card.get("root") or "")).name, *(meta.get(k) for k in ("n_params", "n_vocab", "n_embd", "size"))]
    return {"name": PurePath(name).name if name.startswith("/") else name, "digest": digest_of(told, length=16) if any(told) else ""}
