"""The run folder: one experiment on disk (design section 9), its manifest, and the fingerprints that guard each stage.

::

    run.json                       what was run, with the fingerprint of every stage and each start
    store/                         the taught store; its ledger is the truth
    sessions.jsonl                 the ledger, exported for reading, without the user's words
    questions.jsonl  gold.jsonl    what a reader may know, and what only judge and report may
    answers/<condition>.jsonl      one answer a line; .hypotheses.jsonl beside it, made from it for LongMemEval's own scorer
    verdicts/<condition>.<judge>.jsonl
    failures.jsonl  usage.jsonl    failed items with their raw output; tokens by stage
    report/
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from dualtrace_local.corpus import file_name
from dualtrace_local.errors import RunError
from dualtrace_local.records import Answer, Gold, Question, Source, State, Usage, Verdict, plain
from dualtrace_local.store.durable import LOCK_FILE, WriterLock

from .files import JsonLines, private_folder, write_json

VERSION = 1
FOLDERS = ("answers", "verdicts", "report")


@dataclass(frozen=True)
class KeyedGold:
    """A gold with its evidence as session keys, as it lies in gold.jsonl."""

    gold: Gold
    evidence: tuple[str, ...]


def tally(total: dict[str, Usage], more: dict[str, Usage]) -> None:
    """Add what was used, by kind of request, to ``total``."""
    for kind, spent in more.items():
        total[kind] = total.get(kind, Usage()) + spent


class RunFolder:
    """Reads one run folder, and writes it when it was opened by ``written``.

    ``say`` gets each line about torn or unreadable lines once, however often a file is read. Raises RunError for a folder that holds
    no run.
    """

    def __init__(self, path: Path, say: Callable[[str], None], *, new: bool = False) -> None:
        self.path = path
        self.say = cache(say)
        if not new and not (path / "run.json").is_file():
            raise RunError(f"{path} is not a run folder (it has no run.json); `dualtrace run DATASET --out {path}` makes one")
        self.manifest: dict[str, Any] = self._read_manifest()

    @classmethod
    @contextmanager
    def written(cls, path: Path, say: Callable[[str], None], *, create: bool = False) -> Iterator[RunFolder]:
        """The run folder for writing; ``create`` makes one where there is none.

        Raises StoreBusyError while another process writes it, RunError for a folder that holds something else.
        """
        if create:
            _claim(path)
        else:
            cls(path, say)
        lock = WriterLock(path)
        try:
            yield cls(path, say, new=create)
        finally:
            lock.release()

    def _read_manifest(self) -> dict[str, Any]:
        file = self.path / "run.json"
        if not file.exists():
            return {"version": VERSION, "secret": secrets.token_hex(16), "fingerprints": {}, "starts": []}
        try:
            manifest = json.loads(file.read_text(encoding="utf-8"))
        except ValueError as problem:
            raise RunError(f"{file} is not readable JSON; restore it or start a new run with another --out") from problem
        version = manifest.get("version") if isinstance(manifest, dict) else None
        if not isinstance(manifest, dict) or version != VERSION:
            raise RunError(f"{file} is of version {version}, this program writes version {VERSION}; use another --out")
        return manifest

    def save(self, **values: Any) -> None:
        """Put values into run.json."""
        self.manifest |= values
        write_json(self.path / "run.json", self.manifest)

    def started(self) -> None:
        """Note a start (the wall clock is used for this alone)."""
        self.save(starts=[*self.manifest["starts"], datetime.now(UTC).isoformat(timespec="seconds")])

    def check(self, stage: str, parts: dict[str, Any]) -> None:
        """Refuse a stage that was run with another fingerprint. Raises RunError naming what changed."""
        earlier = self.manifest["fingerprints"].get(stage)
        if earlier is not None and (changed := "; ".join(_changes(earlier, json.loads(json.dumps(parts))))):
            raise RunError(f"{self.path}: {stage} was run with another {changed}; use another --out for a new experiment")

    def guard(self, stage: str, parts: dict[str, Any]) -> None:
        """``check``, and remember the fingerprint."""
        self.check(stage, parts)
        self.save(fingerprints={**self.manifest["fingerprints"], stage: parts})

    @property
    def secret(self) -> bytes:
        """Keys the marks around what the judge compares; private to this run."""
        return bytes.fromhex(self.manifest["secret"])

    # ------------------------------------------------------------------------------------------------- lines

    def lines(self, name: str) -> JsonLines:
        """The file of JSON lines called ``name``."""
        return JsonLines(self.path / name, self.say)

    def answer_lines(self, condition: str) -> JsonLines:
        """The answers of a condition, whose name comes from a file and is no path."""
        return self.lines(f"answers/{file_name(condition, dots=False)}.jsonl")

    def verdict_lines(self, condition: str, judge: str) -> JsonLines:
        """The verdicts of a judge on a condition's answers."""
        return self.lines(f"verdicts/{file_name(condition, dots=False)}.{file_name(judge)}.jsonl")

    def write_questions(self, questions: Iterable[Question], golds: Iterable[KeyedGold]) -> None:
        """Write what is asked and, apart from it, what is right."""
        self.lines("questions.jsonl").replace(plain(q) for q in questions)
        self.lines("gold.jsonl").replace({**plain(g.gold), "evidence_keys": list(g.evidence)} for g in golds)

    def questions(self) -> tuple[Question, ...]:
        """The questions in dataset order."""
        return tuple(self.lines("questions.jsonl").records(_question))

    def golds(self) -> tuple[KeyedGold, ...]:
        """The golds in dataset order."""
        return tuple(self.lines("gold.jsonl").records(_gold))

    def answers(self, condition: str) -> tuple[Answer, ...]:
        """The answers of a condition in file order, without what the reader saw; of several to one question the first counts."""
        return tuple(self.answer_lines(condition).records(_answer))

    def add_answers(self, condition: str, answers: Iterable[Answer]) -> None:
        """Append answers."""
        self.answer_lines(condition).append({**plain(a), "confidence": a.confidence} for a in answers)

    def seen(self, condition: str) -> dict[str, str]:
        """What the reader saw for each answer of a condition, by question; of several answers to one the first counts."""
        found: dict[str, str] = {}
        for key, text in self.answer_lines(condition).records(lambda line: (line["question_id"], line.get("seen", ""))):
            found.setdefault(key, text)
        return found

    def export_hypotheses(self, condition: str) -> None:
        """Write the answers of a condition in the plain form that LongMemEval's evaluate_qa.py reads, each question once."""
        first: dict[str, str] = {}
        for answer in self.answers(condition):
            first.setdefault(answer.question_id, answer.text)
        rows = ({"question_id": q, "hypothesis": text} for q, text in first.items())
        self.lines(f"answers/{file_name(condition, dots=False)}.hypotheses.jsonl").replace(rows)

    def verdicts(self, condition: str, judge: str) -> tuple[Verdict, ...]:
        """The verdicts of a condition by one judge; the last of each question, so that a missing one can be given later."""
        return tuple({v.question_id: v for v in self.verdict_lines(condition, judge).records(lambda line: Verdict(**line))}.values())

    def add_usage(self, stage: str, condition: str, usage: dict[str, Usage], seconds: float) -> None:
        """Note what a stage used since the last note."""
        if usage or seconds:
            self.lines("usage.jsonl").append(
                [{"stage": stage, "condition": condition, "seconds": round(seconds, 3), "usage": plain(usage)}]
            )

    def usage(self, stage: str) -> dict[str, dict[str, Usage]]:
        """Usage of a stage over all starts: condition -> kind of request -> sum."""
        found: dict[str, dict[str, Usage]] = {}
        for line in self.lines("usage.jsonl").read():
            if line["stage"] == stage:
                tally(found.setdefault(line["condition"], {}), {kind: Usage(**spent) for kind, spent in line["usage"].items()})
        return found

    def seconds(self) -> dict[str, float]:
        """Wall seconds by stage over all starts."""
        found: dict[str, float] = {}
        for line in self.lines("usage.jsonl").read():
            found[line["stage"]] = found.get(line["stage"], 0.0) + line["seconds"]
        return {stage: round(seconds, 2) for stage, seconds in found.items()}


class Meter:
    """Notes what a stage uses, a line a batch, so that a kill loses no more than the batch."""

    def __init__(self, folder: RunFolder, stage: str, condition: str = "") -> None:
        self._folder, self._stage, self._condition = folder, stage, condition
        self._since = time.monotonic()

    def note(self, usage: dict[str, Usage]) -> None:
        """Write what was used since the last note, and the seconds."""
        since, self._since = self._since, time.monotonic()
        self._folder.add_usage(self._stage, self._condition, usage, self._since - since)


def _claim(path: Path) -> None:
    """Make the folder, or accept an empty one (or one whose making was cut off). Other people's folders are refused untouched."""
    ours = {"run.json", ".run.json.new", LOCK_FILE, *FOLDERS}
    if path.is_dir() and not (path / "run.json").is_file() and (other := sorted(f.name for f in path.iterdir() if f.name not in ours)):
        raise RunError(f"{path} holds other files ({other[0]} ...); give --out a folder that is empty or not there yet")
    for name in ("", *FOLDERS):
        private_folder(path / name)


def _changes(earlier: dict[str, Any], now: dict[str, Any], within: str = "") -> Iterator[str]:
    """What differs, by its full name, with both values."""
    for name in sorted(earlier.keys() | now.keys()):
        before, after = earlier.get(name), now.get(name)
        if isinstance(before, dict) and isinstance(after, dict):
            yield from _changes(before, after, f"{within}{name}.")
        elif before != after:
            yield f"{within}{name} ({str(before)[:40]}, now {str(after)[:40]})"


def _question(line: dict[str, Any]) -> Question:
    return Question(line["id"], line["text"], datetime.fromisoformat(line["date"]) if line["date"] else None, tuple(line["haystack"]))


def _gold(line: dict[str, Any]) -> KeyedGold:
    evidence = tuple(line.pop("evidence_keys"))
    turns = tuple((session, turn) for session, turn in line["evidence_turns"])
    return KeyedGold(Gold(**{**line, "evidence": tuple(line["evidence"]), "evidence_turns": turns}), evidence)


def _answer(line: dict[str, Any]) -> Answer:
    tuples = {name: tuple(line[name]) for name in ("delivered", "delivered_sessions")} | {"ranked": tuple(line.get("ranked", ()))}
    made = {**line, **tuples, "state": State(line["state"]), "sources": tuple(Source(**s) for s in line["sources"]), "seen": ""}
    made.pop("confidence", None)
    return Answer(**made)
