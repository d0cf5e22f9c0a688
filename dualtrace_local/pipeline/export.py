"""Taking everything away as files, and bringing it back: an archive of JSON lines, and the paper's Markdown for reading."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from dualtrace_local.config import BATCH
from dualtrace_local.corpus import file_name
from dualtrace_local.errors import DataError
from dualtrace_local.records import Memory, Scope
from dualtrace_local.store import Bundle, Store, row_of

from .files import private_folder, private_lines, write_text
from .parts import Parts

ARCHIVE = "dualtrace"
VERSION = 1
"""Version of the archive's form; any other is refused."""

SESSIONS_FIRST = ("memories", "versions", "rounds")


@dataclass(frozen=True)
class Exported:
    """What was written: numbers of sessions, memories and files."""

    sessions: int
    memories: int
    files: int


@dataclass(frozen=True)
class Imported:
    """Counts of sessions: ``read`` = ``added`` + ``unchanged`` + ``forgotten`` + ``failed``."""

    read: int = 0
    added: int = 0
    unchanged: int = 0
    forgotten: int = 0
    failed: int = 0


def scopes_of(store: Store) -> list[Scope]:
    """Every scope that the store holds something of, by name."""
    return sorted({row.scope for row in store.sessions()}, key=lambda s: (s.user, s.project))


# --------------------------------------------------------------------------------------------------------- archive


def write_archive(store: Store, scopes: Sequence[Scope], target: Path, made_by: str) -> Exported:
    """Everything of ``scopes`` in one file: sessions, memories with their history, retracted ones, rounds, what was forgotten; no vectors.

    Raises DataError when ``target`` is there already.
    """
    if target.exists():
        raise DataError(f"{target} is there already; give the archive another name")
    counts = {"sessions": 0, "memories": 0}

    def lines() -> Iterator[dict[str, Any]]:
        yield {"archive": ARCHIVE, "version": VERSION, "made_by": made_by}
        for scope in scopes:
            for line in store.archived(scope):
                if line["table"] in counts:
                    counts[line["table"]] += 1
                yield line

    private_lines(target, lines())
    return Exported(counts["sessions"], counts["memories"], 1)


def read_archive(path: Path, target: Path, parts: Parts, *, again: bool) -> Imported:
    """Put what an archive holds into a store, made when it is not there. Ids, dates and history are kept, vectors are made anew.

    Sessions that the store has stay, with corrections of the archive that go on from theirs; what the store forgot stays away unless
    ``again``. A session with a bad line is one line for the user and is left out. Raises DataError for a file that is no archive.
    """
    say = parts.listener.say
    counts = dict.fromkeys(("read", "added", "unchanged", "forgotten", "failed"), 0)
    stacks: dict[str, list[str]] = {}
    gone: list[dict[str, Any]] = []
    _check_head(path)
    with Store.open(target, parts.embedder, write=True, create=True, say=say) as store:
        known, forgotten = set(store.known()), store.forgotten()
        batch: list[Bundle] = []

        def keep() -> None:
            if again:
                store.allow_again([b.key for b in batch])
            counts["added"] += store.restore(batch)
            batch.clear()

        for bundle, problem in _bundles(path, stacks, gone):
            counts["read"] += 1
            if bundle is None or problem:
                counts["failed"] += 1
                say(problem)
                continue
            if bundle.key in known:
                counts["unchanged"] += 1
            elif bundle.key in forgotten and not again:
                counts["forgotten"] += 1
                continue
            known.add(bundle.key)
            batch.append(bundle)
            if len(batch) == BATCH:
                keep()
        keep()
        store.set_haystacks({q: keys for q, keys in stacks.items() if not store.haystack(q)})
        store.remember_forgotten(gone)
    return Imported(**counts)


def _check_head(path: Path) -> None:
    try:
        with path.open(encoding="utf-8") as stream:
            head = json.loads(stream.readline())
    except (OSError, ValueError) as problem:
        raise DataError(f"{path} cannot be read as an archive; `dualtrace memory export` writes one") from problem
    if not isinstance(head, dict) or head.get("archive") != ARCHIVE:
        raise DataError(f"{path} is not an archive of memories; `dualtrace memory export` writes one, `dualtrace teach` reads chats")
    if head.get("version") != VERSION:
        raise DataError(f"{path} is an archive of version {head.get('version')}, this program reads {VERSION}; update dualtrace")


def _bundles(path: Path, stacks: dict[str, list[str]], gone: list[dict[str, Any]]) -> Iterator[tuple[Bundle | None, str]]:
    """One session after the other, with what is wrong with it; haystacks and forgotten keys are put into the given places."""
    bundle: Bundle | None = None
    problem = ""
    with path.open("rb") as stream:
        for number, raw in enumerate(stream, start=1):
            if number == 1 or not raw.strip():
                continue
            try:
                line = json.loads(raw)
                table = line["table"]
                if table == "sessions":
                    if bundle or problem:
                        yield bundle, problem
                    bundle, problem = None, ""
                    bundle = Bundle(row_of(line))
                elif table in SESSIONS_FIRST:
                    if bundle is not None:
                        bundle.parts[table].append(row_of(line))
                elif table == "haystacks":
                    stacks.setdefault(str(line["question_id"]), []).extend(str(key) for key in line["session_keys"])
                else:
                    gone.append(row_of(line))
            except (DataError, KeyError, TypeError, ValueError) as wrong:
                what = str(wrong) if isinstance(wrong, DataError) else "not a whole line of an archive"
                problem = problem or f"{path.name}:{number}: {what}; this session is left out"
    if bundle or problem:
        yield bundle, problem


# -------------------------------------------------------------------------------------------------------- Markdown


def write_markdown(memories: Sequence[Memory], target: Path) -> Exported:
    """The memories as they are now, a file a trace, in ``facts/`` and ``scenes/`` of an empty or new folder.

    Raises DataError for a folder that holds something.
    """
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise DataError(f"{target} is not an empty folder; give a new one")
    for name in ("", "facts", "scenes"):
        private_folder(target / name)
    taken: dict[str, int] = {}
    files = 0
    for memory in memories:
        taken[memory.anchor] = taken.get(memory.anchor, 0) + 1
        name = file_name(memory.anchor) + ("" if taken[memory.anchor] == 1 else f"~{memory.id[:12]}")
        write_text(target / "facts" / f"{name}.md", fact_page(memory, name))
        files += 1
        if memory.scene:
            write_text(target / "scenes" / f"{name}.md", scene_page(memory, name))
            files += 1
    return Exported(len({m.session_key for m in memories}), len(memories), files)


def fact_page(memory: Memory, name: str) -> str:
    """The fact trace as the paper has it."""
    head = _about(memory) | ({"linked_scene": f"scenes/{name}.md"} if memory.scene else {})
    listed = "".join(f"- {' '.join(c.text.split())}\n" for c in memory.components)
    return f"[FACT:{memory.anchor}]\n{_frontmatter(head)}Components:\n{listed}"


def scene_page(memory: Memory, name: str) -> str:
    """The scene trace as the paper has it."""
    return f"[SCENE:{memory.anchor}]\n{_frontmatter(_about(memory) | {'linked_fact': f'facts/{name}.md'})}{memory.scene}\n"


def _about(memory: Memory) -> dict[str, str]:
    return {
        "type": memory.info_type,
        "category": memory.category,
        "confidence": memory.confidence,
        "evidence_score": str(memory.evidence.total),
        "timestamp": f"{memory.date:%Y-%m-%d}" if memory.date else "",
        "id": memory.id,
    }


def _frontmatter(values: dict[str, str]) -> str:
    """YAML between lines of hyphens, every value a quoted string on one line."""
    lines = (f"{name}: {_quoted(value)}\n" for name, value in values.items())
    return f"---\n{''.join(lines)}---\n"


def _quoted(value: str) -> str:
    quoted: str = yaml.safe_dump(value, default_style='"', allow_unicode=True, width=2**31)
    return quoted.rstrip("\n")
