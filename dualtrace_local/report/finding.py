"""From the gate to the reader: what was kept, what was found, and at which step wrong answers went wrong."""

from __future__ import annotations

from collections.abc import Sequence

from dualtrace_local.stats import Estimate

from .cells import Section, Table, interval, number, share
from .details import Faultless, Reach, Step
from .records import Report


def retrieval(report: Report) -> Section:
    """Evidence sessions delivered, apart from answers: any and all of a question's, in all and among the first k."""
    if not report.retrieval:
        return Section("Retrieval", ("Not measured in this run.",))
    heads = ("condition", "n", "any evidence session", "95 % Wilson", "all evidence sessions", "95 % Wilson")
    found = tuple((r.condition, *_both(r.any_delivered, r.all_delivered)) for r in report.retrieval)
    at = _at(report.details.reach)
    notes = (
        (
            "Share of questions with evidence (abstention left out) whose evidence sessions were delivered to the reader. "
            "This says nothing about answers, and is much easier than they are."
        ),
        "Second table: among the best-ranked sessions of what was delivered, so many of them; intervals are in report.json.",
    )
    return Section("Retrieval", notes if at.rows else notes[:1], (Table(heads, found), at) if at.rows else (Table(heads, found),))


def _at(reach: Sequence[Reach]) -> Table:
    """A line a condition: any and all of the evidence sessions among the first so many."""
    found: dict[str, list[Reach]] = {}
    for one in reach:
        found.setdefault(one.condition, []).append(one)
    ks = [r.k for r in next(iter(found.values()), [])]
    heads = ("condition", "n", *(f"any at {k}" for k in ks), *(f"all at {k}" for k in ks))
    cells = (
        (name, str(rows[0].any_found.n), *(share(r.any_found) for r in rows), *(share(r.all_found) for r in rows))
        for name, rows in found.items()
    )
    return Table(heads, tuple(cells))


def _both(first: Estimate, second: Estimate) -> tuple[str, ...]:
    return (str(first.n), share(first), interval(first), share(second), interval(second))


def gate(report: Report) -> Section:
    """The ledger in counts, coverage, and evidence that the gate dropped."""
    t, decided = report.teach, report.gate
    counts = (t.read, t.taught, t.dropped, t.empty, t.unchanged, t.forgotten, t.failed, t.memories, t.with_scene)
    heads = ("read", "taught", "dropped", "empty", "unchanged", "forgotten", "failed", "memories", "with scene")
    tiers = ", ".join(f"{name} {count}" for name, count in t.tiers.items())
    dropped = decided.evidence_dropped
    notes = (
        "Sessions: read = taught + dropped + empty + unchanged + forgotten + failed.",
        f"Gate way: {report.header.gate or 'not named'}.",
        f"Gate coverage: {share(decided.coverage)} {interval(decided.coverage)} of {decided.coverage.n} sessions that the gate decided on"
        + (f" ({tiers})." if tiers else "."),
        f"Evidence sessions dropped by the gate: {share(dropped)} {interval(dropped)} of {dropped.n}"
        if dropped.n
        else "Evidence sessions dropped by the gate: not measured in this run.",
    )
    return Section("Teach and gate", notes, (Table(heads, (tuple(number(c) for c in counts),)),))


def steps(report: Report) -> Section:
    """Wrong answers by the first step that failed."""
    found, heading = report.details.steps, "Where wrong answers went wrong"
    if not found:
        return Section(heading, ("No condition was run.",))
    table = Table(("condition", "wrong", *Step), tuple((s.condition, str(s.wrong), *map(str, s.counts.values())) for s in found))
    notes = (
        (
            "The first step that failed for an evidence session of the question: it was not kept (by gate or condition), "
            "nothing of it was delivered, or something of each was and the answer is still wrong."
        ),
        "Found means that something of the session was delivered; whether it was the fact asked for is seen on the question's page.",
    )
    return Section(heading, notes, (table,))


def faults(report: Report) -> Section:
    """Accuracy with and without questions that are publicly known to be faulty."""
    known = report.details.faults
    if not known:
        return Section("Known faults of the data", ("None of the questions has a publicly known fault that this release still has.",))
    heads = ("condition", "all judged", "accuracy", "95 % bootstrap", "left out", "accuracy without", "95 % bootstrap")
    table = Table(heads, tuple(_faultless(f) for f in report.details.faultless))
    listed = tuple(f"{f.question_id}: {f.what} ({f.source})" for f in known)
    note = "Only in this table the questions below are left out; everywhere else they count as the data has them."
    return Section("Known faults of the data", (note,), (table,), listed)


def _faultless(found: Faultless) -> tuple[str, ...]:
    counted, sound = found.with_all, found.without
    return (found.condition, str(counted.n), share(counted), interval(counted), str(found.left_out), share(sound), interval(sound))
