"""What ``compare.py`` found, as titled tables of text for a terminal or a page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from dualtrace_local.stats import RESAMPLES, SEED

from .cells import Section, Table, interval, p_value, percent, points, share
from .compare import Compared, Group, Marked, Run, kinds_of
from .paired import NOTES, UNKNOWN, accuracy_cell, data_facts, kind_table, of_paper, pair_tables, published_cells, published_kinds
from .published import Published
from .records import OVERALL, Report, Row

PAPER = "the paper"


def compared_sections(found: Compared, runs: Sequence[Run]) -> tuple[Section, ...]:
    """Who made the numbers, then every group of runs that may share a table, the paper's own tables, and its notes."""
    reports = {run.name: run.report for run in runs}
    groups = [section for group in found.groups for section in _group(group, reports, found.published)]
    return (Section("Runs", found.apart, (_made(runs),)), *groups, _paper(found))


def marked_sections(found: Marked, lines: tuple[str, ...] = ()) -> tuple[Section, ...]:
    """Two systems: accuracy by kind, and the paired comparison."""
    first, second = found.systems
    both = f"{found.shared} questions are in both; " + " and ".join(f"{n} only in {name}" for name, n in found.only.items())
    apart = "Questions without an answer in the sessions (_abs at the end of the id) are in the row abstention, in no other kind."
    rows = [
        (r.kind, r.condition, *counts, share(r.judged), interval(r.judged), interval(r.judged_wilson))
        for r in found.rows
        for counts in (map(str, (r.n, r.scored, r.correct, r.unscored, r.missing)),)
    ]
    heads = ("kind", "system", "n", "scored", "correct", "unscored", "missing", "accuracy", "95 % bootstrap", "95 % Wilson")
    means = tuple((name, str(mean.n), share(mean), interval(mean)) for name, mean in found.means.items())
    bootstrap = f"Bootstrap: percentile, {RESAMPLES:,} resamples, seed {SEED}."
    return (
        Section("Accuracy by kind of question", (f"{both}.", apart, bootstrap, *lines), (Table(heads, tuple(rows)),)),
        Section("Mean of kinds", (), (Table(("system", "n", "mean of kinds", "95 % bootstrap"), means),)),
        Section(f"{first} minus {second}", NOTES, (*pair_tables([found.pair]), kind_table(found.pair))),
    )


# ------------------------------------------------------------------------------------------------------------- runs


def _made(runs: Iterable[Run]) -> Table:
    """What each run is, a column a run."""
    columns = {run.name: dict(_facts(run.report)) for run in runs}
    names = dict.fromkeys(name for facts in columns.values() for name in facts)
    return Table(("what", *columns), tuple((name, *(facts.get(name, "-") for facts in columns.values())) for name in names))


def _facts(report: Report) -> Iterator[tuple[str, str]]:
    h = report.header
    yield "protocol", h.protocol + (", sessions after the question hidden" if h.hide_later else "")
    yield "dataset", h.dataset
    yield "SHA-256", h.dataset_sha256[:16]
    yield from data_facts(report)
    yield "questions", f"{report.questions}, list {report.question_list_sha256[:16]}"
    for role in ("encode", "read", "judge", "embed"):
        yield role, h.model(role) or "-"
    yield "gate", h.gate
    yield "seed", str(h.seed)
    yield "label", "development: tuned on these rows" if h.development else "-"


def _group(group: Group, reports: Mapping[str, Report], paper: Published) -> Iterator[Section]:
    named = f"{group.protocol} protocol, {group.dataset}, {group.questions} questions"
    yield _accuracy(group, reports, paper, named)
    yield _gains(group, reports, paper, named)
    if group.against:
        yield _against(group, reports, paper, named)
    if group.across:
        rows = []
        for a in group.across:
            (cells,) = pair_tables([a.pair])[0].rows
            rows.append((a.condition, *cells))
        heads = ("condition", *pair_tables([])[0].heads)
        yield Section(f"Run against run, {named}", NOTES, (Table(heads, tuple(rows)),))
    if group.repeated:
        yield _repeated(group, named)


def _accuracy(group: Group, reports: Mapping[str, Report], paper: Published, named: str) -> Section:
    kinds = kinds_of(group, paper)
    rows: list[tuple[str, ...]] = []
    intervals: list[tuple[str, ...]] = []
    for table in group.accuracy:
        header = reports[table.run].header
        by_key: dict[tuple[str, str], Row] = {(r.condition, r.kind): r for r in table.rows}
        for name, mean in table.means.items():
            label = _label(reports[table.run], name)
            rows.append((table.run, label, *(accuracy_cell(by_key.get((name, kind))) for kind in kinds), share(mean)))
            whole = by_key[name, OVERALL]
            made = (header.protocol, header.model("read") or "-", header.model("judge") or "-", str(whole.n), str(whole.scored))
            intervals.append((table.run, label, *made, share(whole.judged), interval(whole.judged), interval(whole.judged_wilson)))
    notes = [
        "Accuracy of judged answers; abstention questions are in their own column, in no other kind. Mean of kinds: the dataset's own."
    ]
    if group.protocol == paper.protocol:
        rows += [(PAPER, name, *published_cells(paper, name, kinds), UNKNOWN) for name in paper.conditions]
        notes.append("The paper ran the same protocol with other questions, models and judge: orientation, not a ranking.")
    heads = ("run", "condition", *kinds, "mean of kinds")
    second = ("run", "condition", "protocol", "reader", "judge", "n", "judged", OVERALL, "95 % bootstrap", "95 % Wilson")
    return Section(f"Accuracy, {named}", tuple(notes), (Table(heads, tuple(rows)), Table(second, tuple(intervals))))


def _label(report: Report, condition: str) -> str:
    return f"{condition} (reconstruction)" if condition in report.header.reconstructed else condition


def _gains(group: Group, reports: Mapping[str, Report], paper: Published, named: str) -> Section:
    """The scene gain of every run, and by kind with Holm's correction."""
    c = paper.comparison
    tested = ("one-sided p", "chi²", "exact p", f"only {c.first}", f"only {c.second}")
    heads = (f"run, {c.first} - {c.second}", "reader", "judge", "n", "left out", "points, 95 % bootstrap", *tested)
    rows: list[tuple[str, ...]] = []
    for gain in group.gains:
        h = reports[gain.run].header
        made = (gain.run, h.model("read") or "-", h.model("judge") or "-")
        if gain.pair is None:
            rows.append((*made, *("not run",) * (len(heads) - len(made))))
            continue
        r, a = gain.pair.result, gain.pair.result.agreement
        chi = "-" if r.mcnemar.chi_squared is None else f"{r.mcnemar.chi_squared:.2f}"
        tests = (p_value(r.p_one_sided), chi, p_value(r.mcnemar.p_exact))
        rows.append((*made, str(a.n), str(gain.pair.left_out), points(r.difference), *tests, str(a.only_first), str(a.only_second)))
    theirs = f"{c.difference:+.1f} [{c.low:+.1f}, {c.high:+.1f}]"
    if group.protocol == paper.protocol:
        tests = (f"< {c.p_below:.4f}", f"{c.chi_squared:.2f}", UNKNOWN)
        rows.append((PAPER, paper.model, paper.judge, str(c.n), "1", theirs, *tests, str(c.only_first), str(c.only_second)))
    note = f"The paper's gain is {theirs} points ({paper.protocol} protocol, {paper.model}, judge {paper.judge}, {c.n} questions)."
    if group.protocol != paper.protocol:
        note += f" It is not in this table, since the {group.protocol} protocol is another experiment."
    by_kind = tuple(
        Table((f"{gain.run}, {table.heads[0]}", *table.heads[1:]), table.rows)
        for gain in group.gains
        if gain.pair
        for table in (kind_table(gain.pair),)
    )
    return Section(f"Scene gain, {named}", (note, *NOTES), (Table(heads, tuple(rows)), *by_kind))


def _against(group: Group, reports: Mapping[str, Report], paper: Published, named: str) -> Section:
    heads = ("run", "condition", "protocol", "judge", "ours", "paper", "points, 95 % Newcombe", "exact p")
    rows = tuple(
        (
            a.run,
            _label(reports[a.run], a.condition),
            group.protocol,
            reports[a.run].header.model("judge") or "-",
            f"{a.correct} of {a.n}",
            f"{a.paper_correct} of {a.paper_n}",
            points(a.result.difference),
            p_value(a.result.p_exact),
        )
        for a in group.against
    )
    unpaired = "Unpaired, since the paper's questions are not known: Newcombe's interval, Fisher's exact test, two-sided."
    notes = [unpaired, "Whatever is not correct counts against the run."]
    if group.protocol != paper.protocol:
        notes.append(f"Orientation only: the paper's protocol is {paper.protocol}, this is the {group.protocol} one, another experiment.")
    return Section(f"Against {paper.model}, {named}", tuple(notes), (Table(heads, rows),))


def _repeated(group: Group, named: str) -> Section:
    heads = ("what", "runs", "seeds", "each", "mean", "standard deviation", "lowest", "highest")
    rows = tuple(
        (
            r.what,
            ", ".join(r.runs),
            ", ".join(map(str, r.seeds)),
            ", ".join(_signed(v, r.what) for v in r.values),
            _signed(r.together.mean, r.what),
            percent(r.together.deviation),
            _signed(r.together.lowest, r.what),
            _signed(r.together.highest, r.what),
        )
        for r in group.repeated
    )
    note = "Runs that differ in the seed alone. The standard deviation is that of runs (n - 1), not of questions."
    return Section(f"Repeated runs, {named}", (note,), (Table(heads, rows),))


def _signed(value: float | None, what: str) -> str:
    return "-" if value is None else f"{100 * value:+.1f}" if " - " in what else percent(value)


def _paper(found: Compared) -> Section:
    """The paper's own tables, apart unless every group could take its rows in; then its notes."""
    paper = found.published
    kinds = (*paper.kinds, OVERALL)
    everywhere = all(group.protocol == paper.protocol for group in found.groups)
    table1 = Table(("condition", *kinds), tuple((name, *published_cells(paper, name, kinds)) for name in paper.conditions))
    tables = (published_kinds(paper),) if everywhere else (table1, published_kinds(paper))
    return Section("The paper", (of_paper(paper),), tables, paper.notes)
