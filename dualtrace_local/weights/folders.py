"""Finding and checking ready folders; nothing here writes, fetches or imports a model library."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from dualtrace_local.config import FolderSource, ModelSpec, PackageSource, Strict, cache_folder
from dualtrace_local.errors import WeightsError

from .safety import files_below, unsafe

MARKER = "dualtrace.json"
NAME = re.compile(r"[a-z0-9][a-z0-9._-]*")
QUICK_BYTES = 32 << 20
"""Files up to this size are hashed whenever a model is used; of bigger ones only the size is compared (``check`` hashes all)."""


class FileDigest(Strict):
    """One file of a ready folder."""

    bytes: int
    sha256: str


class Marker(Strict):
    """The content of dualtrace.json: ``source_sha256`` is the digest of the file that models.yaml pins, before any conversion."""

    name: str
    source: str
    source_sha256: str
    files: dict[str, FileDigest]
    versions: dict[str, str]


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


def check(name: str, spec: ModelSpec) -> tuple[str, ...]:
    """Problems of the files that ``name`` would be loaded from; every file is hashed again. Empty means good."""
    if spec.engine == "scripted":
        return ()
    cached = cached_folder(name)
    for source in spec.sources:
        if folder := _own_folder(source, spec):
            return _folder_problems(folder, spec)
        if cached.is_dir():
            break
    return marked_problems(cached, spec, thorough=True)


def cached_folder(name: str) -> Path:
    """Where ``pull`` puts the model. Raises WeightsError for a name that could be anything but one folder's name."""
    if not NAME.fullmatch(name):
        msg = f"{name!r} cannot name a model: use lower-case letters, digits, '.', '_' and '-', with a letter or digit first"
        raise WeightsError(msg)
    return cache_folder() / "models" / name


def _own_folder(source: FolderSource | PackageSource, spec: ModelSpec) -> Path | None:
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
        marker = Marker.model_validate_json((folder / MARKER).read_text(encoding="utf-8"))
        present = {path.relative_to(folder).as_posix(): path for path in files_below(folder)}
    except (OSError, ValueError):
        return (f"{MARKER} is missing or damaged",)
    if spec.sha256 and marker.source_sha256 != spec.sha256:
        return (f"made from SHA-256 {marker.source_sha256 or 'unknown'}, but {spec.sha256} is pinned",)
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
