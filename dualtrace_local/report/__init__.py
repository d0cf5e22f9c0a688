"""Verdicts to tables, figure, Markdown, HTML and JSON. Gets records only; knows neither store nor engine.

``build(RunData) -> Report`` works the tables out, ``write(Report, folder) -> Written`` puts them on disk, and
``summary_table(Report)`` gives the lines of the accuracy table for a terminal.
"""

from .build import build, summary_table
from .pages import write
from .published import read_published
from .records import (
    Comparison,
    Failed,
    Header,
    ModelUse,
    Outcome,
    Report,
    Row,
    RunData,
    Share,
    TeachTotals,
    Written,
)
from .tables import group_of, kind_of

__all__ = [
    "Comparison",
    "Failed",
    "Header",
    "ModelUse",
    "Outcome",
    "Report",
    "Row",
    "RunData",
    "Share",
    "TeachTotals",
    "Written",
    "build",
    "group_of",
    "kind_of",
    "read_published",
    "summary_table",
    "write",
]
