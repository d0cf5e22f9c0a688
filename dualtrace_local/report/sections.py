"""A report as titled notes and tables of text: what Markdown and HTML both show, said once."""

from __future__ import annotations

from collections.abc import Iterator

from dualtrace_local.corpus.known import VERSION as FAULTS_OF
from dualtrace_local.stats import RESAMPLES, SEED

from .cells import Section, Table, interval, number, p_value, points, share
from .costs import costs
from .finding import faults, gate, retrieval, steps
from .judged import judge
from .paired import beside_paper, data_facts, pairs
from .records import OVERALL, ConditionSummary, Report, Row

LISTED = 50
"""Most failures listed one by one on a page; report.json has all of them."""


def title(report: Report) -> str:
    """The page's heading: dataset, reader, number of questions."""
    return f"{report.header.dataset}, {report.header.model('read') or 'no reader named'}, {report.questions} questions"


def sections(report: Report) -> tuple[Section, ...]:
    """Everything that is printed, in order."""
    return (
        Section("In short", tuple(_short(report))),
        _accuracy(report),
        _overall(report),
        pairs(report),
        beside_paper(report),
        _states(report),
        retrieval(report),
        gate(report),
        steps(report),
        faults(report),
        judge(report),
        costs(report),
        _conditions(report),
        _problems(report),
    )


# ------------------------------------------------------------------------------------------------------- sections


def _short(report: Report) -> Iterator[str]:
    if report.header.development:
        yield "development: prompts or thresholds were tuned on these rows; the numbers say nothing about other rows."
    for name in report.conditions:
        if row := report.row(name, OVERALL):
            yield (
                f"{name}: {share(row.judged)} {interval(row.judged)} of {row.scored} judged answers, "
                f"{share(row.everything)} {interval(row.everything)} of all {row.n} questions."
            )
    if report.pairs:
        pair = report.pairs[0]
        found = pair.result
        yield (
            f"{pair.first} minus {pair.second}: {points(found.difference)} points, "
            f"one-sided p {p_value(found.p_one_sided)}, over {found.agreement.n} questions judged under both."
        )
    yield "One run; no spread over seeds was measured."


def _accuracy(report: Report) -> Section:
    heads = (
        "kind",
        "condition",
        "n",
        "scored",
        "correct",
        "unscored",
        "failed",
        "missing",
        "accuracy",
        "95 % bootstrap",
        "95 % Wilson",
    )
    notes = (
        "n = scored + unscored + failed + missing. Accuracy: correct of scored. No verdict is unscored, never wrong.",
        "Questions without an answer in the sessions are in the row abstention, in no other kind.",
        "Questions of the kind adversarial (LoCoMo's category 5) are not in overall, in no mean and in no pair.",
        f"Bootstrap: percentile, {RESAMPLES:,} resamples, seed {SEED}; it has no width where all answers agree, Wilson has one.",
    )
    return Section("Accuracy by kind of question", notes, (Table(heads, tuple(_accuracy_cells(r) for r in report.rows)),))


def _accuracy_cells(row: Row) -> tuple[str, ...]:
    counts = (row.n, row.scored, row.correct, row.unscored, row.failed, row.missing)
    return (row.kind, row.condition, *map(str, counts), share(row.judged), interval(row.judged), interval(row.judged_wilson))


def _overall(report: Report) -> Section:
    heads = ("condition", "over", "n", "accuracy", "95 % bootstrap", "95 % Wilson")
    rows: list[tuple[str, ...]] = []
    for summary in report.summaries:
        row = report.row(summary.condition, OVERALL)
        if row is None:
            continue
        for over, boot, score in (
            ("all questions", row.everything, row.everything_wilson),
            ("judged answers", row.judged, row.judged_wilson),
        ):
            rows.append((row.condition, over, str(boot.n), share(boot), interval(boot), interval(score)))
        mean = summary.task_averaged
        rows.append((row.condition, "mean of kinds", str(mean.n), share(mean), interval(mean), "-"))
    notes = (
        "Over all questions, whatever is not correct (wrong, unscored, failed, missing) counts against the condition.",
        "Mean of kinds: each kind with a judged answer counts the same, abstention left out.",
        *(f"{s.condition}: verdicts by {_by(s)}." for s in report.summaries),
    )
    return Section("Overall accuracy", notes, (Table(heads, tuple(rows)),))


def _by(summary: ConditionSummary) -> str:
    return ", ".join(f"{name} {count}" for name, count in summary.judged_by.items()) or "nobody"


def _states(report: Report) -> Section:
    states = Table(
        ("condition", "state", "n", "correct", "wrong", "unscored", "abstained"),
        tuple((s.condition, s.state, *map(str, (s.n, s.correct, s.wrong, s.unscored, s.abstained))) for s in report.states),
    )
    coverage = Table(
        ("condition", "coverage", "95 % Wilson", "judged", "accuracy of these", "95 % Wilson"),
        tuple(
            (s.condition, share(s.coverage), interval(s.coverage), str(s.selective.n), share(s.selective), interval(s.selective))
            for s in report.summaries
        ),
    )
    notes = (
        "State: A fact and scene delivered, B fact only or verbatim rounds, C nothing. Failed and missing questions have no state.",
        "Coverage: questions answered without abstaining, of all questions.",
    )
    return Section("State and correctness", notes, (states, coverage))


def _conditions(report: Report) -> Section:
    h = report.header
    later = "hidden (--hide-later)" if h.hide_later else "visible"
    facts = [
        ("dataset", h.dataset),
        ("dataset SHA-256", h.dataset_sha256),
        *data_facts(report),
        ("question list", f"{report.questions} questions, SHA-256 {report.question_list_sha256}"),
        ("protocol", h.protocol),
        ("sessions dated after the question", f"{later}; {h.later_questions} questions have one"),
        ("sessions", f"{number(h.distinct_sessions)} distinct, {number(h.session_occurrences)} occurrences"),
        *((f"model, {m.role}", ", ".join(x for x in (m.name, m.engine, m.digest) if x)) for m in h.models),
        ("gate", h.gate),
        ("seed, window", f"{h.seed}, {h.window}"),
        ("temperature", "0; 0.3 in the last try of a cut or refused completion"),
        *((f"view, {name}", told) for name, told in report.details.views.items()),
        ("table of known faults", FAULTS_OF),
        *((f"setting, {name}", value) for name, value in h.settings.items()),
        *((f"prompt, {name}", value) for name, value in h.prompts.items()),
        *((f"version, {name}", value) for name, value in h.versions.items()),
        *((f"wall time, {name}", f"{number(value, 1)} s") for name, value in h.seconds.items()),
        ("label", "development" if h.development else "-"),
    ]
    return Section("How these numbers were made", (), (Table(("what", "value"), tuple(facts)),))


def _problems(report: Report) -> Section:
    failed = [f"{f.stage}{f' {f.condition}' if f.condition else ''}, {f.key}: {f.reason}" for f in report.failures]
    rest = len(failed) - LISTED
    more = [f"and {rest} more failures, all in report.json"] if rest > 0 else []
    lines = (*report.problems, *failed[:LISTED], *more)
    return Section("Failures and rows that do not belong", () if lines else ("None.",), (), lines)
