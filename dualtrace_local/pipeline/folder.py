"""The run folder: one experiment on disk (design section 9), its manifest, and the fingerprints that guard each stage.

::

    run.json                       what was run, with the fingerprint of every stage and each start
    store/                         the taught store; its ledger is the truth
    sessions.jsonl                 the ledger, exported for reading
    questions.jsonl  gold.jsonl    what a reader may know, and what only judge and report may
    answers/<condition>.jsonl      one answer a line; .hypotheses.jsonl beside it for LongMemEval's own scorer
    verdicts/<condition>.<judge>.jsonl
    failures.jsonl  usage.jsonl    failed items with their raw output; tokens by stage
    report/
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dualtrace_local.errors import RunError
from dualtrace_local.records import Answer, Gold, Question, Source, State, Usage, Verdict, plain

from .files import JsonLines, private_folder, write_json

VERSION = 1


@dataclass(frozen=True)
class KeyedGold:
    """A gold with its evidence as session keys, as it lies in gold.jsonl."""

    gold: Gold
    evidence: tuple[str, ...]


class RunFolder:
    """Reads and writes one run folder. ``say`` gets lines about torn or unreadable lines."""

    def __init__(self, path: Path, say: Callable[[str], None], *, create: bool = False) -> None:
        self.path = path
        self.say = say
        if not create and not (path / "run.json").exists():
            raise RunError(f"{path} is not a run folder (it has no run.json); `dualtrace run DATASET --out {path}` makes one")
        if create:
            for name in ("", "answers", "verdicts", "report"):
                private_folder(path / name)
        self.manifest: dict[str, Any] = self._read_manifest()

    def _read_manifest(self) -> dict[str, Any]:
        file = self.path / "run.json"
        if not file.exists():
            return {"version": VERSION, "secret": secrets.token_hex(16), "fingerprints": {}, "starts": []}
        try:
            manifest: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        except ValueError as problem:
            raise RunError(f"{file} is not readable JSON; restore it or start a new run with another --out") from problem
        if manifest.get("version") != VERSION:
            raise RunError(f"{file} is of version {manifest.get('version')}, this program writes version {VERSION}; use another --out")
        return manifest

    def save(self, **values: Any) -> None:
        """Put values into run.json."""
        self.manifest |= values
        write_json(self.path / "run.json", self.manifest)

    def started(self) -> None:
        """Note a start (the wall clock is used for this alone)."""
        self.save(starts=[*self.manifest["starts"], datetime.now(UTC).isoformat(timespec="seconds")])

    def guard(self, stage: str, parts: dict[str, Any]) -> None:
        """Remember a stage's fingerprint, or refuse when it changed. Raises RunError naming what changed."""
        earlier = self.manifest["fingerprints"].get(stage)
        parts = json.loads(json.dumps(parts))
        if earlier is None:
            self.save(fingerprints={**self.manifest["fingerprints"], stage: parts})
        elif earlier != parts:
            changed = ", ".join(sorted(k for k in earlier.keys() | parts.keys() if earlier.get(k) != parts.get(k)))
            raise RunError(f"{self.path.name}: {stage} was run with another {changed}; use another --out for a new experiment")

    @property
    def secret(self) -> bytes:
        """Keys the marks around what the judge compares; private to this run."""
        return bytes.fromhex(self.manifest["secret"])

    # ------------------------------------------------------------------------------------------------- lines

    def lines(self, name: str) -> JsonLines:
        """The append-only file called ``name``."""
        return JsonLines(self.path / name, self.say)

    def write_questions(self, questions: Iterable[Question], golds: Iterable[KeyedGold]) -> None:
        """Write what is asked and, apart from it, what is right."""
        for name, rows in (
            ("questions.jsonl", [plain(q) for q in questions]),
            ("gold.jsonl", [{**plain(g.gold), "evidence_keys": list(g.evidence)} for g in golds]),
        ):
            (self.path / name).unlink(missing_ok=True)
            self.lines(name).append(rows)

    def questions(self) -> tuple[Question, ...]:
        """The questions in dataset order."""
        return tuple(
            Question(q["id"], q["text"], datetime.fromisoformat(q["date"]) if q["date"] else None, tuple(q["haystack"]))
            for q in self.lines("questions.jsonl").read()
        )

    def golds(self) -> tuple[KeyedGold, ...]:
        """The golds in dataset order."""
        return tuple(
            KeyedGold(
                Gold(
                    g["question_id"],
                    g["answer"],
                    g["kind"],
                    g["abstention"],
                    tuple(g["evidence"]),
                    tuple((s, t) for s, t in g["evidence_turns"]),
                ),
                tuple(g["evidence_keys"]),
            )
            for g in self.lines("gold.jsonl").read()
        )

    def answers(self, condition: str) -> tuple[Answer, ...]:
        """The answers of a condition, the first of each question."""
        found: dict[str, Answer] = {}
        for read in self.lines(f"answers/{condition}.jsonl").read():
            line = {k: v for k, v in read.items() if k != "confidence"}
            sources = tuple(Source(**s) for s in line.pop("sources"))
            answer = Answer(
                **{
                    **line,
                    "state": State(line["state"]),
                    "delivered": tuple(line["delivered"]),
                    "delivered_sessions": tuple(line["delivered_sessions"]),
                },
                sources=sources,
            )
            found.setdefault(answer.question_id, answer)
        return tuple(found.values())

    def add_answers(self, condition: str, answers: Iterable[Answer]) -> None:
        """Append answers, and their plain form for LongMemEval's evaluate_qa.py."""
        batch = list(answers)
        self.lines(f"answers/{condition}.jsonl").append({**plain(a), "confidence": a.confidence} for a in batch)
        self.lines(f"answers/{condition}.hypotheses.jsonl").append({"question_id": a.question_id, "hypothesis": a.text} for a in batch)

    def verdicts(self, condition: str, judge: str) -> tuple[Verdict, ...]:
        """The verdicts of a condition by one judge; the last of each question, so that a missing one can be given later."""
        found: dict[str, Verdict] = {}
        for line in self.lines(f"verdicts/{condition}.{judge}.jsonl").read():
            verdict = Verdict(**line)
            found[verdict.question_id] = verdict
        return tuple(found.values())

    def add_usage(self, stage: str, condition: str, usage: dict[str, Usage], seconds: float) -> None:
        """Note what one start of a stage used."""
        if usage or seconds:
            self.lines("usage.jsonl").append(
                [{"stage": stage, "condition": condition, "seconds": round(seconds, 2), "usage": plain(usage)}]
            )

    def usage(self, stage: str) -> dict[str, dict[str, Usage]]:
        """Usage of a stage over all starts: condition -> kind of request -> sum."""
        found: dict[str, dict[str, Usage]] = {}
        for line in self.lines("usage.jsonl").read():
            if line["stage"] == stage:
                kinds = found.setdefault(line["condition"], {})
                for kind, spent in line["usage"].items():
                    kinds[kind] = kinds.get(kind, Usage()) + Usage(**spent)
        return found

    def seconds(self) -> dict[str, float]:
        """Wall seconds by stage over all starts."""
        found: dict[str, float] = {}
        for line in self.lines("usage.jsonl").read():
            found[line["stage"]] = round(found.get(line["stage"], 0.0) + line["seconds"], 2)
        return found
