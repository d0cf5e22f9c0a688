"""What ``dualtrace doctor`` looks at. Nothing here starts an engine or uses the network."""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import util
from pathlib import Path

import psutil

from dualtrace_local.config import Models, ModelSpec, Role, cache_folder, off_switches, prepare_environment
from dualtrace_local.errors import DualtraceError
from dualtrace_local.weights import located, ready

from .parts import has_gpu, versions

GIB = 1024**3
MIB = 1024**2
GB = 10**9
"""Cards are sold, and named in models.yaml, by this one: a card of 24 GB reports 22 to 24 GiB."""

CPU_MEMORY = 12
"""GB of memory in which the embedded default runs on a CPU (measured with the demo)."""


@dataclass(frozen=True)
class Finding:
    """One line of the examination. ``remedy`` is empty when all is well; ``advice`` is what may be done, not what must."""

    what: str
    value: str
    remedy: str = ""
    advice: str = ""


@dataclass(frozen=True)
class Card:
    """A graphics card; sizes in GB, rounded, 0 where the driver does not say."""

    name: str
    memory: int
    free: int


@dataclass(frozen=True)
class Health:
    """All findings, in order of reading."""

    findings: tuple[Finding, ...]

    @property
    def good(self) -> bool:
        """Whether nothing needs doing."""
        return not any(f.remedy for f in self.findings)


def fitting(models: Mapping[str, ModelSpec], sizes: Sequence[int]) -> tuple[str, ...]:
    """Which models to propose for cards of these sizes in GB, best first; none when no entry fits.

    They are those of the largest ``card`` in models.yaml that the largest card reaches, in the file's order. Several cards count as
    their largest: one model runs on one card.
    """
    largest = max(sizes, default=0)
    best = max((spec.card for spec in models.values() if spec.card <= largest), default=0)
    return tuple(name for name, spec in models.items() if best and spec.card == best)


def cards() -> tuple[Card, ...]:
    """The cards of this machine, as NVIDIA's driver lists them."""
    if not has_gpu():
        return ()
    query = ["nvidia-smi", "--query-gpu=name,memory.total,memory.free", "--format=csv,noheader,nounits"]
    try:
        return read_cards(subprocess.run(query, capture_output=True, text=True, timeout=10, check=False).stdout)
    except (OSError, subprocess.TimeoutExpired):
        return ()


def read_cards(text: str) -> tuple[Card, ...]:
    """nvidia-smi's lines of name, total and free memory in MiB; memory shared with the processor is ``[N/A]`` there."""
    rows = [[part.strip() for part in line.rsplit(",", 2)] for line in text.splitlines()]
    whole = [row for row in rows if len(row) == 3]  # noqa: PLR2004 - the three columns asked for
    return tuple(Card(row[0], *(round(int(part) * MIB / GB) if part.isdecimal() else 0 for part in row[1:])) for row in whole)


def examine(models: Models) -> Health:
    """Machine, libraries, models, off-switches."""
    gpu, found = has_gpu(), cards()
    sizes = tuple(card.memory for card in found if card.memory)
    unknown = gpu and not sizes
    prepare_environment(cpu=not gpu)
    memory = psutil.virtual_memory()
    findings = [
        Finding("python", platform.python_version(), "" if sys.version_info >= (3, 11) else "install Python 3.11 to 3.13"),
        Finding("machine", f"{psutil.cpu_count()} cores, {memory.total / GIB:.0f} GiB memory, {memory.available / GIB:.0f} GiB free"),
        Finding("gpu", _shown(found) if gpu else "none; models run on the CPU"),
        _cache(),
        *_libraries(gpu=gpu),
        *_models(models, sizes, check_card=not unknown),
        *([] if unknown else [_proposal(models, sizes, round(memory.total / GB))]),
        Finding("off-switches", _switches(), "" if all(off_switches().values()) else "unset the variables that hold another value"),
    ]
    return Health(tuple(findings))


def _shown(found: Sequence[Card]) -> str:
    if not found:
        return "an NVIDIA driver answers, but lists no memory"
    return "; ".join(f"{card.name}, {card.memory} GB, {card.free} GB free" if card.memory else f"{card.name}" for card in found)


def _proposal(models: Models, sizes: Sequence[int], memory: int) -> Finding:
    """The model that fits this machine, what it takes, and how to use it."""
    names = fitting(models.models, sizes)
    if not names:
        name = next(name for name, spec in models.models.items() if spec.engine == "vllm" and not spec.card)
        what = f"{name}: no entry is for a card of {max(sizes)} GB;" if sizes else f"{name}:"
        value = f"{what} it needs {CPU_MEMORY} GB of memory on a CPU, here are {memory}"
        return Finding("proposed model", value, advice="" if memory >= CPU_MEMORY else "with less memory it may be stopped by the system")
    name, *others = names
    spec = models.spec(name)
    used = models.roles[Role.ENCODE] in names
    here = _is_here(name, spec)
    room = "its files are here" if here else f"needs {spec.card} GB of disk at most, {_free(cache_folder()) / GB:.0f} GB are free"
    value = (
        f"{name} ({spec.quantisation}, {spec.licence}), for cards from {spec.card} GB{' and in use' if used else ''}; {room}. {spec.note}"
    )
    value += f" Also: {', '.join(others)}." if others else ""
    roles = f"roles: {{encode: {name}, read: {name}, judge: {name}}}"
    own = "~/.config/dualtrace/models.yaml"
    use = f"use: --model {name}; always: mkdir -p {own[:-12]} && echo '{roles}' > {own} && export DUALTRACE_MODELS={own}"
    return Finding("proposed model", value, advice="" if used else f"{'' if here else f'fetch: dualtrace models pull {name}; '}{use}")


def _is_here(name: str, spec: ModelSpec) -> bool:
    try:
        return located(name, spec) is not None
    except DualtraceError:  # a folder of the user's that may not be loaded: `models check` says why
        return False


def _free(folder: Path) -> int:
    """Free bytes on the disk of a folder that need not be there yet."""
    return shutil.disk_usage(next(p for p in (folder, *folder.parents) if p.exists())).free


def _cache() -> Finding:
    folder = cache_folder()
    free = _free(folder)
    needed = 10 * GIB
    return Finding(
        "model cache",
        f"{folder}, {free / GIB:.0f} GiB free",
        "" if free > needed else "free 10 GiB, or set DUALTRACE_CACHE to another disk",
    )


def _libraries(*, gpu: bool) -> list[Finding]:
    found = versions()
    extra = "gpu" if gpu else "cpu"
    needed = {"torch": extra, "transformers": extra, "vllm": extra, "outlines": "", "lancedb": "", "sentence_transformers": ""}
    findings = []
    for module, part in needed.items():
        name = module.replace("_", "-")
        version = found.get(name) or found.get(f"{name}-cpu", "")
        there = util.find_spec(module) is not None
        remedy = "" if there else f"pip install 'dualtrace-local{f'[{part}]' if part else ''}'"
        findings.append(Finding(name, version or ("there" if there else "missing"), remedy))
    if not gpu and util.find_spec("torchvision") is not None:
        findings.append(
            Finding(
                "torchvision",
                "installed",
                "it breaks transformers beside a CPU torch: pip uninstall torchvision torchaudio torchcodec",
            )
        )
    return findings


def _models(models: Models, sizes: Sequence[int], *, check_card: bool) -> list[Finding]:
    findings = []
    for role in Role:
        name = models.roles[role]
        spec = models.spec(name)
        if spec.engine == "scripted":
            findings.append(Finding(f"{role} model", f"{name}: rules, not a language model"))
            continue
        if not spec.has_files:
            findings.append(Finding(f"{role} model", f"{name}, served at {', '.join(spec.endpoints)} (not asked)"))
            continue
        if check_card and spec.card > max(sizes, default=0):
            better = next(iter(fitting(models.models, sizes)), "") or "the embedded default"
            findings.append(Finding(f"{role} model", f"{name} is for cards from {spec.card} GB", f"use {better}: it fits this machine"))
            continue
        try:
            findings.append(Finding(f"{role} model", f"{name} ({spec.licence}, {spec.engine}) in {ready(name, spec)}"))
        except DualtraceError as problem:
            findings.append(Finding(f"{role} model", f"{name}: {problem}", f"dualtrace models pull {name}"))
    return findings


def _switches() -> str:
    state = off_switches()
    on = sum(state.values())
    return f"{on} of {len(state)} in force" + "".join(f"; {name} is not" for name, set_ in state.items() if not set_)
