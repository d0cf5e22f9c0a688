"""From records to tables. Every question of the dataset gets one outcome under each condition, so that all tables add up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeVar

from dualtrace_local.records import Answer, Gold, State, Verdict, digest_of
from dualtrace_local.stats import spread, wilson

from .published import read_published
from .records import (
    ABSTENTION,
    APART,
    Comparison,
    ConditionSummary,
    GateSummary,
    Outcome,
    QuestionOutcomes,
    Report,
    RetrievalRow,
    RunData,
    Share,
    StateRow,
    TeachTotals,
    TokenRow,
)
from .steps import details
from .tables import GROUPS, group_of, kind_of, pairs, rows, scored, task_averaged


class _HasQuestion(Protocol):
    @property
    def question_id(self) -> str: ...


Q = TypeVar("Q", bound=_HasQuestion)


@dataclass(frozen=True)
class _Condition:
    """One condition's rows, one a question, and the outcome of every question of the dataset."""

    name: str
    answers: dict[str, Answer]
    verdicts: dict[str, Verdict]
    outcomes: dict[str, Outcome]
    problems: tuple[str, ...]


def build(run: RunData) -> Report:
    """All tables of ``run``. Nothing is dropped in silence: rows that cannot be counted are named in ``problems``."""
    golds = _first(run.golds)
    counted = {key: gold for key, gold in golds.items() if gold.kind not in APART}
    failed = (f.condition for f in run.failures if f.stage == "recall")
    names = tuple(dict.fromkeys(c for c in (*run.answers, *run.verdicts, *failed) if c))
    conditions = tuple(_condition(run, name, golds) for name in names)
    outcomes = {c.name: c.outcomes for c in conditions}
    by_question = tuple(
        QuestionOutcomes(g.question_id, g.kind, g.abstention, {c.name: c.outcomes[g.question_id] for c in conditions})
        for g in golds.values()
    )
    published = read_published()
    return Report(
        header=run.header,
        questions=len(golds),
        question_list_sha256=digest_of(*sorted(golds), length=64),
        conditions=names,
        rows=rows(golds, outcomes, kind_of, tuple(GROUPS), always=(ABSTENTION,)),
        groups=rows(golds, outcomes, group_of, published.kinds, always=published.kinds),
        summaries=tuple(_summary(counted, c) for c in conditions),
        states=tuple(_state(c, s) for c in conditions for s in State),
        pairs=pairs(golds, outcomes),
        retrieval=tuple(_retrieval(name, run.retrieval[name], golds) for name in names if run.retrieval.get(name)),
        tokens=tuple(_tokens(run)),
        teach=run.teach,
        joint=run.joint,
        gate=_gate(run),
        details=details(run, by_question),
        published=published,
        problems=(
            *_strangers(run.golds, "dataset: question", golds),
            *_unbalanced(run.teach),
            *(line for c in conditions for line in c.problems),
        ),
        failures=run.failures,
        outcomes=by_question,
    )


def summary_table(report: Report) -> tuple[Comparison, ...]:
    """The accuracy table for a terminal: kinds in order, the conditions of each together, ``overall`` last."""
    return tuple(
        Comparison(
            condition=r.condition,
            kind=r.kind,
            correct=r.correct,
            scored=r.scored,
            unscored=r.unscored,
            failed=r.failed,
            missing=r.missing,
            n=r.n,
            accuracy=r.judged.value,
            low=r.judged.low,
            high=r.judged.high,
        )
        for r in report.rows
    )


# -------------------------------------------------------------------------------------------------- one condition


def _condition(run: RunData, name: str, golds: Mapping[str, Gold]) -> _Condition:
    given, judged = run.answers.get(name, ()), run.verdicts.get(name, ())
    answers, verdicts = _first(given), _first(judged)
    failed = [f for f in run.failures if f.stage == "recall" and f.condition == name]
    problems = [
        *_strangers(given, f"{name}: answer", golds),
        *_strangers(judged, f"{name}: verdict", golds),
        *(f"{name}: failure {f.key}: not in the dataset; not counted" for f in failed if f.key not in golds),
        *(f"{name}: verdict {q}: no answer belongs to it; not counted" for q in verdicts if q in golds and q not in answers),
        *(f"{name}: verdict {q}: verdicts of one question differ; the first counts" for q in _disputed(judged)),
    ]
    keys = {f.key for f in failed}
    outcomes = {q: _outcome(answers.get(q), verdicts.get(q), failed=q in keys) for q in golds}
    return _Condition(name, answers, verdicts, outcomes, tuple(problems))


def _outcome(answer: Answer | None, verdict: Verdict | None, *, failed: bool) -> Outcome:
    if answer is None:
        return Outcome.FAILED if failed else Outcome.MISSING
    if verdict is None or verdict.correct is None:
        return Outcome.UNSCORED
    return Outcome.CORRECT if verdict.correct else Outcome.WRONG


def _first(rows: Iterable[Q]) -> dict[str, Q]:
    kept: dict[str, Q] = {}
    for row in rows:
        kept.setdefault(row.question_id, row)
    return kept


def _strangers(rows: Iterable[_HasQuestion], what: str, golds: Mapping[str, Gold]) -> Iterator[str]:
    for key, times in Counter(row.question_id for row in rows).items():
        if key not in golds:
            yield f"{what} {key}: not in the dataset ({times} x); not counted"
        elif times > 1:
            yield f"{what} {key}: occurs {times} times; the first counts"


def _disputed(verdicts: Iterable[Verdict]) -> Iterator[str]:
    said: dict[str, set[bool | None]] = {}
    for verdict in verdicts:
        said.setdefault(verdict.question_id, set()).add(verdict.correct)
    return (key for key, values in said.items() if len(values) > 1)


def _unbalanced(teach: TeachTotals) -> Iterator[str]:
    if teach.read != teach.accounted:
        yield f"teach: {teach.read} sessions read, but {teach.accounted} accounted for"


# --------------------------------------------------------------------------------------------------------- tables


def _summary(golds: Mapping[str, Gold], condition: _Condition) -> ConditionSummary:
    counted = [a for q, a in condition.answers.items() if q in golds]
    spoken = [a.question_id for a in counted if not a.abstained]
    right = scored(condition.outcomes, spoken)
    by = Counter(v.by for q, v in condition.verdicts.items() if q in golds and v.correct is not None)
    return ConditionSummary(
        condition=condition.name,
        task_averaged=task_averaged(golds, condition.outcomes),
        coverage=wilson(len(spoken), len(golds)),
        selective=wilson(sum(right), len(right)),
        context_tokens=spread([a.context_tokens for a in counted]),
        judged_by=dict(sorted(by.items())),
    )


def _state(condition: _Condition, state: State) -> StateRow:
    answers = [a for q, a in condition.answers.items() if q in condition.outcomes and a.state is state]
    count = Counter(condition.outcomes[a.question_id] for a in answers)
    return StateRow(
        condition=condition.name,
        state=state.value,
        n=len(answers),
        correct=count[Outcome.CORRECT],
        wrong=count[Outcome.WRONG],
        unscored=count[Outcome.UNSCORED],
        abstained=sum(a.abstained for a in answers),
    )


def _retrieval(name: str, delivered: Mapping[str, Share], golds: Mapping[str, Gold]) -> RetrievalRow:
    """Abstention questions are left out, as in LongMemEval's own retrieval evaluation."""
    shares = [s for q, s in delivered.items() if q in golds and not golds[q].abstention and s.whole]
    return RetrievalRow(
        condition=name,
        any_delivered=wilson(sum(s.part > 0 for s in shares), len(shares)),
        all_delivered=wilson(sum(s.part == s.whole for s in shares), len(shares)),
    )


def _tokens(run: RunData) -> Iterator[TokenRow]:
    for stage, totals in (("teach", run.teach), ("teach jointly", run.joint)):
        yield from (TokenRow(stage, "", kind, usage) for kind, usage in (totals.usage if totals else {}).items())
    for stage, by_condition in (("recall", run.recall_usage), ("judge", run.judge_usage)):
        for name, kinds in by_condition.items():
            yield from (TokenRow(stage, name, kind, usage) for kind, usage in kinds.items())


def _gate(run: RunData) -> GateSummary:
    evidence = run.evidence_kept
    return GateSummary(
        coverage=wilson(run.teach.taught, run.teach.taught + run.teach.dropped),
        evidence_dropped=wilson(evidence.whole - evidence.part, evidence.whole),
    )
