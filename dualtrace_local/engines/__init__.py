"""The flow driver and what it drives: vLLM for models, a scripted engine for logic. Heavy libraries load when one is made."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from dualtrace_local.config import ModelSpec
from dualtrace_local.errors import EngineError

from .driver import Engine, EngineDiedError, Job, OutputError, PromptTooLongError, Reply, TimeLimitError, ask

__all__ = [
    "Engine",
    "EngineDiedError",
    "Job",
    "OutputError",
    "PromptTooLongError",
    "Reply",
    "TimeLimitError",
    "ask",
    "make_counter",
    "make_engine",
]


def make_engine(name: str, spec: ModelSpec, folder: Path | None, seed: int = 0) -> Engine:
    """Start the engine of a model. ``folder`` holds its checked files, None for ``scripted``. Raises EngineError."""
    if spec.engine == "scripted":
        from .rules import reply
        from .scripted import ScriptedEngine

        return ScriptedEngine(reply, model=name, limit=spec.context)
    if spec.engine == "vllm" and folder is not None:
        from .vllm import VllmEngine

        return VllmEngine(name, spec, folder, seed)
    msg = f"model {name} runs on {spec.engine}, which generates no text; choose another for this role"
    raise EngineError(msg)


def make_counter(spec: ModelSpec, folder: Path | None) -> Callable[[str], int]:
    """Tokens of a plain text as the model counts them, from its tokenizer alone; no engine is started."""
    if folder is None:
        from .scripted import words

        return words
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    return lambda text: len(tokenizer.encode(text, add_special_tokens=False).ids)
