"""What is known about the judge: its calibration, what passes that should not, its family, and other judges of the same answers."""

from __future__ import annotations

from dualtrace_local.stats import Estimate

from .cells import Section, Table, interval, number, share
from .details import Agreed, Calibration, Judges
from .records import Report

IMPORTED = "imported"
"""How the engine of a judge begins whose verdicts came from a file."""

_AGREED = (
    "kind",
    "labelled",
    "unscored",
    "agreement, 95 % Wilson",
    "kappa",
    "wrong judged correct",
    "correct judged wrong",
)

_SIDE_BY_SIDE = (
    "condition",
    "first judge",
    "second judge",
    "n",
    "agreement, 95 % Wilson",
    "kappa",
    "correct by first only",
    "by second only",
)


def judge(report: Report) -> Section:
    """The section."""
    details, name = report.details, report.header.model("judge") or "not named"
    elsewhere = any(m.role == "judge" and m.engine.startswith(IMPORTED) for m in report.header.models)
    notes = [f"Verdicts by {name}, made elsewhere." if elsewhere else f"Verdicts by {name}; the fixed abstention is decided by rule."]
    if details.same_family:
        notes.append(f"Judge and reader ({details.same_family}) are the same model or of one family; such judges tend to favour their own.")
    if not details.calibrations:
        notes.append(f"This judge has no calibration: agreement of {name} with labelled answers was not measured with these prompts.")
    tables: list[Table] = []
    for found in details.calibrations:
        notes.append(calibrated(found))
        tables += calibration_tables(found)
    if details.judges:
        tables.append(Table(_SIDE_BY_SIDE, tuple(_pair(pair) for pair in details.judges)))
    return Section("Judge", tuple(notes), tuple(tables))


def calibrated(found: Calibration) -> str:
    """One sentence about a calibration: on which labels, by whom, which half."""
    by = f", given by {', '.join(found.labelled_by)}" if found.labelled_by else ""
    half = {"dev": "the half that prompts may be tuned on", "held": "the half held back from tuning"}.get(found.split, "both halves")
    whole = found.overall
    return (
        f"Calibration of {found.model.get('name', '-')} on {found.labels} (SHA-256 {found.labels_sha256[:12]}{by}), {half}: "
        f"agreement {share(whole.agreement)} {interval(whole.agreement)} of {whole.agreement.n}, kappa {number(whole.kappa, 2)}."
    )


def calibration_tables(found: Calibration) -> tuple[Table, ...]:
    """Agreement by kind, and the planted answers."""
    agreed = Table(_AGREED, tuple(_cells(row) for row in found.rows))
    planted = Table(
        ("planted answer", "n", "unscored", "judged correct, 95 % Wilson"),
        tuple((p.name, str(p.planted), str(p.unscored), _rate(p.passed)) for p in found.probes),
    )
    return (agreed, planted) if found.probes else (agreed,)


def _cells(row: Agreed) -> tuple[str, ...]:
    rates = (_rate(row.false_positives), _rate(row.false_negatives))
    return (row.kind, str(row.n), str(row.unscored), _rate(row.agreement), number(row.kappa, 2), *rates)


def _rate(found: Estimate) -> str:
    """``14.0 % of 50 [7.0, 26.2]``."""
    return f"{share(found)} of {found.n} {interval(found)}" if found.n else "n=0"


def _pair(found: Judges) -> tuple[str, ...]:
    apart = (str(found.table.only_first), str(found.table.only_second))
    agreed = (str(found.table.n), _rate(found.agreement), number(found.kappa, 2))
    return (found.condition, found.first, found.second, *agreed, *apart)
