"""Titled notes and tables of text, and how numbers are written in them, the same on every page and terminal."""

from __future__ import annotations

from dataclasses import dataclass

from dualtrace_local.stats import Estimate


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
