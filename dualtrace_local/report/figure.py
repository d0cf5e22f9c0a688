"""The figures. The only place that imports matplotlib, and only when a figure is drawn."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING

from dualtrace_local.records import Usage

from .costs import question_costs, sessions_decided, teach_costs
from .records import OVERALL, Report, Row
from .sections import title

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

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
    return _drawn(lambda canvas: _axes(canvas.subplots(), report), SIZE)


def draw_costs(report: Report) -> Figure:
    """Tokens a session by what they are for, tokens a question by condition, and the gate's tiers with the paper's coverage as diamonds."""
    lines = len(report.tokens) + len(report.conditions) + 3
    return _drawn(lambda canvas: _costs(canvas, report), (SIZE[0], max(4.5, 1.8 + 0.32 * lines)))


def _drawn(paint: Callable[[Canvas], None], size: tuple[float, float]) -> Figure:
    import matplotlib as mpl
    from matplotlib.figure import Figure as Canvas

    # A fixed salt makes equal reports equal files; names may hold dollar signs.
    with mpl.rc_context({"svg.hashsalt": "dualtrace", "text.parse_math": False, "font.size": 11}):
        canvas = Canvas(figsize=size, dpi=DPI, layout="constrained")
        paint(canvas)
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


# ------------------------------------------------------------------------------------------- tokens and coverage

_TIERS = (("FULL", COLOURS[0]), ("STREAMLINED", COLOURS[4]), ("DROP", COLOURS[7]))


def _costs(canvas: Canvas, report: Report) -> None:
    sessions = sessions_decided(report)
    teach = {kind: (sessions, usage) for kind, usage in teach_costs(report).items()}
    recall = question_costs(report)
    heights = [max(1, len(teach)), max(1, len(recall)), 1.6]
    first, second, third = canvas.subplots(3, 1, height_ratios=heights)
    _tokens(first, teach, "teaching: tokens a session")
    _tokens(second, recall, "recall: tokens a question")
    handles, labels = first.get_legend_handles_labels()
    if handles:
        first.legend(handles, labels, loc="lower right", frameon=False, fontsize=9)
    _coverage(third, report)


def _tokens(axes: Axes, costs: Mapping[str, tuple[int, Usage]], title: str) -> None:
    """Lying bars: prompt computed, prompt from the cache, completion, each a mean."""
    names = list(costs)
    parts = {
        "prompt": [u.prompt_tokens - u.cached_tokens for _, u in costs.values()],
        "prompt, cached": [u.cached_tokens for _, u in costs.values()],
        "completion": [u.completion_tokens for _, u in costs.values()],
    }
    left = [0.0] * len(names)
    for (label, counts), colour in zip(parts.items(), (COLOURS[0], COLOURS[4], COLOURS[1]), strict=True):
        widths = [count / n if n else 0.0 for count, (n, _) in zip(counts, costs.values(), strict=True)]
        axes.barh(range(len(names)), widths, 0.65, left=left, color=colour, label=label)
        left = [x + w for x, w in zip(left, widths, strict=True)]
    for place, total in enumerate(left):
        axes.text(total, place, f" {total:,.0f}", va="center", fontsize=9, color="#1b1f24")
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(max(len(names), 1) - 0.4, -0.6)
    axes.set_xlim(0, 1.12 * max([*left, 1.0]))
    _plain(axes, title)


def _coverage(axes: Axes, report: Report) -> None:
    """The gate's tiers as parts of one bar, what is kept first, and the share that the paper stored."""
    tiers, left = report.teach.tiers, 0.0
    whole = sum(tiers.values())
    for name, colour in _TIERS:
        if part := tiers.get(name, 0):
            width = 100 * part / whole
            axes.barh([0], [width], 0.5, left=left, color=colour, label=f"{name} {part}")
            left += width
    marked = {name: cost.coverage for name, cost in report.published.costs.items()}
    for (name, value), below in zip(marked.items(), (-0.42, 0.42), strict=False):
        axes.plot([value], [below], "D", markersize=7, markerfacecolor="white", markeredgecolor="#1b1f24", clip_on=False, zorder=5)
        axes.text(value + 1.2, below, f"{name}, paper: {value:.1f} % stored", va="center", fontsize=9, color="#1b1f24")
    axes.set_yticks([0], ["sessions"])
    axes.set_ylim(0.75, -0.75)
    axes.set_xlim(0, 100)
    _plain(axes, f"gate coverage: {whole:,} sessions by tier, %")
    if whole:
        axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False, fontsize=9)


def _plain(axes: Axes, title: str) -> None:
    axes.set_title(title, fontsize=12, loc="left")
    axes.grid(axis="x", color="#d8dee4", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(axis="y", length=0)
    axes.spines[["top", "right", "left"]].set_visible(False)
