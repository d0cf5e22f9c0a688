"""Opening a store: whose folder it is, which format it has, and what has to be put right first."""

from __future__ import annotations

import secrets
from pathlib import Path

from dualtrace_local.embed import Embedder
from dualtrace_local.errors import StoreBusyError, StoreError

from .durable import DAMAGED, FOLDER_MODE, LOCK_FILE, WriterLock, settle
from .folder import UNREADABLE, Folder, Say
from .repair import examine, put_right
from .sums import SUMS
from .tables import FORMAT, TABLES


def identity(embedder: Embedder) -> dict[str, str]:
    """What a store knows its embedding model by."""
    return {"embedder": embedder.name, "embedder_digest": embedder.digest, "dimension": str(embedder.dimension)}


def claim(path: Path) -> None:
    """Make the folder, or accept an empty one (or one whose making was cut off). Other people's folders are refused."""
    ours = {*(f"{name}.lance" for name in TABLES), LOCK_FILE, DAMAGED, SUMS}
    if path.is_dir() and (other := sorted(f.name for f in path.iterdir() if f.name not in ours)):
        msg = f"{path} holds other files ({other[0]} ...); give a folder that is empty or not there yet"
        raise StoreError(msg)
    path.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
    path.chmod(FOLDER_MODE)


def build(path: Path, embedder: Embedder | None) -> None:
    """Make an empty store in a claimed folder. Raises StoreError without an embedding model."""
    if embedder is None:
        msg = f"store {path} cannot be made without an embedding model"
        raise StoreError(msg)
    Folder(path).create(embedder.dimension, {"version": str(FORMAT), "secret": secrets.token_hex(16)}, identity(embedder))


def of_this_format(path: Path) -> None:
    """Raises StoreError for a store of another format, before anything in it is looked at or put right."""
    try:
        version = int(Folder(path).metadata.get("version", "0"))
    except UNREADABLE:  # a torn table is a matter for repair
        return
    if version != FORMAT:
        remedy = {True: "a newer dualtrace wrote it; update dualtrace", False: "it is not a store that dualtrace made"}[version > FORMAT]
        if 0 < version < FORMAT:
            remedy = f"bring it up to date: `dualtrace store migrate --store {path}`"
        msg = f"store {path} has format version {version}, this program reads {FORMAT}: {remedy}"
        raise StoreError(msg)


def repaired(path: Path, lock: WriterLock | None, say: Say) -> None:
    """Put right what is damaged; a reader takes the writer lock for it. What a cut-off commit left is a writer's business."""
    found = examine(path)
    if lock is None and not found.harmful and not found.unfinished:
        return
    try:
        held = lock or WriterLock(path)
    except StoreBusyError:
        if found.harmful:
            raise
        return  # the writer is in the middle of it
    try:
        # Without the lock, rows of a commit under way looked like orphans.
        put_right(path, found if lock else examine(path), say)
    finally:
        if lock is None:
            settle(path, {})
            held.release()
