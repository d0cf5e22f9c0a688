"""Several runs, or two lists of marked answers, side by side. What may not be compared never shares a table, and a line says why."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from dualtrace_local.records import Gold
from dualtrace_local.stats import Estimate, Repeats, Unpaired, holm, repeats, unpaired

from .published import Published
from .records import ABSTENTION, APART, OVERALL, Outcome, Pair, Report, Row
from .tables import FRONT, GROUPS, group_of, kind_of, pair, rows, task_averaged


@dataclass(frozen=True)
class Run:
    """A run by the name it is shown under."""

    name: str
    report: Report


@dataclass(frozen=True)
class Gain:
    """A run's scene gain, c6 minus c7. ``pair`` is None where the run lacks one of them."""

    run: str
    pair: Pair | None


@dataclass(frozen=True)
class Against:
    """A run's condition beside the paper's counts for it: other questions, so the difference is unpaired.

    ``correct`` of ``n``: all questions, where whatever is not correct counts against the run.
    """

    run: str
    condition: str
    correct: int
    n: int
    paper_correct: int
    paper_n: int
    result: Unpaired


@dataclass(frozen=True)
class Across:
    """Two runs under one condition over the same questions; ``pair`` names the runs."""

    condition: str
    pair: Pair


@dataclass(frozen=True)
class Repeated:
    """One experiment under several seeds: accuracy of a condition (or the scene gain, ``c6 - c7``) in each run, and together."""

    runs: tuple[str, ...]
    seeds: tuple[int, ...]
    what: str
    values: tuple[float | None, ...]
    together: Repeats


@dataclass(frozen=True)
class Table1:
    """A run's accuracies by the paper's kinds, a row a condition and kind, with the mean of the dataset's kinds by condition."""

    run: str
    rows: tuple[Row, ...]
    means: Mapping[str, Estimate]


@dataclass(frozen=True)
class Group:
    """Runs that may share a table: one protocol, one file, one list of questions."""

    protocol: str
    hide_later: bool
    dataset: str
    dataset_sha256: str
    question_list_sha256: str
    questions: int
    runs: tuple[str, ...]
    accuracy: tuple[Table1, ...]
    gains: tuple[Gain, ...]
    against: tuple[Against, ...]
    across: tuple[Across, ...]
    repeated: tuple[Repeated, ...]


@dataclass(frozen=True)
class Compared:
    """All groups, with what they are beside. ``apart`` says why there is more than one."""

    groups: tuple[Group, ...]
    apart: tuple[str, ...]
    published: Published


@dataclass(frozen=True)
class Marked:
    """Two systems over one list of questions, as far as both have it. ``only`` counts the ids that one of them lacks, by system."""

    systems: tuple[str, str]
    shared: int
    only: Mapping[str, int]
    rows: tuple[Row, ...]
    means: Mapping[str, Estimate]
    pair: Pair


def compare_runs(runs: Sequence[Run], published: Published) -> Compared:
    """Set ``runs`` (names differ) side by side."""
    by_key: dict[tuple[object, ...], list[Run]] = {}
    for run in runs:
        by_key.setdefault(_may_share(run.report), []).append(run)
    groups = tuple(_group(found, published) for found in by_key.values())
    return Compared(groups, tuple(_apart(groups)), published)


def compare_marked(
    systems: tuple[str, str], marks: tuple[Mapping[str, bool | None], Mapping[str, bool | None]], golds: Mapping[str, Gold]
) -> Marked:
    """Two systems' marks by question id (None is no verdict); ``golds`` has the kind of every question that either has."""
    outcomes = {
        name: {q: Outcome.MISSING if q not in given else _outcome(given[q]) for q in golds}
        for name, given in zip(systems, marks, strict=True)
    }
    one, two = marks
    return Marked(
        systems=systems,
        shared=len(one.keys() & two.keys()),
        only={systems[0]: len(one.keys() - two.keys()), systems[1]: len(two.keys() - one.keys())},
        rows=rows(golds, outcomes, kind_of, tuple(GROUPS)),
        means={name: task_averaged(golds, found) for name, found in outcomes.items()},
        pair=pair(
            *systems, (outcomes[systems[0]], outcomes[systems[1]]), {q: group_of(g) for q, g in golds.items() if g.kind not in APART}
        ),
    )


def _outcome(correct: bool | None) -> Outcome:
    if correct is None:
        return Outcome.UNSCORED
    return Outcome.CORRECT if correct else Outcome.WRONG


# -------------------------------------------------------------------------------------------------------------- runs


def _may_share(report: Report) -> tuple[object, ...]:
    h = report.header
    return h.protocol, h.hide_later, h.dataset_sha256, report.question_list_sha256


def _apart(groups: Sequence[Group]) -> Iterator[str]:
    """Why runs stand in different tables: for each two groups, what they differ in."""
    for one, two in combinations(groups, 2):
        what = [
            said
            for differs, said in (
                (one.protocol != two.protocol, f"protocol {one.protocol} and {two.protocol}"),
                (one.hide_later != two.hide_later, "sessions after the question hidden and visible"),
                (one.dataset_sha256 != two.dataset_sha256, f"files {one.dataset} and {two.dataset} with other digests"),
                (one.question_list_sha256 != two.question_list_sha256, f"{one.questions} and {two.questions} questions, not the same ones"),
            )
            if differs
        ]
        yield f"{', '.join(one.runs)} and {', '.join(two.runs)} stand apart: {'; '.join(what)}. Such numbers are not comparable."


def _group(runs: Sequence[Run], published: Published) -> Group:
    first, h = runs[0].report, runs[0].report.header
    again = _same_but_seed(runs)
    return Group(
        protocol=h.protocol,
        hide_later=h.hide_later,
        dataset=h.dataset,
        dataset_sha256=h.dataset_sha256,
        question_list_sha256=first.question_list_sha256,
        questions=first.questions,
        runs=tuple(run.name for run in runs),
        accuracy=tuple(Table1(r.name, r.report.groups, {s.condition: s.task_averaged for s in r.report.summaries}) for r in runs),
        gains=tuple(Gain(run.name, _scene_gain(run.report)) for run in runs),
        against=tuple(_against(runs, published)),
        across=_across(runs, again),
        repeated=tuple(row for found in again for row in _repeated(found)),
    )


def _scene_gain(report: Report) -> Pair | None:
    return next((p for p in report.pairs if (p.first, p.second) == FRONT), None)


def _against(runs: Iterable[Run], published: Published) -> Iterator[Against]:
    for run in runs:
        for name in run.report.conditions:
            row, paper = run.report.row(name, OVERALL), published.conditions.get(name)
            if row and paper and paper.correct is not None and paper.n is not None:
                result = unpaired((row.correct, row.n), (paper.correct, paper.n))
                yield Against(run.name, name, row.correct, row.n, paper.correct, paper.n, result)


def _across(runs: Sequence[Run], again: Sequence[Sequence[Run]]) -> tuple[Across, ...]:
    """Every two runs that are no repeats of each other, under each condition that both have; p corrected for their number."""
    repeats_of = {run.name: place for place, found in enumerate(again) for run in found}
    found = [
        Across(name, pair(one.name, two.name, (_outcomes(one.report, name), _outcomes(two.report, name)), _kinds(one.report)))
        for one, two in combinations(runs, 2)
        if one.name not in repeats_of or repeats_of[one.name] != repeats_of.get(two.name)
        for name in one.report.conditions
        if name in two.report.conditions
    ]
    corrected = holm([a.pair.result.mcnemar.p_exact for a in found])
    return tuple(replace(a, pair=replace(a.pair, p_exact_holm=p)) for a, p in zip(found, corrected, strict=True))


def _outcomes(report: Report, condition: str) -> dict[str, Outcome]:
    return {o.question_id: o.outcomes[condition] for o in report.outcomes}


def _kinds(report: Report) -> dict[str, str]:
    return {o.question_id: group_of(Gold(o.question_id, None, o.kind, o.abstention)) for o in report.outcomes if o.kind not in APART}


# --------------------------------------------------------------------------------------------------------- repetition


def _same_but_seed(runs: Iterable[Run]) -> list[list[Run]]:
    """Runs that differ in nothing that is recorded but the seed, two or more of each experiment."""
    by_key: dict[str, list[Run]] = {}
    for run in runs:
        h = run.report.header
        settings = {k: v for k, v in h.settings.items() if k != "seed" and not k.startswith("condition ")}
        by_key.setdefault(repr((h.models, h.gate, h.prompts, sorted(settings.items()), run.report.conditions)), []).append(run)
    return [found for found in by_key.values() if len({r.report.header.seed for r in found}) == len(found) > 1]


def _repeated(runs: Sequence[Run]) -> Iterator[Repeated]:
    runs = sorted(runs, key=lambda run: run.report.header.seed)
    names, seeds = tuple(run.name for run in runs), tuple(run.report.header.seed for run in runs)

    def row(what: str, values: tuple[float | None, ...]) -> Repeated:
        return Repeated(names, seeds, what, values, repeats([v for v in values if v is not None]))

    for condition in runs[0].report.conditions:
        found = [run.report.row(condition, OVERALL) for run in runs]
        yield row(condition, tuple(r.judged.value if r else None for r in found))
    gains = tuple(p.result.difference.value if (p := _scene_gain(run.report)) else None for run in runs)
    if any(value is not None for value in gains):
        yield row(" - ".join(FRONT), gains)


def kinds_of(group: Group, published: Published) -> tuple[str, ...]:
    """The columns of a group's table 1: the paper's kinds, others, abstention apart, overall."""
    others = (r.kind for t in group.accuracy for r in t.rows if r.kind not in (*published.kinds, OVERALL))
    return (*(k for k in published.kinds if k != ABSTENTION), *dict.fromkeys(others), ABSTENTION, OVERALL)
