"""Finding and checking ready folders; nothing here writes, fetches or imports a model library."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from dualtrace_local.config import FolderSource, HubSource, ModelSpec, PackageSource, Strict, cache_folder
from dualtrace_local.errors import WeightsError

from .contents import content_problems
from .lock import FileDigest, Locked
from .safety import files_below, unsafe

MARKER = "dualtrace.json"
NAME = re.compile(r"[a-z0-9][a-z0-9._-]*")
QUICK_BYTES = 32 << 20
"""Files up to this size are hashed whenever a model is used; of bigger ones only the size is compared (``check`` hashes all)."""


class Marker(Strict):
    """The content of dualtrace.json: ``source_sha256`` is the digest of the file that models.yaml pins, before any conversion.

    ``locked`` is the lock file's entry of a model from the hub.
    """

    name: str
    source: str
    source_sha256: str
    files: dict[str, FileDigest]
    versions: dict[str, str]
    locked: Locked | None = None


def located(name: str, spec: ModelSpec) -> Path | None:
    """The ready folder of ``name``, or None. No network, no import of a model library.

    Small files are hashed and big ones compared by size; a pinned file in a folder of the user's is always hashed (about 2 s for
    3 GB). Raises WeightsError when such a folder is unsafe or not the pinned model: falling back to another source would hide it.
    """
    cached = cached_folder(name)
    for source in spec.sources:
        if folder := _own_folder(source, spec):
            if problems := _folder_problems(folder, spec):
                msg = f"model {name}: {folder} may not be loaded: {'; '.join(problems)}"
                raise WeightsError(msg)
            return folder
        if not marked_problems(cached, spec, thorough=False):
            return cached
    return None


def ready(name: str, spec: ModelSpec) -> Path:
    """The ready folder of ``name``. Raises WeightsError saying what is wrong and which command fetches it."""
    if found := located(name, spec):
        return found
    problems = marked_problems(cached_folder(name), spec, thorough=False)
    msg = f"model {name} is not ready ({'; '.join(problems)}); run: dualtrace models pull {name}"
    raise WeightsError(msg)


def check(name: str, spec: ModelSpec, held: Locked | None = None) -> tuple[str, ...]:
    """Problems of the files that ``name`` would be loaded from; every file is hashed again. Empty means good.

    ``held`` is the model's entry in the lock file. Beside the bytes, what the folder says of itself is held against models.yaml:
    licence, chat template, longest context.
    """
    if not spec.has_files:
        return ()
    cached = cached_folder(name)
    for source in spec.sources:
        if folder := _own_folder(source, spec):
            return _folder_problems(folder, spec) or content_problems(folder, spec)
        if cached.is_dir():
            break
    problems = marked_problems(cached, spec, thorough=True)
    if not problems:
        problems = (*lock_problems(name, cached, held), *content_problems(cached, spec))
    return problems


def lock_problems(name: str, folder: Path, held: Locked | None) -> tuple[str, ...]:
    """Whether a whole folder from the hub is what the lock file says; nothing is held against one from another source."""
    found = read_marker(folder).locked
    if found is None or held is None or found == held:
        return ()
    if found.commit != held.commit:
        return (f"is commit {found.commit}, but the lock file says {held.commit}; run: dualtrace models pull {name}",)
    return (f"has other files than the lock file says; run: dualtrace models pull {name}",)


def read_marker(folder: Path) -> Marker:
    """dualtrace.json of a ready folder. Raises OSError or ValueError when it is missing or damaged."""
    return Marker.model_validate_json((folder / MARKER).read_text(encoding="utf-8"))


def files_digest(folder: Path) -> str:
    """One digest of a folder: of its files' SHA-256 where ``pull`` listed them, else of their names and sizes."""
    listing: list[tuple[str, str | int]]
    if (folder / MARKER).is_file():
        listing = [(name, file.sha256) for name, file in read_marker(folder).files.items()]
    else:
        listing = [(path.relative_to(folder).as_posix(), path.stat().st_size) for path in folder.rglob("*") if path.is_file()]
    return hashlib.sha256(repr(sorted(listing)).encode()).hexdigest()


def cached_folder(name: str) -> Path:
    """Where ``pull`` puts the model. Raises WeightsError for a name that could be anything but one folder's name."""
    if not NAME.fullmatch(name):
        msg = f"{name!r} cannot name a model: use lower-case letters, digits, '.', '_' and '-', with a letter or digit first"
        raise WeightsError(msg)
    return cache_folder() / "models" / name


def _own_folder(source: FolderSource | HubSource | PackageSource, spec: ModelSpec) -> Path | None:
    """The user's folder, if it is there and is used as it is; one that holds the GGUF file itself has to be converted first."""
    if not isinstance(source, FolderSource):
        return None
    folder = source.folder.expanduser()
    return folder if folder.is_dir() and not raw_gguf(folder, spec) else None


def raw_gguf(folder: Path, spec: ModelSpec) -> bool:
    """Whether ``folder`` holds the GGUF file that the model is made from."""
    return spec.file.endswith(".gguf") and (folder / spec.file).is_file()


def _folder_problems(folder: Path, spec: ModelSpec) -> tuple[str, ...]:
    """What is wrong with a folder of the user's. A copy of one that ``pull`` made has its marker instead of the pinned file."""
    if (folder / MARKER).is_file() and not (folder / spec.file).is_file():
        return marked_problems(folder, spec, thorough=True)
    return (*unsafe(folder), *pin_problems(folder, spec))


def pin_problems(folder: Path, spec: ModelSpec) -> tuple[str, ...]:
    """Whether the pinned file is there and is the pinned one; no pin, no problem."""
    if not spec.sha256:
        return ()
    if not (folder / spec.file).is_file():
        return (f"{spec.file or 'the file'}, whose SHA-256 is pinned, is missing",)
    found = sha256(folder / spec.file)
    return () if found == spec.sha256 else (f"{spec.file} has SHA-256 {found}, but {spec.sha256} is pinned",)


def marked_problems(folder: Path, spec: ModelSpec, *, thorough: bool) -> tuple[str, ...]:
    """What is wrong with a folder that ``pull`` made; ``thorough`` hashes big files too and reports files of unknown origin."""
    if not folder.is_dir():
        return ("not fetched yet",)
    try:
        marker = read_marker(folder)
        present = {path.relative_to(folder).as_posix(): path for path in files_below(folder)}
    except (OSError, ValueError):
        return (f"{MARKER} is missing or damaged",)
    if spec.sha256 and marker.source_sha256 != spec.sha256:
        return (f"made from SHA-256 {marker.source_sha256 or 'unknown'}, but {spec.sha256} is pinned",)
    if marker.locked and not marker.locked.named_by(spec):
        return (f"pulled from {marker.locked.hub} {marker.locked.revision}, which models.yaml no longer names",)
    problems = list(unsafe(folder))
    for file, known in sorted(marker.files.items()):
        path = present.pop(file, None)
        if path is None or not path.is_file():
            problems.append(f"{file} is missing")
        elif path.stat().st_size != known.bytes or ((thorough or known.bytes <= QUICK_BYTES) and sha256(path) != known.sha256):
            problems.append(f"{file} has changed")
    if thorough:
        problems += [f"{file} is not listed in {MARKER}" for file in sorted(present) if file != MARKER]
    return tuple(problems)


def sha256(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
