"""Files of a repository of the model hub, fetched by commit with the hub's own client.

The client works in a child process, the only one of ours that is allowed to look things up: its offline switch is read once, when it
is imported, and every other process keeps it set. No token goes out but the one in $HF_TOKEN, and nothing is reported.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import IO, Any

from pydantic import Field, ValidationError

from dualtrace_local.config import HubSource, Strict, hub_environment, hub_token
from dualtrace_local.errors import WeightsError

from .folders import sha256
from .lock import COMMIT, FileDigest, Locked
from .safety import CODE, PICKLES, unsafe

CHILD = f"import sys; from {__name__} import child; child(sys.argv[1])"
CARD = "README.md"
"""The model card. Fetched as text: its first lines name the licence."""

BIG = frozenset({".safetensors", ".gguf"})
"""Endings of the files that come last, once the small ones have shown that the folder may be loaded."""

EVERY = 10.0
"""Seconds between two lines about a download."""

PATIENCE = 30.0
"""Seconds that the hub may take to answer the first question."""


class Remote(Strict):
    """One file as the hub lists it. ``sha256`` is known for files in large-file storage, else empty."""

    bytes: int
    sha256: str = ""


class Listing(Strict):
    """What a revision of a repository is: a commit, and its files."""

    commit: str = Field(pattern=COMMIT)
    files: dict[str, Remote]


@dataclass(frozen=True)
class Places:
    """Folders of one disk. ``partial``: what a broken-off fetch left; ``old``: the model as it was; ``target``: where the files go."""

    partial: Path
    old: Path
    target: Path


def fetch_hub(name: str, source: HubSource, held: Locked | None, places: Places, say: Callable[[str], None]) -> Locked:
    """Put the files of ``source`` into the target, and say what they are; ``held`` is the lock's entry, which fixes commit and bytes.

    A file that came whole before an interruption, or that the old model has with the bytes listed, is not fetched again. Raises
    WeightsError for a repository that cannot be had or may not be loaded, for bytes that are not those of the hub's list or of the
    lock, and for a full disk.
    """
    listed = listing(source.hub, held.commit if held else source.revision)
    origin = f"{source.hub}@{listed.commit[:12]}"
    wanted = _held(held, listed, origin) if held else _wanted(source, listed, origin)
    say(f"{name}: {source.hub} {source.revision} is commit {listed.commit}{' as locked' if held else ''}")
    folder = places.partial / listed.commit
    for older in places.partial.glob("*"):
        if older != folder:
            shutil.rmtree(older, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    for torn in folder.rglob("*.incomplete"):  # the client begins a file that was not whole again, under another name
        torn.unlink(missing_ok=True)
    _link_known(wanted, listed, places.old, folder)
    total = sum(listed.files[file].bytes for file in wanted)
    _refuse_full_disk(origin, folder, total)
    say(f"{name}: fetching {len(wanted)} files, {_size(total)}")
    if reasons := _download(name, source.hub, listed, wanted, folder, say):
        shutil.rmtree(folder)
        msg = f"{origin} may not be loaded: {'; '.join(reasons)}"
        raise WeightsError(msg)
    shutil.rmtree(folder / ".cache", ignore_errors=True)  # the client's own notes
    files = {file: FileDigest(bytes=(folder / file).stat().st_size, sha256=sha256(folder / file)) for file in wanted}
    if problems := _other_bytes(files, listed, held):
        shutil.rmtree(folder)
        msg = f"{origin}: {'; '.join(problems)}"
        raise WeightsError(msg)
    folder.rename(places.target)
    return held or Locked(hub=source.hub, revision=source.revision, commit=listed.commit, files=files)


def _link_known(wanted: Iterable[str], listed: Listing, old: Path, folder: Path) -> None:
    """Link big files of the old model that look like those wanted; the client compares their SHA-256 and fetches what differs."""
    for file in wanted:
        known, said = old / file, listed.files[file]
        if said.sha256 and known.is_file() and known.stat().st_size == said.bytes and not (folder / file).exists():
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(OSError):  # a disk without hard links: it is fetched
                os.link(known, folder / file)


def _wanted(source: HubSource, listed: Listing, origin: str) -> list[str]:
    """The files to fetch: those that the globs name and that are data, and the model card."""
    found = sorted(f for f in listed.files if f == CARD or any(_fits(f, glob) for glob in source.files))
    data = [f for f in found if _is_data(f)]
    if not any(map(_is_big, data)):
        msg = f"{origin} holds no weights as safetensors that match {', '.join(source.files)}"
        raise WeightsError(msg)
    return data


def _held(held: Locked, listed: Listing, origin: str) -> list[str]:
    """The files of the lock, which must be data, and be in the repository still."""
    if odd := [f for f in held.files if f not in listed.files or not _is_data(f)]:
        msg = f"{origin} has no file {odd[0]!r} that may be fetched, though the lock file lists it; correct that file"
        raise WeightsError(msg)
    return sorted(held.files)


def _is_data(file: str) -> bool:
    """Whether a path of the repository may be fetched: it stays in the folder, is hidden nowhere, and is neither program nor pickle."""
    path = PurePosixPath(file)
    plain = not path.is_absolute() and not any(part.startswith(".") for part in path.parts) and not set(file) & set("\\:\0")
    return plain and path.suffix.lower() not in CODE | PICKLES


def _fits(file: str, glob: str) -> bool:
    """Glob in which ``*`` stays within one folder: copies of the weights in other formats lie in folders of their own."""
    parts, globs = PurePosixPath(file).parts, PurePosixPath(glob).parts
    return len(parts) == len(globs) and all(fnmatchcase(part, piece) for part, piece in zip(parts, globs, strict=True))


def _other_bytes(files: Mapping[str, FileDigest], listed: Listing, held: Locked | None) -> list[str]:
    """What came that is not what the hub lists, or not what the lock says."""
    problems = []
    for file, found in files.items():
        said = listed.files[file]
        if found.bytes != said.bytes or (said.sha256 and found.sha256 != said.sha256):
            problems.append(
                f"{file} came with SHA-256 {found.sha256}, which is not what the hub lists ({said.sha256 or said.bytes}); repeat"
            )
        elif held and found != held.files[file]:
            problems.append(f"{file} has SHA-256 {found.sha256}, but the lock file says {held.files[file].sha256}")
    return problems


def _refuse_full_disk(origin: str, folder: Path, total: int) -> None:
    have = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    free = shutil.disk_usage(folder).free
    if total - have > free:
        msg = f"{origin} needs {_size(total - have)} more, and {_size(free)} are free; make room, or set DUALTRACE_CACHE to another disk"
        raise WeightsError(msg)


def _size(count: float) -> str:
    return f"{count / 1e9:.2f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"  # noqa: PLR2004 - a gigabyte


# ------------------------------------------------------------------------------------------------------ the child


def listing(repository: str, revision: str) -> Listing:
    """What a revision of a repository means now. Raises WeightsError when the hub does not say."""
    try:
        return Listing.model_validate(_ask({"do": "list", "repository": repository, "revision": revision}))
    except ValidationError as problem:
        msg = f"{repository}: the hub's list of files cannot be understood ({problem.errors()[0]['msg']})"
        raise WeightsError(msg) from problem


def _download(name: str, repository: str, listed: Listing, files: list[str], folder: Path, say: Callable[[str], None]) -> list[str]:
    """Fetch files that are not in ``folder`` yet; says how far it is now and then. Returns why they may not be loaded, if so."""
    job = {"do": "fetch", "repository": repository, "revision": listed.commit, "files": files, "folder": str(folder)}
    total = sum(listed.files[file].bytes for file in files)
    started = told = time.monotonic()
    first = _arrived(folder)

    def watch() -> None:
        nonlocal told
        if (now := time.monotonic()) - told < EVERY:
            return
        told, have = now, _arrived(folder)
        rate = (have - first) / (now - started)
        left = f", about {(total - have) / rate:.0f} s left" if rate > 0 and total > have else ""
        say(f"{name}: {_size(have)} of {_size(total)}, {rate / 1e6:.1f} MB/s{left}")

    reasons: list[str] = _ask(job, watch)
    return reasons


def _arrived(folder: Path) -> int:
    """Bytes on disk below ``folder``, unfinished files too; a file that goes away meanwhile counts as nothing."""
    found = 0
    for path in folder.rglob("*"):
        try:
            found += min(path.stat().st_size, path.stat().st_blocks * 512) if path.is_file() else 0
        except FileNotFoundError:
            continue
    return found


def _ask(job: Mapping[str, Any], watch: Callable[[], None] = lambda: None) -> Any:
    """Let a child process do one job; its answer is the last line that it prints. Raises WeightsError with the reason as one line."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        child = subprocess.Popen(
            [sys.executable, "-c", CHILD, json.dumps(job)],
            cwd=Path(__file__).resolve().parents[2],
            env=hub_environment(),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
        )
        try:
            while True:
                try:
                    status = child.wait(timeout=1)
                    break
                except subprocess.TimeoutExpired:
                    watch()
        finally:
            if child.poll() is None:
                child.kill()
                child.wait()
        answers, complaints = _lines(out), _lines(err)
    if status == 0 and answers:
        answer = json.loads(answers[-1])
        if "refused" not in answer:
            return answer["answer"]
        reason = answer["refused"]
    else:
        last = complaints[-1].strip()[:300] if complaints else f"exit status {status}"
        reason = f"the hub cannot be reached or broke off: {last}"
    msg = f"{job['repository']}: {reason}"
    raise WeightsError(msg)


def _lines(stream: IO[bytes]) -> list[str]:
    stream.seek(0)
    return [line for line in stream.read().decode("utf-8", "replace").splitlines() if line.strip()]


def child(job: str) -> None:
    """In the child: do one job and print the answer as JSON. What the hub refuses becomes a sentence, anything else a traceback."""
    from huggingface_hub import errors

    given = json.loads(job)
    repository, revision = given["repository"], given["revision"]
    try:
        answer = _list(repository, revision) if given["do"] == "list" else _fetch(given)
    except errors.GatedRepoError:
        refused = "the repository is gated: accept its terms on its page at the hub, set HF_TOKEN to a token of that account, then repeat"
    except errors.RevisionNotFoundError:
        refused = f"it has no revision {revision}; correct models.yaml or the lock file (models pull --update NAME follows the branch)"
    except errors.RepositoryNotFoundError:
        refused = "there is no such repository, or it is private (then set HF_TOKEN to a token that may read it)"
    except errors.RemoteEntryNotFoundError as problem:
        refused = f"a file is gone: {str(problem).splitlines()[-1]}"
    else:
        print(json.dumps({"answer": answer}))  # noqa: T201 - the answer to the parent
        return
    print(json.dumps({"refused": refused}))  # noqa: T201


def _list(repository: str, revision: str) -> dict[str, Any]:
    from huggingface_hub import HfApi

    found = HfApi().model_info(repository, revision=revision, files_metadata=True, timeout=PATIENCE, token=_token())
    files = {s.rfilename: {"bytes": s.size or 0, "sha256": s.lfs.sha256 if s.lfs else ""} for s in found.siblings or ()}
    return {"commit": found.sha, "files": files}


def _fetch(given: Mapping[str, Any]) -> tuple[str, ...]:
    """Fetch the small files, and then, unless they show that the folder may not be loaded, the big ones; returns the reasons."""
    from huggingface_hub import hf_hub_download

    reasons: tuple[str, ...] = ()
    for file in sorted(given["files"], key=_is_big):
        if _is_big(file) and (reasons := reasons or unsafe(Path(given["folder"]), whole=False)):
            break
        hf_hub_download(given["repository"], file, revision=given["revision"], local_dir=given["folder"], token=_token())
    return reasons


def _is_big(file: str) -> bool:
    return PurePosixPath(file).suffix.lower() in BIG


def _token() -> str | bool:
    return hub_token() or False
