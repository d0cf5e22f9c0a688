"""vLLM in this process, on a GPU or a CPU: real weights, constrained JSON, prefix cache."""

from __future__ import annotations

import contextlib
import gc
import re
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from dualtrace_local import config
from dualtrace_local.config import ModelSpec
from dualtrace_local.errors import EngineError
from dualtrace_local.records import Completion, Finish, Request

from .chat import render
from .driver import REPETITION, Engine, EngineDiedError, Reply, reason_of, silent
from .quiet import quiet

STRUCTURED = {"backend": "guidance", "disable_any_whitespace": True}
"""The only back end of vLLM 0.32/0.33 that enforces all that our types use, and without white space a model can loop in."""

CPU_BLOCK = 32
"""Tokens of one cache block on a CPU. Only whole blocks are reused, and vLLM's own 128 there loses most of a short prefix."""


CAREFUL = {"gpu_memory_utilization": 0.6, "max_num_seqs": 16}
"""What a second start on a GPU asks for when the first found no room: another program may hold a part of the card."""

_NO_ROOM = re.compile(r"out of memory|free memory|engine core initialization failed", re.IGNORECASE)
"""vLLM's engine runs in a process of its own on a GPU, and of its reasons only the last of these reaches us."""

_FINISH = {"stop": Finish.STOP, "length": Finish.LENGTH, "repetition": Finish.REPETITION}


def _gpu() -> bool:
    """Whether there is a GPU to run on."""
    import torch

    return bool(torch.cuda.is_available())


@contextlib.contextmanager
def llvmlite_hidden() -> Iterator[None]:
    """Keep llvmlite's library object out of ``sys.modules`` while vLLM starts.

    On a CPU vLLM 0.32 looks through the attributes of every loaded module for a kernel, and that object answers any name, also
    ``__dict__``, with a function: the start then fails whenever numba was imported before.
    """
    name = "llvmlite.binding.ffi"
    hidden = sys.modules.pop(name, None)
    try:
        yield
    finally:
        if hidden is not None:
            sys.modules[name] = hidden


class VllmEngine(Engine):
    """One model on vLLM. ``folder`` holds safetensors and tokenizer; starting takes 15-50 s. Raises EngineError if it cannot start."""

    name = "vllm"

    def __init__(self, model: str, spec: ModelSpec, folder: Path, seed: int = 0, say: Callable[[str], None] = silent) -> None:
        self.model = model
        self.say = say
        self.limit = spec.context
        self._spec = spec
        self._folder = folder
        self._seed = seed
        self._constraints: dict[type[BaseModel], Any] = {}
        self._llm: Any = None
        self._open: set[int] = set()
        self._start()

    def _start(self) -> None:
        with quiet():
            gpu = _gpu()
        try:
            self._load(gpu, {})
        except EngineError as problem:
            if not gpu or not _NO_ROOM.search(str(problem)):
                raise
            careful = {k: min(v, self._spec.engine_options.get(k, v)) for k, v in CAREFUL.items()}
            self.say(f"{problem}; tried once more with {', '.join(f'{k} {v}' for k, v in careful.items())}")
            self._load(gpu, careful)

    def _load(self, gpu: bool, careful: dict[str, Any]) -> None:
        with quiet():
            config.prepare_environment(cpu=not gpu)
            try:
                from vllm import LLM
                from vllm.exceptions import VLLMValidationError
            except ImportError as problem:
                extra = "gpu" if gpu else "cpu"
                msg = f"vLLM cannot be imported ({problem}); install the project with its {extra} extra"
                raise EngineError(msg) from problem
            options: dict[str, Any] = {
                "model": str(self._folder),
                "max_model_len": self._spec.context,
                "structured_outputs_config": STRUCTURED,
                "scheduling_policy": "priority",
                "enable_prefix_caching": True,
                "trust_remote_code": False,
                "seed": self._seed,
                "disable_log_stats": True,
                "use_tqdm_on_load": False,
            }
            options |= {"gpu_memory_utilization": 0.85} if gpu else {"enforce_eager": True, "dtype": "bfloat16", "block_size": CPU_BLOCK}
            try:
                with llvmlite_hidden():
                    self._llm = LLM(**{**options, **self._spec.engine_options, **careful})
            except (VLLMValidationError, RuntimeError, ValueError, TypeError, AttributeError, OSError, MemoryError) as problem:
                msg = f"vLLM cannot start {self.model}: {' '.join(str(problem).split())[:300]}"
                raise EngineError(msg) from problem
        self._engine = self._llm.llm_engine
        self._tokenizer = self._llm.get_tokenizer()
        made = self._engine.vllm_config.structured_outputs_config
        if (made.backend, made.disable_any_whitespace) != tuple(STRUCTURED.values()):
            self.close()
            msg = f"vLLM took {made.backend!r} as structured outputs back end instead of 'guidance'; correct engine_options of {self.model}"
            raise EngineError(msg)

    def _constraint(self, output: type[BaseModel]) -> Any:
        """The constraint for a type, made once, so that one type is always one and the same schema text."""
        if output not in self._constraints:
            from outlines.models.vllm_offline import VLLMOfflineTypeAdapter
            from vllm.sampling_params import StructuredOutputsParams

            self._constraints[output] = StructuredOutputsParams(**VLLMOfflineTypeAdapter().format_output_type(output))
        return self._constraints[output]

    def _prompt(self, request: Request) -> list[int]:
        return render(self._tokenizer, request, self._spec.chat_template_kwargs)

    def submit(self, ticket: int, request: Request, priority: int) -> None:
        """See Engine. A request that vLLM refuses (a schema it cannot enforce) raises EngineError, for this flow alone."""
        from vllm import SamplingParams
        from vllm.exceptions import VLLMValidationError
        from vllm.sampling_params import RepetitionDetectionParams

        if self._llm is None:
            msg = "vLLM is not running"
            raise EngineDiedError(msg)
        prompt = self._prompt(request)
        self.check_length(request, len(prompt))
        sampling = SamplingParams(
            temperature=request.temperature,
            max_tokens=request.max_tokens,
            seed=request.seed,
            structured_outputs=self._constraint(request.output),
            repetition_detection=RepetitionDetectionParams(**REPETITION),
        )
        try:
            self._engine.add_request(str(ticket), {"prompt_token_ids": prompt}, sampling, priority=priority)
        except (VLLMValidationError, ValueError) as problem:
            msg = f"vLLM refuses a request of kind {request.kind!r}: {' '.join(str(problem).split())[:300]}"
            raise EngineError(msg) from problem
        self._open.add(ticket)

    def poll(self, timeout: float) -> list[Reply]:
        """See Engine. One step of vLLM: the wait is as long as the step takes, seconds for a long prompt on a CPU."""
        if self._llm is None:
            msg = "vLLM is not running"
            raise EngineDiedError(msg)
        if not self._open:
            time.sleep(timeout)
            return []
        try:
            outputs = self._engine.step()
        except BaseException as problem:
            self.close()  # Ctrl-C, too, leaves half a step behind that nothing can go on from
            if not isinstance(problem, Exception):
                raise
            msg = f"vLLM stopped with {reason_of(problem)}"
            raise EngineDiedError(msg) from problem
        return [self._reply(output) for output in outputs if output.finished]

    def _reply(self, output: Any) -> Reply:
        ticket, made = int(output.request_id), output.outputs[0]
        self._open.discard(ticket)
        finish = _FINISH.get(made.finish_reason, Finish.ERROR)
        return Reply(
            ticket,
            Completion(made.text, finish, len(output.prompt_token_ids), output.num_cached_tokens or 0, len(made.token_ids)),
        )

    def cancel(self, ticket: int) -> None:
        """See Engine."""
        if ticket in self._open and self._llm is not None:
            self._open.discard(ticket)
            self._engine.abort_request([str(ticket)])

    def restart(self) -> None:
        """See Engine."""
        self.close()
        self._start()

    def close(self) -> None:
        """See Engine."""
        self._open.clear()
        if self._llm is None:
            return
        import torch

        self._engine.engine_core.shutdown()
        self._llm = self._engine = None
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()

    def count(self, text: str) -> int:
        """See Engine."""
        return len(self._tokenizer.encode(text, add_special_tokens=False))

    def count_request(self, request: Request) -> int:
        """See Engine."""
        return len(self._prompt(request))
