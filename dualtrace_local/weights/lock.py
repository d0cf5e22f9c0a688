"""The lock file: what commit a revision of the hub meant when it was pulled, and the SHA-256 of every file that came.

It lies beside the user's models file, to be kept with it, or in the cache. People may read it, and it is only ever added to: the
entries of other models stay as they are.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import yaml
from filelock import FileLock
from pydantic import Field

from dualtrace_local.config import HubSource, ModelSpec, Strict, read_yaml
from dualtrace_local.errors import WeightsError

HEAD = "# Written by `dualtrace models pull`: the commit of the hub that each model was pulled from, and the bytes it had.\n"
COMMIT = r"^[0-9a-f]{40}$"


class FileDigest(Strict):
    """One file: its size, and its SHA-256 in hexadecimal."""

    bytes: int = Field(ge=0)
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")


class Locked(Strict):
    """One pulled model: the repository and revision that models.yaml named, the commit that it meant, and the files as fetched."""

    hub: str
    revision: str
    commit: str = Field(pattern=COMMIT)
    files: dict[str, FileDigest]

    def named_by(self, spec: ModelSpec) -> bool:
        """Whether models.yaml still names this repository and revision for the model."""
        return any(isinstance(s, HubSource) and (s.hub, s.revision) == (self.hub, self.revision) for s in spec.sources)


class Lock(Strict):
    """The whole lock file."""

    models: dict[str, Locked] = Field(default_factory=dict)


def read_lock(path: Path) -> dict[str, Locked]:
    """The entries of a lock file; none when there is no file. Raises ConfigError naming file, place and value."""
    return dict(read_yaml(path, Lock).models) if path.exists() else {}


def put_in_lock(path: Path, entries: dict[str, Locked]) -> None:
    """Add or replace ``entries``; everything else in the file stays. Raises WeightsError when it cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(path.with_name(f".{path.name}.guard")):
            known = read_lock(path)
            if all(known.get(name) == entry for name, entry in entries.items()):
                return
            whole = Lock(models=dict(sorted((known | entries).items())))
            _replace(path, HEAD + yaml.safe_dump(whole.model_dump(), sort_keys=True, allow_unicode=True, width=120))
    except OSError as problem:
        msg = f"{path}: {problem.strerror}; the lock file cannot be written, so what was pulled is not pinned: put that right, then repeat"
        raise WeightsError(msg) from problem


def _replace(path: Path, text: str) -> None:
    """Write the file whole or not at all."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(handle)
        Path(name).chmod(0o644)
        Path(name).replace(path)
    finally:
        Path(name).unlink(missing_ok=True)  # gone already where it took the old one's place
