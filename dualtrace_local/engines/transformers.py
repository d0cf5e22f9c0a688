"""The transformers library in this process: for machines on which vLLM cannot be installed.

Every request is a row. Its prompt is read in chunks, on top of what an earlier prompt had in common with it; then it is written one
token a step together with the other rows, each under its own constraint (llguidance), with its own temperature, seed and room. A step
is short, so that time limits and Ctrl-C are noticed.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field, ValidationError

from dualtrace_local import config
from dualtrace_local.config import ModelSpec, Strict
from dualtrace_local.errors import ConfigError, EngineError
from dualtrace_local.records import Completion, Finish, Request

from .chat import render
from .driver import REPETITION, Engine, EngineDiedError, Reply, reason_of, silent
from .quiet import quiet

CHUNK = 256
"""Tokens of a prompt that are read in one step: a second or so of a small model on a CPU."""

PLAIN = frozenset({"full_attention", "sliding_attention"})
"""Kinds of layer whose keys and values can be cut, padded and put side by side."""


class Options(Strict):
    """``engine_options`` of an entry. ``batch``: rows written together, by default the window; ``device`` as torch names it."""

    batch: int | None = Field(default=None, ge=1)
    device: str = ""


@dataclass
class _Row:
    """A request under way.

    ``cache``: keys and values while the prompt is read; ``length``: tokens of them, then and later; ``known``: those taken from an
    earlier prompt; ``made``: tokens written.
    """

    ticket: int
    request: Request
    priority: int
    prompt: list[int]
    matcher: Any
    random: Any
    cache: Any = None
    length: int = 0
    known: int = 0
    made: list[int] = field(default_factory=list)

    def again(self) -> None:
        """As if nothing had been done."""
        self.matcher.reset()
        self.random.manual_seed(self.request.seed)
        self.cache, self.length, self.known, self.made = None, 0, 0, []


class TransformersEngine(Engine):
    """One model in bf16. ``folder`` holds safetensors and tokenizer.

    Raises ConfigError for a wrong entry, EngineError if it cannot start.
    """

    name = "transformers"

    def __init__(self, model: str, spec: ModelSpec, folder: Path, seed: int = 0, say: Callable[[str], None] = silent) -> None:
        del seed  # every request brings its own
        self.model = model
        self.say = say
        self.limit = spec.context
        self._spec = spec
        self._folder = folder
        try:
            options = Options.model_validate(spec.engine_options)
        except ValidationError as problem:
            first = problem.errors()[0]
            raise ConfigError(f"model {model!r}: engine_options.{'.'.join(map(str, first['loc']))}: {first['msg']}") from problem
        self._batch = options.batch or spec.window
        self._device = options.device
        self._model: Any = None
        self._grammars: dict[type[BaseModel], str] = {}
        self._waiting: list[_Row] = []
        self._rows: list[_Row] = []
        self._cache: Any = None
        self._mask: Any = None
        self._kept: list[tuple[list[int], Any]] = []
        self._start()

    def _start(self) -> None:
        with quiet():
            try:
                import llguidance.hf
                import torch
                import transformers
            except ImportError as problem:
                raise EngineError(f"transformers cannot be used ({problem}); install the project with its transformers extra") from problem
            config.prepare_environment(cpu=not torch.cuda.is_available())
            transformers.utils.logging.disable_progress_bar()
            device = self._device or ("cuda" if torch.cuda.is_available() else "cpu")
            safe = {"local_files_only": True, "trust_remote_code": False}
            try:
                self._tokenizer = transformers.AutoTokenizer.from_pretrained(self._folder, **safe)
                model = transformers.AutoModelForCausalLM.from_pretrained(self._folder, dtype=torch.bfloat16, use_safetensors=True, **safe)
                self._model = model.eval().to(device)
                self._constraints = llguidance.hf.from_tokenizer(self._tokenizer)
            except (OSError, ValueError, RuntimeError, KeyError, AttributeError, MemoryError) as problem:
                raise EngineError(f"transformers cannot start {self.model}: {' '.join(str(problem).split())[:300]}") from problem
        text = self._model.config.get_text_config(decoder=True)
        if odd := set(getattr(text, "layer_types", None) or ()) - PLAIN:
            self.close()
            raise EngineError(
                f"transformers cannot run {self.model} here, since it has layers of {', '.join(sorted(odd))}; use vllm or a server"
            )
        longest = getattr(text, "max_position_embeddings", None) or self._spec.context
        if self._spec.context > longest:
            self.close()
            raise ConfigError(f"model {self.model!r}: context {self._spec.context} is more than the {longest} tokens it was made for")

    # ------------------------------------------------------------------------------------------------ contract

    @property
    def pending(self) -> int:
        """Requests that are open."""
        return len(self._waiting) + len(self._rows)

    def submit(self, ticket: int, request: Request, priority: int) -> None:
        """See Engine. A type that cannot be enforced raises EngineError, for this flow alone."""
        import llguidance
        import torch

        self._running()
        prompt = render(self._tokenizer, request, self._spec.chat_template_kwargs)
        self.check_length(request, len(prompt))
        matcher = llguidance.LLMatcher(self._constraints, self._grammar(request.output))
        if matcher.is_error():
            raise EngineError(f"llguidance refuses a request of kind {request.kind!r}: {' '.join(matcher.get_error().split())[:300]}")
        random = torch.Generator().manual_seed(request.seed)
        self._waiting.append(_Row(ticket, request, priority, prompt, matcher, random))

    def poll(self, timeout: float) -> list[Reply]:
        """See Engine. Works until something is finished or the time is over."""
        self._running()
        if not self.pending:
            time.sleep(timeout)
            return []
        until = time.monotonic() + timeout
        replies: list[Reply] = []
        try:
            while not replies and self.pending:
                replies = self._step()
                if time.monotonic() >= until:
                    break
        except BaseException as problem:
            self._drop_all()  # Ctrl-C, too, may leave half a step behind
            if not isinstance(problem, Exception):
                raise
            self.close()
            raise EngineDiedError(f"transformers stopped with {reason_of(problem)}") from problem
        return replies

    def cancel(self, ticket: int) -> None:
        """See Engine."""
        self._waiting = [row for row in self._waiting if row.ticket != ticket]
        self._keep([row for row in self._rows if row.ticket != ticket])

    def restart(self) -> None:
        """See Engine."""
        self.close()
        self._start()

    def close(self) -> None:
        """See Engine."""
        self._drop_all()
        if self._model is not None:
            self._model = None
            self._free()

    def count(self, text: str) -> int:
        """See Engine."""
        return len(self._tokenizer.encode(text, add_special_tokens=False))

    def count_request(self, request: Request) -> int:
        """See Engine."""
        return len(render(self._tokenizer, request, self._spec.chat_template_kwargs))

    def _running(self) -> None:
        if self._model is None:
            raise EngineDiedError("transformers is not running")

    def _grammar(self, output: type[BaseModel]) -> str:
        from llguidance import LLMatcher

        if output not in self._grammars:
            self._grammars[output] = LLMatcher.grammar_from_json_schema(
                output.model_json_schema(), overrides={"whitespace_flexible": False}
            )
        return self._grammars[output]

    def _drop_all(self) -> None:
        self._waiting, self._rows, self._kept = [], [], []
        self._cache = self._mask = None

    @staticmethod
    def _free() -> None:
        import torch

        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()

    # --------------------------------------------------------------------------------------------------- steps

    def _step(self) -> list[Reply]:
        """Read a chunk of the most urgent prompt if there is room for another row, else write one token in every row."""
        import torch

        row = min(self._waiting, key=lambda r: (r.priority, r.ticket)) if len(self._rows) < self._batch and self._waiting else None
        reading = next((r for r in self._waiting if r.cache is not None), row)
        try:
            with torch.inference_mode():
                return self._read(reading) if row and reading else self._write()
        except (torch.OutOfMemoryError, MemoryError, RuntimeError) as problem:
            if not _out_of_memory(problem):
                raise
        return self._shrink(reading or self._rows[0])

    def _read(self, row: _Row) -> list[Reply]:
        """The next chunk of a prompt. The last one gives the first token, and the row joins the others."""
        import torch

        if row.cache is None:
            self._begin(row)
        chunk = row.prompt[row.length : row.length + CHUNK]
        places = torch.arange(row.length, row.length + len(chunk), device=self._model.device)[None]
        ids = torch.tensor([chunk], device=self._model.device)
        made = self._model(input_ids=ids, position_ids=places, past_key_values=row.cache, use_cache=True, logits_to_keep=1)
        row.length += len(chunk)
        if row.length < len(row.prompt):
            return []
        self._remember(row)
        reply = self._choose(row, made.logits[0, -1].float().cpu())
        if reply is None:
            self._join(row)
        self._waiting.remove(row)
        return [reply] if reply else []

    def _begin(self, row: _Row) -> None:
        """Take over the keys and values of the longest beginning that an earlier prompt shares; the last token is always read."""
        from transformers import DynamicCache

        shared, layers = max(((_common(ids, row.prompt), layers) for ids, layers in self._kept), key=lambda k: k[0], default=(0, ()))
        row.known = row.length = min(shared, len(row.prompt) - 1)
        row.cache = DynamicCache([(k[..., : row.known, :], v[..., : row.known, :]) for k, v in layers] if row.known else None)

    def _remember(self, row: _Row) -> None:
        """Keep a prompt's keys and values, the latest ones up to what all rows together may need."""
        self._kept = [k for k in self._kept if _common(k[0], row.prompt) < len(k[0])]
        self._kept.append((row.prompt, _layers(row.cache)))
        while sum(len(ids) for ids, _ in self._kept) > self._batch * self.limit:
            del self._kept[0]

    def _join(self, row: _Row) -> None:
        """Put a row beside the others; what is shorter is filled up on the left."""
        import torch
        from transformers import DynamicCache

        mask = torch.ones((1, row.length), dtype=torch.long, device=self._model.device)
        layers = _layers(row.cache)
        if self._rows:
            width = max(row.length, self._mask.shape[1])
            both = (
                (_padded(a, width), _padded(b, width))
                for pair in zip(_layers(self._cache), layers, strict=True)
                for a, b in zip(*pair, strict=True)
            )
            joined = [torch.cat(pair) for pair in both]
            layers = list(zip(joined[::2], joined[1::2], strict=True))
            mask = torch.cat([torch.nn.functional.pad(m, (width - m.shape[1], 0)) for m in (self._mask, mask)])
        self._rows.append(row)
        self._cache, self._mask, row.cache = DynamicCache(layers), mask, None

    def _write(self) -> list[Reply]:
        """One token more in every row."""
        import torch

        device = self._model.device
        ids = torch.tensor([[row.made[-1]] for row in self._rows], device=device)
        places = torch.tensor([[row.length] for row in self._rows], device=device)
        self._mask = torch.nn.functional.pad(self._mask, (0, 1), value=1)
        made = self._model(input_ids=ids, attention_mask=self._mask, position_ids=places, past_key_values=self._cache, use_cache=True)
        logits = made.logits[:, -1].float().cpu()
        for row in self._rows:
            row.length += 1
        replies = {row.ticket: self._choose(row, logits[n]) for n, row in enumerate(self._rows)}
        self._keep([row for row in self._rows if replies[row.ticket] is None])
        return [reply for reply in replies.values() if reply is not None]

    def _keep(self, rows: list[_Row]) -> None:
        """Go on with these rows alone, without the filling that only others needed."""
        if len(rows) == len(self._rows):
            return
        if rows:
            from transformers import DynamicCache

            places = [self._rows.index(row) for row in rows]
            mask = self._mask[places]
            first = int(mask.any(dim=0).int().argmax())
            self._cache = DynamicCache([(k[places][..., first:, :], v[places][..., first:, :]) for k, v in _layers(self._cache)])
            self._mask = mask[:, first:]
        else:
            self._cache = self._mask = None
        self._rows = rows

    def _choose(self, row: _Row, logits: Any) -> Reply | None:
        """The next token that the constraint allows; a reply when it was the last."""
        import torch

        allowed = torch.frombuffer(bytearray(row.matcher.compute_logit_bias()), dtype=torch.uint8)[: len(logits)]
        logits[: len(allowed)].masked_fill_(allowed == 0, float("-inf"))
        logits[len(allowed) :] = float("-inf")
        if row.request.temperature > 0:
            chances = torch.softmax(logits / row.request.temperature, dim=-1)
            token = int(torch.multinomial(chances, 1, generator=row.random))
        else:
            token = int(logits.argmax())
        row.made.append(token)
        if not row.matcher.consume_token(token):
            raise RuntimeError(row.matcher.get_error())
        if row.matcher.is_stopped():
            finish = Finish.STOP
        elif len(row.made) >= row.request.max_tokens:
            finish = Finish.LENGTH
        elif loops(row.made):
            finish = Finish.REPETITION
        else:
            return None
        text = self._tokenizer.decode(row.made, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        return Reply(row.ticket, Completion(text, finish, len(row.prompt), row.known, len(row.made)))

    def _shrink(self, row: _Row) -> list[Reply]:
        """Out of memory: all rows begin anew, half as many at a time. One that is too large alone fails."""
        rows = [*self._waiting, *self._rows]
        alone = self._batch == 1
        self._drop_all()
        self._free()
        for each in rows:
            each.again()
        self._waiting = [each for each in rows if not alone or each is not row]
        if alone:
            return [
                Reply(
                    row.ticket, EngineError(f"not enough memory for a prompt of {len(row.prompt)} tokens; use a smaller model or excerpt")
                )
            ]
        self._batch = max(1, self._batch // 2)
        self.say(f"not enough memory; from here on {self._batch} requests at a time")
        return []


def _layers(cache: Any) -> list[tuple[Any, Any]]:
    """Keys and values by layer, each [rows, heads, tokens, size]."""
    return [(layer.keys, layer.values) for layer in cache.layers]


def _padded(values: Any, width: int) -> Any:
    """``values`` with zeros on the left up to ``width`` tokens."""
    import torch

    return torch.nn.functional.pad(values, (0, 0, width - values.shape[-2], 0))


def _common(one: Sequence[int], other: Sequence[int]) -> int:
    """Tokens that both begin with."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def _out_of_memory(problem: BaseException) -> bool:
    said = str(problem).lower()
    return isinstance(problem, MemoryError) or "out of memory" in said or "not enough memory" in said or "can't allocate memory" in said


def loops(tokens: Sequence[int]) -> bool:
    """Whether a completion ends in the same few tokens again and again (``REPETITION``)."""
    for size in range(REPETITION["min_pattern_size"], REPETITION["max_pattern_size"] + 1):
        span = size * REPETITION["min_count"]
        if len(tokens) < span:
            return False
        if all(tokens[-n] == tokens[-n - size] for n in range(1, span - size + 1)):
            return True
    return False
