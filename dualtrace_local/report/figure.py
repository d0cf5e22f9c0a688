"""The accuracy figure. The only place that imports matplotlib, and only when a figure is drawn."""

from __future__ import annotations

from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING

from .records import OVERALL, Report, Row
from .sections import title

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#999999")
"""Okabe and Ito 2008: told apart by colour-blind readers too."""

SIZE = (12.0, 7.0)
"""Inches; at ``DPI`` this is 1200 x 700 pixels."""

DPI = 100
BARS = 0.8
"""Share of a group's width that its bars fill."""

WRITTEN_OUT = 3
"""With up to so many conditions there is room to write values on the bars."""

LEGEND = 6
"""Most columns of the legend that fit."""

ASIDE = 0.8
"""Where on a bar's width the paper's marker sits, 0-1; the whisker has the middle."""


@dataclass(frozen=True)
class Figure:
    """The figure in both formats."""

    png: bytes
    svg: bytes


def draw(report: Report) -> Figure:
    """Bars by the paper's kinds and by condition over judged answers, Wilson whiskers, the paper's values as hollow diamonds."""
    import matplotlib as mpl
    from matplotlib.figure import Figure as Canvas

    # A fixed salt makes equal reports equal files; names may hold dollar signs.
    with mpl.rc_context({"svg.hashsalt": "dualtrace", "text.parse_math": False, "font.size": 11}):
        canvas = Canvas(figsize=SIZE, dpi=DPI, layout="constrained")
        _axes(canvas.subplots(), report)
        png, svg = BytesIO(), BytesIO()
        canvas.savefig(png, format="png", metadata={"Software": None})
        canvas.savefig(svg, format="svg", metadata={"Date": None, "Creator": None})
    return Figure(png.getvalue(), svg.getvalue())


def _axes(axes: Axes, report: Report) -> None:
    kinds = list(dict.fromkeys(r.kind for r in report.groups))
    width = BARS / max(1, len(report.conditions))
    for place, name in enumerate(report.conditions):
        rows = [(x, r) for x, kind in enumerate(kinds) if (r := report.row(name, kind, grouped=True))]
        shift = (place + 0.5) * width - BARS / 2
        _bars(axes, rows, shift, width, COLOURS[place % len(COLOURS)], name)
        _values(axes, rows, shift, counts=len(report.conditions) <= WRITTEN_OUT)
    _paper(axes, report, kinds, width)
    sizes = {r.kind: r.n for r in report.groups}
    axes.set_xticks(range(len(kinds)), [f"{kind}\nn = {sizes[kind]}" for kind in kinds])
    axes.tick_params(axis="x", length=0, pad=9)
    axes.set_xlim(-0.6, max(len(kinds), 1) - 0.4)
    axes.set_ylim(0, 108)
    axes.set_yticks(range(0, 101, 20))
    axes.set_ylabel("accuracy over judged answers, %")
    axes.grid(axis="y", color="#d8dee4", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)
    if OVERALL in kinds:
        axes.axvline(kinds.index(OVERALL) - 0.5, color="#8c959f", linewidth=0.8, linestyle=":")
    label = "development rows, " if report.header.development else ""
    axes.set_title(f"{title(report)}\n{label}{report.header.protocol} protocol; whiskers: 95 % Wilson", fontsize=13, loc="left")
    handles, labels = axes.get_legend_handles_labels()
    if handles:
        order = sorted(range(len(labels)), key=lambda i: (*report.conditions, labels[i]).index(labels[i]))
        axes.figure.legend(
            [handles[i] for i in order],
            [labels[i] for i in order],
            loc="outside lower center",
            ncols=min(LEGEND, len(handles)),
            frameon=False,
            fontsize=10,
        )


def _bars(axes: Axes, rows: list[tuple[int, Row]], shift: float, width: float, colour: str, name: str) -> None:
    drawn = [(x + shift, r.judged_wilson) for x, r in rows if r.scored]
    heights = [100 * (e.value or 0) for _, e in drawn]
    # A bound can miss the value by the last bit (0 of 1), and a whisker below 0 is an error to matplotlib.
    whiskers = [
        [max(0.0, h - 100 * (e.low or 0)) for h, (_, e) in zip(heights, drawn, strict=True)],
        [max(0.0, 100 * (e.high or 0) - h) for h, (_, e) in zip(heights, drawn, strict=True)],
    ]
    places = [x for x, _ in drawn]
    axes.bar(places, heights, width * 0.92, color=colour, label=name)
    axes.errorbar(places, heights, whiskers, fmt="none", ecolor="#1b1f24", elinewidth=1, capsize=3)


def _values(axes: Axes, rows: list[tuple[int, Row]], shift: float, *, counts: bool) -> None:
    """Correct of scored at the foot of each bar where there is room, and ``n=0`` wherever a bar is missing for that reason."""
    box = {"boxstyle": "round,pad=0.15", "facecolor": "white", "edgecolor": "none", "alpha": 0.85}
    for x, row in rows:
        if counts or not row.scored:
            text = f"{row.correct}/{row.scored}" if row.scored else "n=0"
            axes.text(x + shift, 1.5, text, ha="center", va="bottom", fontsize=8, color="#1b1f24", bbox=box)


def _paper(axes: Axes, report: Report, kinds: list[str], width: float) -> None:
    paper = report.published
    points = [
        (x + (place + ASIDE) * width - BARS / 2, value)
        for place, name in enumerate(report.conditions)
        for x, kind in enumerate(kinds)
        if (value := paper.value(name, kind)) is not None
    ]
    if points:
        other = "" if report.header.protocol == paper.protocol else ": another protocol, not comparable"
        label = f"paper ({paper.model}, judge {paper.judge}, {paper.protocol} protocol{other})"
        xs, ys = zip(*points, strict=True)
        axes.plot(xs, ys, "D", markersize=7, markerfacecolor="white", markeredgecolor="#1b1f24", label=label, clip_on=False, zorder=5)
