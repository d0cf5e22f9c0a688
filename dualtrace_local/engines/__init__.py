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
    silent,
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


def make_engine(name: str, spec: ModelSpec, folder: Path | None, seed: int = 0, say: Callable[[str], None] = silent) -> Engine:
    """Start the engine for the model ``name``. ``folder`` holds its files (None for engines without weights).

    ``say`` is told in one line what a person should know. Raises ConfigError when the entry cannot generate text or its folder is
    missing, EngineError when the engine cannot start.
    """
    engine: Engine
    if spec.engine == "scripted":
        from .rules import reply
        from .scripted import ScriptedEngine

        engine = ScriptedEngine(reply, model=name, limit=spec.context)
        engine.say = say
        return engine
    if spec.engine == "server":
        from .server import ServerEngine

        return ServerEngine(name, spec, say)
    if spec.engine == "sentence-transformers":
        msg = f"model {name!r} is for {spec.engine} and cannot generate text; name another model for this role"
        raise ConfigError(msg)
    if folder is None:
        msg = f"model {name!r} has no folder; fetch it with `dualtrace models pull {name}`"
        raise ConfigError(msg)
    if spec.engine == "transformers":
        from .transformers import TransformersEngine

        return TransformersEngine(name, spec, folder, seed, say)
    from .vllm import VllmEngine

    return VllmEngine(name, spec, folder, seed, say)


def make_counter(spec: ModelSpec, folder: Path | None) -> Callable[[str], int]:
    """Tokens of a plain text for a model, without starting its engine.

    As the model's own tokenizer counts them; for a model behind a server an estimate that is meant not to be too low; words for one
    without files.
    """
    if spec.engine == "server":
        from .chat import estimate

        return estimate
    if folder is None:
        return lambda text: len(text.split())
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    return lambda text: len(tokenizer.encode(text, add_special_tokens=False).ids)
