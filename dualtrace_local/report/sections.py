"""A report as titled notes and tables of text: what Markdown and HTML both show, said once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dualtrace_local.stats import RESAMPLES, SEED, Estimate

from .records import OVERALL, ConditionSummary, Pair, Report, Row

LISTED = 50
"""Most failures listed one by one on a page; report.json has all of them."""


@dataclass(frozen=True)
class Table:
    """Column heads and rows of cells."""

    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Section:
    """A heading with notes, then tables, then lines."""

    title: str
    notes: tuple[str, ...] = ()
    tables: tuple[Table, ...] = ()
    lines: tuple[str, ...] = ()


def title(report: Report) -> str:
    """The page's heading: dataset, reader, number of questions."""
    return f"{report.header.dataset}, {report.header.model('read') or 'no reader named'}, {report.questions} questions"


def sections(report: Report) -> tuple[Section, ...]:
    """Everything that is printed, in order."""
    return (
        Section("In short", tuple(_short(report))),
        _accuracy(report),
        _overall(report),
        _paired(report),
        _published(report),
        _states(report),
        _retrieval(report),
        _gate(report),
        _judge(report),
        _tokens(report),
        _conditions(report),
        _problems(report),
    )


# ---------------------------------------------------------------------------------------------------------- cells


def percent(value: float | None) -> str:
    """A share as ``73.7 %``; ``-`` where there is none."""
    return "-" if value is None else f"{100 * value:.1f} %"


def share(estimate: Estimate) -> str:
    """An estimate's value, or ``n=0`` where there is nothing to estimate from."""
    return percent(estimate.value) if estimate.n else "n=0"


def interval(estimate: Estimate) -> str:
    """An interval in per cent, ``[64.6, 82.8]``."""
    if estimate.low is None or estimate.high is None:
        return "-"
    return f"[{100 * estimate.low:.1f}, {100 * estimate.high:.1f}]"


def points(estimate: Estimate) -> str:
    """A difference in percentage points with its interval, ``+20.2 [+12.1, +29.3]``."""
    if estimate.value is None or estimate.low is None or estimate.high is None:
        return "n=0"
    return f"{100 * estimate.value:+.1f} [{100 * estimate.low:+.1f}, {100 * estimate.high:+.1f}]"


def p_value(p: float | None) -> str:
    """A p with four decimals, ``< 0.0001`` below."""
    if p is None:
        return "-"
    return "< 0.0001" if p < 0.0001 else f"{p:.4f}"  # noqa: PLR2004 - the last printed place


def number(value: float | None, places: int = 0) -> str:
    """A count or mean with thousands separators."""
    return "-" if value is None else f"{value:,.{places}f}"


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


def _paired(report: Report) -> Section:
    tests = Table(
        ("first - second", "n", "left out", "points, 95 % bootstrap", "one-sided p", "McNemar chi²", "p", "exact p"),
        tuple(_pair_cells(p) for p in report.pairs),
    )
    counts = Table(
        ("first - second", "both correct", "neither", "only first", "only second"),
        tuple(
            (_pair_name(p), *map(str, (a.both, a.neither, a.only_first, a.only_second)))
            for p in report.pairs
            for a in (p.result.agreement,)
        ),
    )
    notes = (
        "Over the questions judged under both conditions; the others are counted as left out.",
        "One-sided p: share of resamples with a difference of 0 or less, the data themselves counted as one of them.",
        "McNemar with continuity correction, and exact.",
    )
    if not report.pairs:
        return Section("Paired comparison", ("Fewer than two conditions were run.",))
    return Section("Paired comparison", notes, (tests, counts))


def _pair_name(pair: Pair) -> str:
    return f"{pair.first} - {pair.second}"


def _pair_cells(pair: Pair) -> tuple[str, ...]:
    found, test = pair.result, pair.result.mcnemar
    chi = "-" if test.chi_squared is None else f"{test.chi_squared:.2f}"
    cells = (str(found.difference.n), str(pair.left_out), points(found.difference))
    return (_pair_name(pair), *cells, p_value(found.p_one_sided), chi, p_value(test.p_chi_squared), p_value(test.p_exact))


def _published(report: Report) -> Section:
    """Ours and the paper's in one table only where both ran the pooled protocol."""
    paper, c, h = report.published, report.published.comparison, report.header
    kinds = tuple(dict.fromkeys((*paper.kinds, *(r.kind for r in report.groups if r.kind != OVERALL), OVERALL)))
    ours = [
        (f"{name}, ours", *(f"{share(r.judged)} ({r.correct}/{r.scored})" if r and r.scored else "n=0" for r in rows))
        for name in report.conditions
        for rows in ([report.row(name, kind, grouped=True) for kind in kinds],)
    ]
    theirs = [
        (f"{name}, paper", *("-" if v is None else f"{v:.1f} %" for v in (paper.value(name, kind) for kind in kinds)))
        for name in paper.conditions
    ]
    of_paper = (
        f"Paper: {paper.source}, model {paper.model}, judge {paper.judge}, {paper.embedder}, {paper.protocol} protocol, "
        f"{paper.questions} questions. {c.first} minus {c.second}: {c.difference:+.1f} points [{c.low:+.1f}, {c.high:+.1f}], "
        f"{c.only_first} against {c.only_second} discordant, McNemar chi² {c.chi_squared}."
    )
    of_ours = (
        f"Ours: model {h.model('read') or '-'}, judge {h.model('judge') or '-'}, {h.model('embed') or '-'}, "
        f"{h.protocol} protocol, {report.questions} questions."
    )
    names = ("kind", *kinds)
    if h.protocol == paper.protocol:
        tables = [_columns(names, *ours, *theirs)]
        warning = "The same protocol, but other questions, models and judge: orientation, not a ranking."
    else:
        tables = [_columns(names, *ours), _columns(names, *theirs)]
        warning = (
            f"Not comparable: the {h.protocol} protocol and the paper's {paper.protocol} protocol are different experiments. "
            "The two tables stand here for orientation only."
        )
    return Section("Beside the published numbers", (of_paper, of_ours, warning), tuple(tables), paper.notes)


def _columns(*columns: tuple[str, ...]) -> Table:
    heads, *rows = zip(*columns, strict=True)
    return Table(heads, tuple(rows))


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


def _retrieval(report: Report) -> Section:
    if not report.retrieval:
        return Section("Retrieval", ("Not measured in this run.",))
    heads = ("condition", "n", "any evidence session", "95 % Wilson", "all evidence sessions", "95 % Wilson")
    rows = tuple(
        (
            r.condition,
            str(r.any_delivered.n),
            share(r.any_delivered),
            interval(r.any_delivered),
            share(r.all_delivered),
            interval(r.all_delivered),
        )
        for r in report.retrieval
    )
    note = "Share of questions with evidence (abstention left out) whose evidence sessions were delivered to the reader."
    return Section("Retrieval", (note,), (Table(heads, rows),))


def _gate(report: Report) -> Section:
    t, gate = report.teach, report.gate
    counts = (t.read, t.taught, t.dropped, t.empty, t.unchanged, t.forgotten, t.failed, t.memories, t.with_scene)
    heads = ("read", "taught", "dropped", "empty", "unchanged", "forgotten", "failed", "memories", "with scene")
    tiers = ", ".join(f"{name} {count}" for name, count in t.tiers.items())
    dropped = gate.evidence_dropped
    notes = (
        "Sessions: read = taught + dropped + empty + unchanged + forgotten + failed.",
        f"Gate coverage: {share(gate.coverage)} {interval(gate.coverage)} of {gate.coverage.n} sessions that the gate decided on"
        + (f" ({tiers})." if tiers else "."),
        f"Evidence sessions dropped by the gate: {share(dropped)} {interval(dropped)} of {dropped.n}"
        if dropped.n
        else "Evidence sessions dropped by the gate: not measured in this run.",
    )
    return Section("Teach and gate", notes, (Table(heads, (tuple(number(c) for c in counts),)),))


def _judge(report: Report) -> Section:
    notes = []
    if report.header.model("judge") and report.header.model("judge") == report.header.model("read"):
        notes.append("Judge and reader are the same model, which tends to favour its own answers.")
    if report.judge is None:
        return Section("Judge", (*notes, "Agreement with labelled answers was not measured in this run."))
    j = report.judge
    heads = ("labelled", "unscored", "agreement", "95 % Wilson", "Cohen's kappa", "wrong judged correct", "95 % Wilson")
    agreed, false = (share(j.agreement), interval(j.agreement)), (share(j.false_positives), interval(j.false_positives))
    row = (str(j.table.n + j.unscored), str(j.unscored), *agreed, number(j.kappa, 2), *false)
    return Section("Judge", tuple(notes), (Table(heads, (row,)),))


def _tokens(report: Report) -> Section:
    context = Table(
        ("condition", "answers", "mean", "median", "95th percentile"),
        tuple(
            (
                s.condition,
                str(s.context_tokens.n),
                *map(number, (s.context_tokens.mean, s.context_tokens.median, s.context_tokens.p95)),
            )
            for s in report.summaries
        ),
    )
    requests = Table(
        ("stage", "condition", "request", "calls", "prompt tokens", "of them cached", "completion tokens"),
        tuple(
            (t.stage, t.condition or "-", t.kind, *map(number, (u.calls, u.prompt_tokens, u.cached_tokens, u.completion_tokens)))
            for t in report.tokens
            for u in (t.usage,)
        ),
    )
    return Section("Tokens", ("First table: tokens of the delivered context a question.",), (context, requests))


def _conditions(report: Report) -> Section:
    h = report.header
    later = "hidden (--hide-later)" if h.hide_later else "visible"
    facts = [
        ("dataset", h.dataset),
        ("dataset SHA-256", h.dataset_sha256),
        ("question list", f"{report.questions} questions, SHA-256 {report.question_list_sha256}"),
        ("protocol", h.protocol),
        ("sessions dated after the question", f"{later}; {h.later_questions} questions have one"),
        ("sessions", f"{number(h.distinct_sessions)} distinct, {number(h.session_occurrences)} occurrences"),
        *((f"model, {m.role}", ", ".join(x for x in (m.name, m.engine, m.digest) if x)) for m in h.models),
        ("gate", h.gate),
        ("seed, window", f"{h.seed}, {h.window}"),
        ("temperature", "0; 0.3 in the last try of a cut or refused completion"),
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
