"""Engines answer requests; the driver runs flows on them. Heavy libraries load when an engine is made, not before."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from dualtrace_local.config import ModelSpec
from dualtrace_local.errors import ConfigError

from .driver import (
    Engine,
    EngineDiedError,
    Job,
    OutputError,
    PromptTooLongError,
    Reply,
    TimeLimitError,
    ask,
)

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
    """Start the engine for the model ``name``. ``folder`` holds its files (None for engines without weights).

    Raises ConfigError when the entry cannot generate text or its folder is missing, EngineError when the engine cannot start.
    """
    if spec.engine == "scripted":
        from .rules import reply
        from .scripted import ScriptedEngine

        return ScriptedEngine(reply, model=name, limit=spec.context)
    if spec.engine != "vllm":
        msg = f"model {name!r} is for {spec.engine} and cannot generate text; name another model for this role"
        raise ConfigError(msg)
    if folder is None:
        msg = f"model {name!r} has no folder; fetch it with `dualtrace models pull {name}`"
        raise ConfigError(msg)
    from .vllm import VllmEngine

    return VllmEngine(name, spec, folder, seed)


def make_counter(folder: Path | None) -> Callable[[str], int]:
    """Tokens of a plain text as a model's tokenizer counts them, without starting its engine; words where there is no folder."""
    if folder is None:
        return lambda text: len(text.split())
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    return lambda text: len(tokenizer.encode(text, add_special_tokens=False).ids)
