"""What makes a folder survive: one writer, files that reached the disk and are private, and named points to crash at in tests."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import stat
from pathlib import Path

from dualtrace_local import config
from dualtrace_local.errors import StoreBusyError, StoreError

from .sums import SUMS, note_sums

LOCK_FILE = ".lock"
DAMAGED = "_damaged"
"""Where unreadable files of a store are moved."""
ASIDE = ".reembed"
"""Where vectors of another embedding model grow until all are there."""
FOLDER_MODE, FILE_MODE = 0o700, 0o600

_held: set[Path] = set()
"""Folders this process writes. A POSIX lock belongs to the process, so a second writer inside it must be found here."""


def crashpoint(name: str) -> None:
    """End this process as ``kill -9`` would, when a crash test has chosen this point."""
    if config.crash_point() == name:
        os.kill(os.getpid(), signal.SIGKILL)


class WriterLock:
    """The advisory lock of the one writer of ``folder``, a store or a run; its file holds the writer's process id.

    A POSIX record lock: the kernel drops it when the process ends, however it ends, and forked children (a model engine that
    outlives a killed parent) do not inherit it. Raises StoreBusyError at once when another writer has it. Not for network disks.
    """

    def __init__(self, folder: Path) -> None:
        self._key = folder.resolve()
        file = folder / LOCK_FILE
        if self._key in _held:
            raise _busy(folder, str(os.getpid()))
        self._handle = os.open(file, os.O_RDWR | os.O_CREAT, FILE_MODE)
        try:
            fcntl.lockf(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as problem:
            holder = os.read(self._handle, 20).decode("ascii", "replace").strip()
            os.close(self._handle)
            if problem.errno not in (errno.EACCES, errno.EAGAIN):
                msg = f"{folder} cannot be locked: {problem.strerror}; keep it on a local disk"
                raise StoreError(msg) from problem
            raise _busy(folder, holder or "unknown") from problem
        try:
            os.ftruncate(self._handle, 0)
            os.pwrite(self._handle, f"{os.getpid()}\n".encode(), 0)
        except OSError:
            os.close(self._handle)
            raise
        _held.add(self._key)

    def release(self) -> None:
        """Let the next writer in. Safe to call twice."""
        if self._key in _held:
            _held.discard(self._key)
            os.close(self._handle)


def _busy(folder: Path, holder: str) -> StoreBusyError:
    return StoreBusyError(f"{folder} is in use by process {holder}; wait until it has finished, or stop it")


def settle(root: Path, seen: dict[str, int]) -> None:
    """Flush every file under ``root`` that is new or changed since the last call, then its folders, and make both private.

    ``seen`` maps paths to modification times (ns) and is brought up to date. LanceDB itself never flushes and creates
    0644 files in 0755 folders; they are corrected here, after the write. Until then the store's own 0700 folder keeps others out.
    Their check sums are written down last.
    """
    first, fresh = not seen, []
    for folder, inner, names in os.walk(root):
        changed = folder not in seen or any(os.path.join(folder, i) not in seen for i in inner)  # noqa: PTH118 - hot walk of strings
        for name in names:
            path = os.path.join(folder, name)  # noqa: PTH118 - as above
            if name in (LOCK_FILE, SUMS):  # opening and closing the lock would drop it; the sums are flushed when written
                continue
            try:
                now = os.stat(path)  # noqa: PTH116 - as above
                if seen.get(path) == now.st_mtime_ns:
                    continue
                _flush(path, now.st_mode, FILE_MODE)
            except FileNotFoundError:  # cleaned away between listing and opening
                continue
            seen[path] = now.st_mtime_ns
            fresh.append(path)
            changed = True
        if changed:
            _flush(folder, os.stat(folder).st_mode, FOLDER_MODE)  # noqa: PTH116 - as above
            seen[folder] = 0
    note_sums(root, fresh, first=first)


def flush_folder(folder: Path) -> None:
    """Make the names in a private folder durable."""
    _flush(str(folder), FOLDER_MODE, FOLDER_MODE)


def _flush(path: str, mode: int, wanted: int) -> None:
    if stat.S_IMODE(mode) != wanted:
        os.chmod(path, wanted)  # noqa: PTH101 - as above
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def size_of(root: Path) -> int:
    """Bytes of all files under ``root``."""
    return sum(f.stat().st_size for f in root.rglob("*") if f.is_file())
