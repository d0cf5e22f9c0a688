"""Forgetting: what goes with what, the copies beside the store, the removal, and the proof that it is gone."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from dualtrace_local.errors import ConfigError, StoreError
from dualtrace_local.records import Memory, Round, Scope
from dualtrace_local.store import LedgerRow, Needles, Store, search_files, seen
from dualtrace_local.store.durable import LOCK_FILE

from .files import JsonLines
from .folder import RunFolder

OUT_OF_REACH = (
    "the source files that were taught (delete them yourself), exports, backups and copies made elsewhere",
    "snapshots of the file system, swap, and blocks that a flash disk keeps after a file is deleted",
    "hashes of what was forgotten, which keep it from coming back; somebody who guesses a whole session word for word can test the guess",
)
"""What no program of ours can remove."""

KINDS = ("text", "id", "vector")

KEY_PART = 8
"""Characters of a session's key that name it."""


@dataclass(frozen=True)
class Which:
    """What to forget; exactly one is given.

    ``session`` is the id it had in its source or the beginning of its key, ``source`` the name of a taught file, ``words`` a text that
    stands in a memory or a verbatim round, whatever its case.
    """

    memory: str = ""
    session: str = ""
    source: str = ""
    anchor: str = ""
    words: str = ""
    everything: bool = False


@dataclass(frozen=True)
class Plan:
    """What will go: whole ``sessions``, and every memory and round, theirs included.

    ``alike`` are ids of memories that were not named but rest on the same words.
    """

    sessions: tuple[LedgerRow, ...]
    memories: tuple[Memory, ...]
    rounds: tuple[Round, ...]
    alike: tuple[str, ...] = ()
    words: str = ""
    """The text by which they were named, if they were."""
    parts_of: tuple[str, ...] = ()
    """Keys of sessions of which only parts go; their verbatim rounds go all."""

    @property
    def keys(self) -> frozenset[str]:
        """Of the sessions that are touched."""
        return frozenset((*(row.key for row in self.sessions), *self.parts_of))


@dataclass(frozen=True)
class Sought:
    """One kind of thing that was looked for in the bytes of all files: how many, found before (the control) and left after."""

    looked_for: int
    before: int
    left: int


@dataclass(frozen=True)
class Forgotten:
    """What was done, and the proof. ``cleaned`` are lines or files removed beside the tables, by file; ``where`` still holds something."""

    plan: Plan
    proof: dict[str, Sought]
    rows_left: int
    files: int
    cleaned: dict[str, int] = field(default_factory=dict)
    where: tuple[str, ...] = ()

    @property
    def gone(self) -> bool:
        """Nothing is left, and the control shows that it would have been seen."""
        return not self.where and not self.rows_left

    @property
    def blind(self) -> tuple[str, ...]:
        """Kinds of which nothing was seen before either, so that not seeing them after proves nothing."""
        return tuple(kind for kind, sought in self.proof.items() if sought.looked_for and not sought.before)


def planned(store: Store, scope: Scope, which: Which) -> Plan:
    """What goes when this is forgotten, in this scope alone. Raises ConfigError for an unclear order, StoreError when nothing fits it."""
    given = [name for name in ("memory", "session", "source", "anchor", "words") if getattr(which, name)] + [
        "everything"
    ] * which.everything
    if len(given) != 1:
        raise ConfigError("say what to forget by one of: ID, --session, --source, --anchor, --search, --everything")
    ledger, memories, rounds = store.sessions(scope), [*store.memories(scope), *store.retracted(scope)], store.rounds(scope)
    said = _texts(store, memories)
    if which.memory:
        named = [store.memory(which.memory, scope)]
        return _with_company(ledger, memories, rounds, said, named, ())
    if which.anchor:
        return _with_company(ledger, memories, rounds, said, [m for m in memories if m.anchor == which.anchor], ())
    if which.words:
        wanted = _folded(which.words)
        held = [m for m in memories if any(wanted in _folded(text) for text in said[m.id])]
        heard = [r for r in rounds if wanted in _folded(r.text)]
        return replace(_with_company(ledger, memories, rounds, said, held, heard), words=wanted)
    chosen = [row for row in ledger if which.everything or _is_meant(row, which)]
    keys = {row.key for row in chosen}
    if not keys:
        raise StoreError("nothing fits; `dualtrace memory list` shows what there is, --scope says whose")
    return Plan(tuple(chosen), _of(memories, keys), tuple(r for r in rounds if r.session_key in keys))


def _is_meant(row: LedgerRow, which: Which) -> bool:
    if which.source:
        return Path(which.source).name in Path(row.source).parts  # an archive, or a file in it
    return which.session == row.external_id or (len(which.session) >= KEY_PART and row.key.startswith(which.session))


def _texts(store: Store, memories: Sequence[Memory]) -> dict[str, set[str]]:
    """All that a memory says or ever said, by its id."""
    said: dict[str, set[str]] = {m.id: set() for m in memories}
    for m in (*memories, *(change.memory for change in store.history(memories))):
        said[m.id] |= {m.anchor, m.scene, m.fact, *(text for c in m.components for text in (c.text, c.quote))}
    return said


def _with_company(
    ledger: Sequence[LedgerRow],
    memories: Sequence[Memory],
    rounds: Sequence[Round],
    said: dict[str, set[str]],
    named: Sequence[Memory],
    heard: Sequence[Round],
) -> Plan:
    """Single memories, what rests on the same words, and all rounds of their sessions; a session without any memory left goes whole."""
    if not named and not heard:
        raise StoreError("nothing fits; `dualtrace memory list` shows what there is, --scope says whose")
    going = {m.id: m for m in named}
    touched = {m.session_key for m in named} | {r.session_key for r in heard}
    while more := [m for m in memories if m.session_key in touched and m.id not in going and _alike(m, going.values(), said)]:
        going |= {m.id: m for m in more}
    stay = {m.session_key for m in memories if m.id not in going}
    whole = tuple(row for row in ledger if row.key in touched - stay)
    named_ids = {m.id for m in named}
    return Plan(
        whole,
        tuple(going.values()),
        tuple(r for r in rounds if r.session_key in touched),
        tuple(i for i in going if i not in named_ids),
        parts_of=tuple(sorted(touched & stay)),
    )


def _alike(memory: Memory, going: Iterable[Memory], said: dict[str, set[str]]) -> bool:
    """Whether a sentence or quote of ``memory`` is in one of the same session that goes, or the other way round."""
    own = {_folded(t) for t in said[memory.id] if " " in t}
    theirs = {_folded(t) for g in going if g.session_key == memory.session_key for t in said[g.id] if " " in t}
    return any(a in b or b in a for a in own for b in theirs)


def _of(memories: Sequence[Memory], keys: Collection[str]) -> tuple[Memory, ...]:
    return tuple(m for m in memories if m.session_key in keys)


def _folded(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


# -------------------------------------------------------------------------------------------------------- removing


def forget(path: Path, scope: Scope, which: Which, agreed: Callable[[Plan], bool], say: Callable[[str], None]) -> Forgotten | None:
    """Remove what ``which`` names when ``agreed`` says so; None when it does not.

    The copies beside the tables go first: the tables themselves go on by themselves when this is cut off.
    """
    root = path.parent if (path.parent / "run.json").is_file() else path
    with ExitStack() as held:
        if root != path:
            held.enter_context(RunFolder.written(root, say))
        store = held.enter_context(Store.open(path, None, write=True, say=say))
        plan = planned(store, scope, which)
        if not agreed(plan):
            return None
        parts = (plan.sessions, plan.memories, plan.rounds)
        needles = store.needles(*parts)
        before = {n for there in search_files(root, needles, but=(LOCK_FILE,)).values() for n in there}
        cleaned = _without_raw(path / "failures.jsonl", plan, say)
        if root != path:
            cleaned |= _clean_run(root, plan, needles, say)
        store.forget(*parts)
        left = search_files(root, needles, but=(LOCK_FILE,))
        rows_left = store.rows_left(*parts)
    after = {n for there in left.values() for n in there}
    proof = {kind: Sought(*(sum(n.kind == kind for n in some) for some in (needles, before, after))) for kind in KINDS}
    files = sum(p.is_file() for p in root.rglob("*"))
    return Forgotten(plan, proof, rows_left, files, cleaned, tuple(str(p.relative_to(root)) for p in left))


def _clean_lines(
    file: Path, plan: Plan, needles: Needles, say: Callable[[str], None], also: Callable[[dict[str, Any]], bool] = lambda _: False
) -> dict[str, int]:
    """Drop the lines of a file that hold something of what goes, or that ``also`` names; how many, by the file's name."""
    if not file.is_file():
        return {}
    lines = JsonLines(file, say)
    found = list(lines.read())
    kept = [line for line in found if not also(line) and not _holds(line, plan, needles)]
    if len(kept) == len(found):
        return {}
    lines.replace(kept)
    return {file.name: len(found) - len(kept)}


def _without_raw(file: Path, plan: Plan, say: Callable[[str], None]) -> dict[str, int]:
    """Drop the failures of what goes, and of all others what the model wrote: of a session that failed nobody can tell what it says."""
    if not file.is_file():
        return {}
    lines = JsonLines(file, say)
    found = list(lines.read())
    kept = [line | {"raw": ""} for line in found if line.get("key") not in plan.keys]
    if kept == found:
        return {}
    lines.replace(kept)
    return {file.name: sum(before not in kept for before in found)}


def _holds(line: dict[str, Any], plan: Plan, needles: Needles) -> bool:
    text = json.dumps(line, ensure_ascii=False)
    ids = (*plan.keys, *(m.id for m in plan.memories), *(r.id for r in plan.rounds))
    if plan.words and plan.words in _folded(text):
        return True
    return any(i in text for i in ids) or bool(seen(text.encode("utf-8", "backslashreplace"), needles))


def _clean_run(root: Path, plan: Plan, needles: Needles, say: Callable[[str], None]) -> dict[str, int]:
    """The files of a run: answers that saw something of it with their verdicts, questions about it, the ledger's copy, reports.

    Questions that could only see it among other sessions stay, without its key.
    """
    cleaned: dict[str, int] = {}
    whole = {row.key for row in plan.sessions}
    ids: set[str] = set()
    for name in ("gold.jsonl", *sorted(f"answers/{f.name}" for f in (root / "answers").glob("*.jsonl") if ".hypotheses." not in f.name)):
        for line in JsonLines(root / name, say).read():
            bare = {k: v for k, v in line.items() if k != "haystack"}
            if _holds(bare, plan, needles):
                ids.add(line["question_id"])
    asked = lambda line: line.get("question_id", line.get("id")) in ids  # noqa: E731 - one rule for all files
    questions = JsonLines(root / "questions.jsonl", say)
    questions.replace({**q, "haystack": [k for k in q["haystack"] if k not in whole]} for q in list(questions.read()))
    cleaned |= _without_raw(root / "failures.jsonl", plan, say)
    for file in (*root.glob("*.jsonl"), *root.glob("answers/*.jsonl"), *root.glob("verdicts/*.jsonl")):
        cleaned |= _clean_lines(file, plan, needles, say, asked) if file.name != "failures.jsonl" else {}
    for file in (root / "report").glob("*"):
        file.unlink()
        cleaned[f"report/{file.name}"] = 1
    return cleaned
