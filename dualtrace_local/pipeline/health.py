"""What ``dualtrace doctor`` looks at. Nothing here starts an engine or uses the network."""

from __future__ import annotations

import platform
import shutil
import sys
from dataclasses import dataclass
from importlib import util

import psutil

from dualtrace_local.config import Models, Role, cache_folder, off_switches, prepare_environment
from dualtrace_local.errors import DualtraceError
from dualtrace_local.weights import ready

from .parts import has_gpu, versions

GIB = 1024**3


@dataclass(frozen=True)
class Finding:
    """One line of the examination. ``remedy`` is empty when all is well."""

    what: str
    value: str
    remedy: str = ""


@dataclass(frozen=True)
class Health:
    """All findings, in order of reading."""

    findings: tuple[Finding, ...]

    @property
    def good(self) -> bool:
        """Whether nothing needs doing."""
        return not any(f.remedy for f in self.findings)


def examine(models: Models) -> Health:
    """Machine, libraries, models, off-switches."""
    gpu = has_gpu()
    prepare_environment(cpu=not gpu)
    memory = psutil.virtual_memory()
    findings = [
        Finding("python", platform.python_version(), "" if sys.version_info >= (3, 11) else "install Python 3.11 to 3.13"),
        Finding("machine", f"{psutil.cpu_count()} cores, {memory.total / GIB:.0f} GiB memory, {memory.available / GIB:.0f} GiB free"),
        Finding("gpu", "an NVIDIA driver answers" if gpu else "none; models run on the CPU"),
        _cache(),
        *_libraries(gpu=gpu),
        *_models(models),
        Finding("off-switches", _switches(), "" if all(off_switches().values()) else "unset the variables that hold another value"),
    ]
    return Health(tuple(findings))


def _cache() -> Finding:
    folder = cache_folder()
    existing = next(p for p in (folder, *folder.parents) if p.exists())
    free = shutil.disk_usage(existing).free
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


def _models(models: Models) -> list[Finding]:
    findings = []
    for role in Role:
        name = models.roles[role]
        spec = models.spec(name)
        if spec.engine == "scripted":
            findings.append(Finding(f"{role} model", f"{name}: rules, not a language model"))
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
