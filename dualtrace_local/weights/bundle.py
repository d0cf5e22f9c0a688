"""Models as one file, for machines without any network: a plain tar of ready folders, with a manifest of every byte in front."""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import tarfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path, PurePosixPath
from typing import IO, Literal

from pydantic import ValidationError

from dualtrace_local.config import Models, ModelSpec, Strict
from dualtrace_local.errors import WeightsError

from .fetch import alone, marker_of, put_in_place, workplace
from .folders import MARKER, Marker, cached_folder, marked_problems, read_marker, ready, sha256
from .lock import FileDigest, put_in_lock, read_lock

MANIFEST = "manifest.json"
MANIFEST_LIMIT = 64 << 20
"""Bytes of the longest manifest that is read: hundreds of thousands of files."""

CHUNK = 1 << 20

Say = Callable[[str], None]


class Manifest(Strict):
    """The first member: for each model what its dualtrace.json says, which is every file's digest and the lock file's entry."""

    format: Literal["dualtrace models 1"] = "dualtrace models 1"
    models: dict[str, Marker]

    def members(self) -> dict[str, tuple[str, str, FileDigest]]:
        """By member name in the tar: model, file of the model, and its digest."""
        return {f"{name}/{file}": (name, file, digest) for name, marker in self.models.items() for file, digest in marker.files.items()}


def bundle(specs: Mapping[str, ModelSpec], out: Path, say: Say) -> None:
    """Write ready models into the tar ``out``, hashing every byte on the way. The same models give the same file.

    Raises WeightsError when a model is not ready or changes meanwhile, or when ``out`` is there already.
    """
    if without := [name for name, spec in specs.items() if not spec.has_files]:
        msg = f"model {without[0]} has no files, so it cannot be bundled; leave it out"
        raise WeightsError(msg)
    folders = {name: ready(name, spec) for name, spec in sorted(specs.items())}
    manifest = Manifest(models={name: _marker(name, folder, specs[name]) for name, folder in folders.items()})
    part = out.with_name(f".{out.name}.part")
    try:
        if out.exists():
            msg = f"{out} is there already; name another file or remove it"
            raise WeightsError(msg)
        with part.open("wb") as stream:
            with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as tar:
                listed = manifest.model_dump_json(indent=1).encode()
                tar.addfile(_head(MANIFEST, len(listed)), io.BytesIO(listed))
                for member, (name, file, digest) in sorted(manifest.members().items()):
                    _add(tar, member, folders[name] / file, digest)
            stream.flush()
            os.fsync(stream.fileno())
        part.rename(out)
    except OSError as problem:
        msg = f"{problem.filename or out}: {problem.strerror}; put that right, then repeat"
        raise WeightsError(msg) from problem
    finally:
        with suppress(OSError):
            part.unlink()
    size = out.stat().st_size / 1e6
    say(f"{', '.join(manifest.models)} in {out}, {size:.0f} MB; on the other machine: dualtrace models unbundle {out.name}")


def unbundle(file: Path, models: Models, lock: Path, say: Say, *, update: bool = False) -> dict[str, Path]:
    """Take the models out of a bundle into the cache; returns their folders. Nothing is visible before every byte was compared.

    Models that are here already are only compared. Interrupted, it leaves a working folder, which the next pull or unbundle removes.
    Raises WeightsError when the bundle holds anything but what its manifest lists, a model that models.yaml does not know or has
    pinned otherwise, or (without ``update``) another commit than the lock file's.
    """
    try:
        with file.open("rb") as stream, tarfile.open(fileobj=stream, mode="r:") as tar, ExitStack() as held:
            manifest = _manifest(tar, file)
            for name, marker in manifest.models.items():
                _refuse_unknown(name, marker, models, lock, update=update)
            cached_folder(next(iter(manifest.models))).parent.mkdir(parents=True, exist_ok=True)
            _refuse_full_disk(manifest)
            work = {}
            for name in sorted(manifest.models):
                held.enter_context(alone(name, say))
                work[name] = held.enter_context(workplace(name))
            here = {name for name, marker in manifest.models.items() if _is_here(name, marker, models.spec(name))}
            _unpack(tar, manifest, {name: folder for name, folder in work.items() if name not in here}, file)
            _refuse_more(tar, stream, file)
            made = {name: folder / "model" for name, folder in work.items() if name not in here}
            for name, folder in made.items():
                _finish(folder, manifest.models[name], models.spec(name), name)
            for name, folder in made.items():
                put_in_place(folder, cached_folder(name), work[name])
            if locked := {name: marker.locked for name, marker in manifest.models.items() if marker.locked}:
                put_in_lock(lock, locked)
    except (tarfile.TarError, ValueError) as problem:  # ValueError: a header whose numbers are none
        msg = f"{file} is no bundle or is cut off ({problem}); copy it again"
        raise WeightsError(msg) from problem
    except OSError as problem:
        msg = f"{problem.filename or file}: {problem.strerror}; put that right, then repeat"
        raise WeightsError(msg) from problem
    for name in manifest.models:
        say(f"{name}: {'already complete' if name in here else 'ready'} in {cached_folder(name)}")
    return {name: cached_folder(name) for name in manifest.models}


# -------------------------------------------------------------------------------------------------------- writing


class _Hashed:
    """A stream for tarfile, hashed while it is read."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self.sha256 = hashlib.sha256()

    def read(self, size: int = -1, /) -> bytes:
        chunk = self._stream.read(size)
        self.sha256.update(chunk)
        return chunk


def _marker(name: str, folder: Path, spec: ModelSpec) -> Marker:
    """The folder's own marker; a folder of the user's that has none gets what ``pull`` would have written."""
    if (folder / MARKER).is_file():
        return read_marker(folder)
    digest = sha256(folder / spec.file) if (folder / spec.file).is_file() else ""
    return marker_of(folder, name, "a folder", digest)


def _add(tar: tarfile.TarFile, member: str, path: Path, digest: FileDigest) -> None:
    with path.open("rb") as stream:
        source = _Hashed(stream)
        tar.addfile(_head(member, digest.bytes), source)
    if source.sha256.hexdigest() != digest.sha256:
        msg = f"{path} has changed since it was fetched; run: dualtrace models pull {PurePosixPath(member).parts[0]}"
        raise WeightsError(msg)


def _head(member: str, size: int) -> tarfile.TarInfo:
    """A member's head without times and owners, so that the same models give the same file."""
    head = tarfile.TarInfo(member)
    head.size = size
    return head


# -------------------------------------------------------------------------------------------------------- reading


def _manifest(tar: tarfile.TarFile, file: Path) -> Manifest:
    """The first member, checked: names of models and paths of files must be such that nothing can be written elsewhere."""
    head = tar.next()
    stream = tar.extractfile(head) if head and _is_plain(head) and head.size <= MANIFEST_LIMIT else None
    if head is None or head.name != MANIFEST or stream is None:
        msg = f"{file} does not begin with {MANIFEST}, so it is no bundle; make one with: dualtrace models bundle NAME --out FILE"
        raise WeightsError(msg)
    try:
        manifest = Manifest.model_validate_json(stream.read())
    except ValidationError as problem:
        first = problem.errors()[0]
        msg = f"{file}: {MANIFEST}: {'.'.join(map(str, first['loc']))}: {first['msg']}"
        raise WeightsError(msg) from problem
    for name, inner, _ in manifest.members().values():
        path = PurePosixPath(inner)
        odd = path.is_absolute() or ".." in path.parts or str(path) != inner or set(inner) & set("\\:\0") or inner in (MARKER, ".")
        if odd or cached_folder(name).name != name:
            msg = f"{file}: {MANIFEST} lists {inner!r} of model {name}, a path that may not be written"
            raise WeightsError(msg)
    if not manifest.members():
        msg = f"{file} holds no model"
        raise WeightsError(msg)
    return manifest


def _is_plain(head: tarfile.TarInfo) -> bool:
    """Whether a member is an ordinary file: no link, no device, no sparse file."""
    return head.type in (tarfile.REGTYPE, tarfile.AREGTYPE) and not head.issparse()


def _refuse_unknown(name: str, marker: Marker, models: Models, lock: Path, *, update: bool) -> None:
    """What can be refused before anything is read: see ``unbundle``."""
    spec, held = models.spec(name), read_lock(lock).get(name)
    if spec.sha256 and marker.source_sha256 != spec.sha256:
        msg = f"model {name} of the bundle was made from SHA-256 {marker.source_sha256 or 'unknown'}, but models.yaml pins {spec.sha256}"
        raise WeightsError(msg)
    if marker.locked and not marker.locked.named_by(spec):
        msg = f"model {name} of the bundle is {marker.locked.hub} {marker.locked.revision}, which models.yaml does not name for it"
        raise WeightsError(msg)
    if held and marker.locked and held != marker.locked and not update:
        msg = (
            f"model {name} of the bundle is commit {marker.locked.commit}, but {lock} says {held.commit}; "
            "to take the bundle's: dualtrace models unbundle --update"
        )
        raise WeightsError(msg)


def _refuse_full_disk(manifest: Manifest) -> None:
    needed = sum(digest.bytes for _, _, digest in manifest.members().values())
    folder = cached_folder(next(iter(manifest.models))).parent
    if needed > (free := shutil.disk_usage(folder).free):
        msg = f"{needed / 1e9:.1f} GB are needed in {folder}, and {free / 1e9:.1f} GB are free; make room, or set DUALTRACE_CACHE"
        raise WeightsError(msg)


def _is_here(name: str, marker: Marker, spec: ModelSpec) -> bool:
    folder = cached_folder(name)
    return not marked_problems(folder, spec, thorough=True) and read_marker(folder) == marker


def _unpack(tar: tarfile.TarFile, manifest: Manifest, work: Mapping[str, Path], file: Path) -> None:
    """Compare every member with the manifest, and write those of the models in ``work``."""
    missing = manifest.members()
    while (head := tar.next()) is not None:
        if head.name not in missing or not _is_plain(head):
            msg = f"{file} holds {head.name!r}, which is no file that its manifest lists, or is there twice"
            raise WeightsError(msg)
        name, inner, digest = missing.pop(head.name)
        stream = tar.extractfile(head)
        if stream is None or head.size != digest.bytes:
            msg = f"{file}: {head.name} has {head.size} bytes, its manifest says {digest.bytes}"
            raise WeightsError(msg)
        target = work[name] / "model" / inner if name in work else Path(os.devnull)
        target.parent.mkdir(parents=True, exist_ok=True)
        source = _Hashed(stream)
        with target.open("wb") as out:
            shutil.copyfileobj(source, out, CHUNK)
        if source.sha256.hexdigest() != digest.sha256:
            msg = f"{file}: {head.name} has SHA-256 {source.sha256.hexdigest()}, its manifest says {digest.sha256}; copy it again"
            raise WeightsError(msg)
    if missing:
        msg = f"{file} lacks {next(iter(missing))}, which its manifest lists; copy it again"
        raise WeightsError(msg)


def _refuse_more(tar: tarfile.TarFile, stream: IO[bytes], file: Path) -> None:
    """After the last member a tar has zeros up to a whole record, and nothing else."""
    stream.seek(tar.offset)
    rest = stream.read(2 * tarfile.RECORDSIZE + 1)
    if len(rest) > 2 * tarfile.RECORDSIZE or rest.strip(b"\0"):
        msg = f"{file} holds more than its manifest lists"
        raise WeightsError(msg)


def _finish(folder: Path, marker: Marker, spec: ModelSpec, name: str) -> None:
    """Make an unpacked folder a ready one. Raises WeightsError when it may not be loaded."""
    (folder / MARKER).write_text(marker.model_dump_json(indent=1), encoding="utf-8")
    if problems := marked_problems(folder, spec, thorough=False):
        msg = f"model {name} of the bundle may not be loaded: {'; '.join(problems)}"
        raise WeightsError(msg)
