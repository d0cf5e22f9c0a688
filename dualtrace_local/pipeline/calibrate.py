"""How far a judge can be believed: its verdicts beside labelled answers, planted answers that must not pass, and others' verdicts.

A line of a labels file holds ``question_id``, ``question_type``, ``question``, ``answer`` (the right one), ``hypothesis`` (the answer that
was judged) and ``label`` (true or false); ``judge_model`` may say who gave the label.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from dualtrace_local.config import Role, cache_folder
from dualtrace_local.corpus import file_digest, file_name
from dualtrace_local.corpus.longmemeval import NO_ANSWER
from dualtrace_local.engines.driver import Job
from dualtrace_local.errors import DataError
from dualtrace_local.grounding import numbers, stems
from dualtrace_local.judge import judge, shaped_by
from dualtrace_local.records import ABSTENTION, Answer, Done, Gold, State, Verdict, digest_of, plain
from dualtrace_local.report.details import Agreed, Calibration, ProbeRate
from dualtrace_local.report.judged import IMPORTED
from dualtrace_local.report.records import OVERALL
from dualtrace_local.stats import agree, kappa, wilson

from .files import private_folder, write_json
from .folder import RunFolder
from .parts import Parts, versions

M = TypeVar("M", bound=BaseModel)

Split = Literal["dev", "held", "all"]

FOLDER = "calibration"
"""Where results are kept: in the cache, or in a run folder."""

MARK = b"calibration"
"""Keys the marks around what the judge compares; there is nothing to protect here, and every calibration sends the same prompts."""


class _Line(BaseModel):
    """One labelled answer, as the file has it; other keys are not looked at."""

    model_config = ConfigDict(strict=True, frozen=True)
    question_id: str = Field(min_length=1)
    question_type: str
    question: str
    answer: Any
    hypothesis: str
    label: bool
    judge_model: str = ""


@dataclass(frozen=True)
class Label:
    """A labelled answer. ``correct`` is the label, ``by`` who gave it."""

    gold: Gold
    question: str
    given: str
    correct: bool
    by: str = ""


@dataclass(frozen=True)
class Labels:
    """A labels file: its readable lines in one split, and a line for each that is not readable."""

    path: Path
    split: Split
    rows: tuple[Label, ...]
    rejected: tuple[str, ...] = ()


def half(question_id: str) -> Literal["dev", "held"]:
    """Which half a question is in, by a hash of its id: the same in every file.

    A question and its twin that cannot be answered are in one half.
    """
    return "dev" if int(digest_of("half", question_id.removesuffix(NO_ANSWER), length=8), 16) % 2 == 0 else "held"


def read_labels(path: Path, split: Split = "all") -> Labels:
    """The labels in ``path``. Raises DataError when it cannot be read or holds none of the split."""
    rows: list[Label] = []
    rejected: list[str] = []
    for number, line in _lines(path):
        found = _parsed(_Line, line)
        if isinstance(found, str):
            rejected.append(f"{path.name}:{number}: {found}; the line is not counted")
        elif split in ("all", half(found.question_id)):
            gold = Gold(found.question_id, found.answer, found.question_type, found.question_id.endswith(NO_ANSWER))
            rows.append(Label(gold, found.question, found.hypothesis, found.label, found.judge_model))
    if not rows:
        why = f" ({rejected[0]})" if rejected else ""
        raise DataError(f"{path.name} holds no labelled answer{'' if split == 'all' else f' of the half {split}'}{why}")
    return Labels(path, split, tuple(rows), tuple(rejected))


# ---------------------------------------------------------------------------------------------------------- probes


@dataclass(frozen=True)
class Probe:
    """A planted answer to a row's question that no judge may let pass."""

    name: str
    row: Label
    text: str


def probes(rows: Sequence[Label]) -> Iterator[Probe]:
    """For each row: another row's right answer, a vague one made of the question's own words, and, where there is an answer, an abstention.

    The foreign answer is of the same kind where there is one that shares no word with the right answer, else of any kind; a row for
    which there is none, and a second row of one question, get no probe.
    """
    seen: set[str] = set()
    for place, row in enumerate(rows):
        if row.gold.question_id in seen:
            continue
        seen.add(row.gold.question_id)
        if foreign := _foreign(rows, place):
            yield Probe("wrong", row, foreign)
        topic = " ".join(dict.fromkeys(w.strip("?!.,;:'\"") for w in row.question.split() if stems(w)))
        yield Probe("vague", row, f"You told me some things about that ({topic}), and it mattered to you at the time.")
        if not row.gold.abstention:
            yield Probe("abstention", row, ABSTENTION)


def _foreign(rows: Sequence[Label], place: int) -> str:
    """The next row's right answer that can be none here: it has content words, none of them ours, and none of its numbers is within one."""
    row = rows[place]
    own, values = stems(row.gold.answer_text), _values(row.gold.answer_text)

    def other(text: str) -> bool:
        words = stems(text)
        return bool(words) and not own & words and not _close(values, _values(text))

    others = [r for r in (*rows[place + 1 :], *rows[:place]) if not r.gold.abstention and other(r.gold.answer_text)]
    alike = [r for r in others if r.gold.kind == row.gold.kind]
    return next((r.gold.answer_text for r in (*alike, *others)), "")


def _close(first: Sequence[float], second: Sequence[float]) -> bool:
    """Whether two numbers differ by one at most, which the rubric for times lets pass."""
    return any(abs(a - b) <= 1 for a in first for b in second)


def _values(text: str) -> tuple[float, ...]:
    return tuple(float(n) for n in numbers(text) if n.replace(".", "", 1).isdigit())


# ------------------------------------------------------------------------------------------------------- calibrate


def calibrate(labels: Labels, parts: Parts, *, planted: bool = True) -> Calibration:
    """Ask the judge about every labelled answer and, with ``planted``, every probe. Abstentions go to the model too, not to the rule."""
    started = time.monotonic()
    asked = [(row, row.given) for row in labels.rows]
    made = list(probes(labels.rows)) if planted else []
    listener, by = parts.listener, parts.name(Role.JUDGE)
    listener.stage("judge calibrate", len(asked) + len(made))

    def jobs() -> Iterator[Job]:
        for place, (row, text) in enumerate([*asked, *((p.row, p.text) for p in made)]):
            answer = Answer(row.gold.question_id, row.question, "", State.B, text, abstained=False)
            yield Job(str(place), partial(judge, answer, row.gold, by, MARK, parts.seed))

    said: dict[int, bool | None] = {}
    try:
        for result in parts.engine(Role.JUDGE).run(jobs(), window=parts.spec(Role.JUDGE).window):
            said[int(result.key)] = result.value.correct if isinstance(result, Done) else None
            listener.advance()
    finally:
        listener.end()
    verdicts = [said[place] for place in range(len(asked) + len(made))]
    model, prompts = parts.identity(Role.JUDGE), shaped_by()
    return Calibration(
        key=judge_key(model, prompts),
        model=model,
        prompts=prompts,
        labels=labels.path.name,
        labels_sha256=file_digest(labels.path),
        labelled_by=tuple(dict.fromkeys(row.by for row in labels.rows if row.by)),
        split=labels.split,
        seed=parts.seed,
        rows=tuple(_rows(labels.rows, verdicts[: len(asked)])),
        probes=tuple(_rates(made, verdicts[len(asked) :])),
        seconds=round(time.monotonic() - started, 2),
        versions=versions(),
    )


def judge_key(model: Mapping[str, str], prompts: Mapping[str, str]) -> str:
    """What a judge's calibration is found by: the identity of its model and all that shapes its prompts."""
    return digest_of("judge", dict(model), dict(prompts), length=16)


def _rows(labels: Sequence[Label], verdicts: Sequence[bool | None]) -> Iterator[Agreed]:
    kinds: dict[str, list[tuple[bool, bool | None]]] = {}
    for row, verdict in zip(labels, verdicts, strict=True):
        kinds.setdefault("abstention" if row.gold.abstention else row.gold.kind, []).append((row.correct, verdict))
    yield from (_agreed(kind, kinds[kind]) for kind in sorted(kinds, key=lambda k: (k == "abstention", k)))
    yield _agreed(OVERALL, [pair for pairs in kinds.values() for pair in pairs])


def _agreed(kind: str, pairs: Sequence[tuple[bool, bool | None]]) -> Agreed:
    decided = [(label, verdict) for label, verdict in pairs if verdict is not None]
    table = agree([label for label, _ in decided], [verdict for _, verdict in decided])
    return Agreed(
        kind=kind,
        n=len(pairs),
        unscored=len(pairs) - table.n,
        table=table,
        agreement=wilson(table.both + table.neither, table.n),
        kappa=kappa(table),
        false_positives=wilson(table.only_second, table.only_second + table.neither),
        false_negatives=wilson(table.only_first, table.only_first + table.both),
    )


def _rates(made: Sequence[Probe], verdicts: Sequence[bool | None]) -> Iterator[ProbeRate]:
    for name in dict.fromkeys(p.name for p in made):
        mine = [v for p, v in zip(made, verdicts, strict=True) if p.name == name]
        decided = [v for v in mine if v is not None]
        yield ProbeRate(name, len(mine), len(mine) - len(decided), wilson(sum(decided), len(decided)))


# ------------------------------------------------------------------------------------------------------------ kept

_CALIBRATION = TypeAdapter(Calibration)


def keep(calibration: Calibration, folder: Path | None = None) -> Path:
    """Write a calibration into ``folder``, by default the cache's, in place of one of the same judge, labels and half."""
    made = private_folder(folder or cache_folder() / FOLDER)
    path = made / f"{calibration.key}.{file_name(calibration.labels, dots=False)}.{calibration.split}.json"
    write_json(path, plain(calibration))
    return path


def kept(key: str, run: Path, say: Callable[[str], None]) -> tuple[Calibration, ...]:
    """The calibrations of the judge ``key``: those in the run folder, then those in the cache that it lacks. Bad files are told."""
    found: dict[str, Calibration] = {}
    for folder in (run / FOLDER, cache_folder() / FOLDER):
        for path in sorted(folder.glob(f"{key}.*.json")):
            try:
                found.setdefault(path.name, _CALIBRATION.validate_json(path.read_bytes()))
            except (OSError, ValidationError):
                say(f"{path}: not a calibration that can be read; it is not shown, `dualtrace judge calibrate` makes it again")
    return tuple(found.values())


# ---------------------------------------------------------------------------------------------------------- import


class _Said(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True)
    model: str = ""
    label: bool


class _Result(BaseModel):
    """A line of a result file of LongMemEval's evaluate_qa.py."""

    model_config = ConfigDict(strict=True, frozen=True)
    question_id: str = Field(min_length=1)
    hypothesis: str | None = None
    autoeval_label: _Said


@dataclass(frozen=True)
class Imported:
    """What became of a result file's lines. ``lines = unreadable + unknown + other_answer + repeated + disputed + known + new``.

    ``other_answer``: judged a text that is not the run's answer; ``repeated``: a question again, with the same label; ``disputed``:
    with another label, so that none of its lines counts; ``known``: this judge's verdict was there already. ``missing``: answers of
    the condition that are still without a verdict of this judge.
    """

    condition: str
    judge: str
    model: str
    lines: int
    new: int = 0
    known: int = 0
    unknown: int = 0
    other_answer: int = 0
    repeated: int = 0
    disputed: int = 0
    unreadable: int = 0
    missing: int = 0
    told: tuple[str, ...] = field(default=(), repr=False)

    @property
    def left_out(self) -> int:
        """Lines that gave no verdict although they should have."""
        return self.unreadable + self.unknown + self.other_answer + self.disputed


def import_results(folder: RunFolder, path: Path, name: str, condition: str = "") -> Imported:
    """The labels in ``path`` as verdicts of the judge ``name`` on one condition's answers. Nothing is guessed or filled in.

    Without ``condition``, it is the one whose hypotheses file's name the result file's begins with, else the run's only one. Raises
    DataError when it cannot be told, when no line gives a verdict, or when the lines are of several models; RunError when the run has
    another judge of this name.
    """
    condition = _condition(folder, path, condition)
    answers = {a.question_id: a for a in reversed(folder.answers(condition))}
    taken = _Intake(path, condition, answers)
    for number, line in _lines(path):
        taken.add(number, line)
    agreed = taken.agreed()
    if len(taken.models) > 1:
        raise DataError(f"{path.name} holds verdicts of several models ({', '.join(sorted(taken.models))}); import one file for each")
    model = next(iter(taken.models))
    given = {v.question_id: v.correct for v in folder.verdicts(condition, name)}
    verdicts = [Verdict(key, condition, label, name) for key, label in agreed.items() if given.get(key) is not label]
    taken.counts["known"] = len(agreed) - len(verdicts)
    folder.guard(f"judge {name}", {"model": {"name": name, "imported": model}})
    folder.verdict_lines(condition, name).append(plain(v) for v in verdicts)
    judge_now = {"name": name, "digest": "", "engine": f"{IMPORTED}, {model or 'model not named'}", "origin": model}
    folder.save(judge=name, models={**folder.manifest["models"], Role.JUDGE.value: judge_now})
    missing = sum(given.get(q) is None and q not in agreed for q in answers)
    return Imported(condition, name, model, taken.lines, len(verdicts), **taken.counts, missing=missing, told=tuple(taken.told))


class _Intake:
    """Sorts the lines of a result file, and counts those that give no verdict by why."""

    def __init__(self, path: Path, condition: str, answers: Mapping[str, Answer]) -> None:
        self._path, self._condition, self._answers = path, condition, answers
        self.lines = 0
        self.counts = dict.fromkeys(("unreadable", "unknown", "other_answer", "repeated", "disputed"), 0)
        self.told: list[str] = []
        self.models: set[str] = set()
        self._labels: dict[str, list[bool]] = {}

    def add(self, number: int, line: str) -> None:
        """Take one line."""
        self.lines += 1
        found = _parsed(_Result, line)
        if isinstance(found, str):
            self._leave("unreadable", number, f"{found}; no verdict is taken from it")
        elif (answer := self._answers.get(found.question_id)) is None:
            self._leave("unknown", number, f"question {found.question_id}: {self._condition} has no answer to it")
        elif found.hypothesis not in (None, answer.text):
            self._leave("other_answer", number, f"question {found.question_id}: the text that was judged is not {self._condition}'s answer")
        else:
            self.models.add(found.autoeval_label.model)
            self._labels.setdefault(found.question_id, []).append(found.autoeval_label.label)

    def agreed(self) -> dict[str, bool]:
        """One label for each question that has one label only. Raises DataError when there is no label at all."""
        if not self._labels:
            why = self.told[0] if self.told else "it is empty"
            raise DataError(f"{self._path.name} holds no verdict on an answer of {self._condition}: {why}")
        single = {key: said[0] for key, said in self._labels.items() if len(set(said)) == 1}
        for key, said in self._labels.items():
            if key in single:
                self.counts["repeated"] += len(said) - 1
            else:
                self.counts["disputed"] += len(said)
                self.told.append(f"{self._path.name}: question {key}: its lines have different labels; none of them counts")
        return single

    def _leave(self, why: str, number: int, reason: str) -> None:
        self.counts[why] += 1
        self.told.append(f"{self._path.name}:{number}: {reason}")


def _condition(folder: RunFolder, path: Path, given: str) -> str:
    conditions: list[str] = folder.manifest.get("conditions", [])
    known = ", ".join(conditions) or "none"
    if given:
        if given not in conditions:
            raise DataError(f"{folder.path} has no answers under {given!r}; conditions of the run: {known}")
        return given
    named = [c for c in conditions if path.name.startswith(f"{file_name(c, dots=False)}.hypotheses")]
    if len(found := named or conditions) == 1:
        return found[0]
    raise DataError(f"{path.name}: whose answers were judged? say --condition NAME; conditions of the run: {known}")


# ----------------------------------------------------------------------------------------------------------- lines


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """The lines of ``path`` that hold something, with their numbers. Raises DataError when it cannot be read."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as problem:
        raise DataError(f"{path} cannot be read: {problem.strerror}") from problem
    except UnicodeDecodeError as problem:
        raise DataError(f"{path} is not UTF-8 text (byte {problem.start})") from problem
    return ((number, line) for number, line in enumerate(text.split("\n"), start=1) if line.strip())


def _parsed(kind: type[M], line: str) -> M | str:
    """The line as a ``kind``, or in one short sentence why it is none. Never any of its text."""
    try:
        return kind.model_validate(json.loads(line))
    except ValidationError as problem:
        first = problem.errors()[0]
        return f"{'.'.join(map(str, first['loc'])) or 'the line'}: {first['msg']}"
    except ValueError:
        return "not JSON"
