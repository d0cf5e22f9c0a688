"""Two conditions over the same questions, whole and by kind, and ours beside the paper's."""

from __future__ import annotations

from collections.abc import Iterable

from .cells import Section, Table, p_value, points, share
from .published import Published
from .records import OVERALL, Pair, Report, Row
from .tables import FRONT, GROUPS

NOTES = (
    "Over the questions judged under both; the others are counted as left out.",
    "One-sided p: share of resamples with a difference of 0 or less, the data themselves counted as one of them.",
    "McNemar with continuity correction, and exact. Holm: corrected for the number of rows of the table.",
)

UNKNOWN = "not known"


def pairs(report: Report) -> Section:
    """The section of the paired comparisons: all pairs whole, and those with c6 (or the first, where there is no c6) by kind."""
    if not report.pairs:
        return Section("Paired comparison", ("Fewer than two conditions were run.",))
    leading = FRONT[0] if FRONT[0] in report.conditions else report.pairs[0].first
    shown = [p for p in report.pairs if leading in (p.first, p.second)]
    return Section("Paired comparison", NOTES, (*pair_tables(report.pairs), *map(kind_table, shown)))


def pair_tables(found: Iterable[Pair]) -> tuple[Table, Table]:
    """A row a pair: the differences with their tests, and the 2x2 counts."""
    found = tuple(found)
    tests = Table(
        ("first - second", "n", "left out", "points, 95 % bootstrap", "one-sided p", "McNemar chi²", "p", "exact p", "Holm"),
        tuple(_pair_cells(p) for p in found),
    )
    counts = Table(
        ("first - second", "both correct", "neither", "only first", "only second"),
        tuple((_pair_name(p), *map(str, (a.both, a.neither, a.only_first, a.only_second))) for p in found for a in (p.result.agreement,)),
    )
    return tests, counts


def kind_table(pair: Pair) -> Table:
    """A row a kind: the difference, which discordant questions are of the kind, and p with and without Holm's correction."""
    heads = (_pair_name(pair), "n", "points, 95 % bootstrap", "only first", "only second", "one-sided p", "Holm", "exact p", "exact, Holm")
    return Table(
        heads,
        tuple(
            (
                k.kind,
                str(r.agreement.n),
                points(r.difference),
                str(r.agreement.only_first),
                str(r.agreement.only_second),
                *map(p_value, (r.p_one_sided, k.p_holm, r.mcnemar.p_exact, k.p_exact_holm)),
            )
            for k in pair.kinds
            for r in (k.result,)
        ),
    )


def _pair_name(pair: Pair) -> str:
    return f"{pair.first} - {pair.second}"


def _pair_cells(pair: Pair) -> tuple[str, ...]:
    found, test = pair.result, pair.result.mcnemar
    chi = "-" if test.chi_squared is None else f"{test.chi_squared:.2f}"
    cells = (str(found.difference.n), str(pair.left_out), points(found.difference))
    tested = (p_value(test.p_chi_squared), p_value(test.p_exact), p_value(pair.p_exact_holm))
    return (_pair_name(pair), *cells, p_value(found.p_one_sided), chi, *tested)


# ---------------------------------------------------------------------------------------------------------- the paper


def beside_paper(report: Report) -> Section:
    """Ours and the paper's in one table only where both ran the pooled protocol."""
    paper, h = report.published, report.header
    kinds = tuple(dict.fromkeys((*paper.kinds, *(r.kind for r in report.groups if r.kind != OVERALL), OVERALL)))
    ours = [(f"{name}, ours", *(accuracy_cell(report.row(name, kind, grouped=True)) for kind in kinds)) for name in report.conditions]
    theirs = [(f"{name}, paper", *published_cells(paper, name, kinds)) for name in paper.conditions]
    of_ours = (
        f"Ours: model {h.model('read') or '-'}, judge {h.model('judge') or '-'}, {h.model('embed') or '-'}, "
        f"{h.protocol} protocol, {report.questions} questions."
    )
    heads = ("condition", *kinds)
    if h.protocol == paper.protocol:
        tables = [Table(heads, (*ours, *theirs))]
        warning = "The same protocol, but other questions, models and judge: orientation, not a ranking."
    else:
        tables = [Table(heads, tuple(ours)), Table(heads, tuple(theirs))]
        warning = (
            f"Not comparable: the {h.protocol} protocol and the paper's {paper.protocol} protocol are different experiments. "
            "The two tables stand here for orientation only."
        )
    notes = (of_paper(paper), of_ours, warning)
    return Section("Beside the published numbers", notes, (*tables, published_kinds(paper)), paper.notes)


def of_paper(paper: Published) -> str:
    """One line: whose numbers they are, and the paper's comparison."""
    c = paper.comparison
    return (
        f"Paper: {paper.source}, model {paper.model}, judge {paper.judge}, {paper.embedder}, {paper.protocol} protocol, "
        f"{paper.questions} questions. {c.first} minus {c.second}: {c.difference:+.1f} points [{c.low:+.1f}, {c.high:+.1f}], "
        f"{c.only_first} against {c.only_second} discordant of {c.n}, McNemar chi² {c.chi_squared}."
    )


def accuracy_cell(row: Row | None) -> str:
    """``75.0 % (15/20)``, ``n=0`` where nothing is judged."""
    return f"{share(row.judged)} ({row.correct}/{row.scored})" if row and row.scored else "n=0"


def published_cells(paper: Published, condition: str, kinds: Iterable[str]) -> tuple[str, ...]:
    """The paper's accuracies of a condition, ``not known`` where they are not."""
    values = (paper.value(condition, kind) for kind in kinds)
    return tuple(UNKNOWN if value is None else f"{value:.1f} %" for value in values)


def published_kinds(paper: Published) -> Table:
    """The paper's table 2: differences by kind with what is known of their intervals and tests."""
    c = paper.comparison
    rows = [
        (
            kind,
            f"{k.difference:+.1f}" + (f" [{k.low:+.1f}, {k.high:+.1f}]" if k.low is not None and k.high is not None else ""),
            str(k.only_first),
            f"{k.p_one_sided:.3f}",
        )
        for kind, k in c.kinds.items()
    ]
    whole = (OVERALL, f"{c.difference:+.1f} [{c.low:+.1f}, {c.high:+.1f}]", str(c.only_first), f"< {c.p_below:.4f}")
    return Table((f"paper, {c.first} - {c.second}", "points, 95 % bootstrap", f"only {c.first}", "one-sided p"), (*rows, whole))


# ----------------------------------------------------------------------------------------------------------- the data


def data_facts(report: Report) -> tuple[tuple[str, str], ...]:
    """What must be said of the data beside its name and digest: release, sample, single-session kinds, dates after the question."""
    h = report.header
    counts = {
        kind: sum(o.kind == kind and not o.abstention for o in report.outcomes)
        for kind, group in GROUPS.items()
        if group == "single-session"
    }
    counted = ", ".join(f"{n} {kind}" for kind, n in counts.items() if n)
    later = "not known" if h.later_evidence is None else f"{h.later_evidence} of {report.questions} questions"
    return (
        ("release of the data", h.release or "not known (no released file has this digest)"),
        ("sample", h.sample or "none; all questions of the file"),
        ("single-session kinds counted", counted or "none"),
        ("evidence dated after the question", later),
    )
