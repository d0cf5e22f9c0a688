"""Markdown, HTML and JSON of a report, and the files on disk (folders 0700, files 0600)."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from dualtrace_local.records import plain

from .cells import Section, Table
from .figure import Figure, draw, draw_costs
from .questions import Page, anchor, shown
from .records import Report, Written
from .sections import sections, title

FORMAT = 1
"""Version of report.json."""

FILTERS = (
    ("", "all questions"),
    ("wrong", "wrong somewhere"),
    ("gate", "not kept"),
    ("search", "not found"),
    ("silent", "found, abstained"),
    ("reading", "misread"),
    ("differ", "conditions differ"),
    ("unscored", "without a verdict"),
    ("failed", "failed"),
    ("missing", "missing"),
    ("faulty", "known fault"),
)
"""What questions.html can be narrowed to, by the marks of its pages."""


def write(report: Report, folder: Path, pages: Iterable[Page] = ()) -> Written:
    """report.md, report.json, report.html and the figures in ``folder``, and questions.html with ``pages``, replacing what is there.

    questions.html is the only one that holds text of chats. Raises:
        OSError: the folder cannot be written.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    accuracy, costs = draw(report), draw_costs(report)
    return Written(
        markdown=_put(folder / "report.md", markdown(report).encode()),
        json=_put(folder / "report.json", as_json(report).encode()),
        html=_put(folder / "report.html", html(report, accuracy, costs).encode()),
        questions=_put(folder / "questions.html", questions(report, pages).encode("utf-8", "backslashreplace")),
        png=_put(folder / "accuracy.png", accuracy.png),
        svg=_put(folder / "accuracy.svg", accuracy.svg),
        costs_png=_put(folder / "costs.png", costs.png),
        costs_svg=_put(folder / "costs.svg", costs.svg),
    )


def as_json(report: Report) -> str:
    """The report as strict JSON: every table with its primary facts, None as null, no NaN."""
    document = {"format": FORMAT, **plain(report), "published": report.published.model_dump(mode="json")}
    return json.dumps(document, ensure_ascii=False, allow_nan=False, indent=1) + "\n"


def markdown(report: Report) -> str:
    """The report as Markdown, with the figure by its file name."""
    parts = [f"# {_text(title(report))}", "![Accuracy by kind of question](accuracy.png)", "![Tokens and coverage](costs.png)"]
    for section in sections(report):
        parts.append(f"## {section.title}")
        parts.extend(_section(section))
    return "\n\n".join(parts) + "\n"


def html(report: Report, accuracy: Figure, costs: Figure) -> str:
    """The report as one HTML file that loads nothing from elsewhere and runs no script."""
    figures = (
        {"under": "In short", "png": base64.b64encode(accuracy.png).decode(), "told": "Accuracy by kind of question and condition"},
        {"under": "Tokens and cost", "png": base64.b64encode(costs.png).decode(), "told": "Tokens a session and a question, and coverage"},
    )
    outcomes = [
        {"anchor": anchor(n), "question_id": o.question_id, "kind": kind_name(o.kind, abstention=o.abstention), "outcomes": o.outcomes}
        for n, o in enumerate(report.outcomes)
    ]
    return (
        _environment()
        .get_template("report.html.j2")
        .render(title=title(report), sections=sections(report), figures=figures, conditions=report.conditions, outcomes=outcomes)
    )


def questions(report: Report, pages: Iterable[Page]) -> str:
    """All questions' pages as one HTML file, of the same kind."""
    return _environment().get_template("questions.html.j2").render(title=title(report), filters=FILTERS, pages=shown(pages))


def kind_name(kind: str, *, abstention: bool) -> str:
    """How a question's kind is told where it stands alone."""
    return f"{kind or '(no kind)'}{', no answer' if abstention else ''}"


def _environment() -> Environment:
    """Templates lie beside this file; whatever they show is escaped, and what is missing is an error."""
    loader = FileSystemLoader(Path(__file__).resolve().parent)
    return Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)


def _section(section: Section) -> list[str]:
    notes = [_text(note) for note in section.notes]
    return [*notes, *map(_grid, section.tables), *(["\n".join(f"- {_text(x)}" for x in section.lines)] if section.lines else [])]


def _grid(table: Table) -> str:
    lines = [table.heads, ("---",) * len(table.heads), *table.rows]
    return "\n".join(f"| {' | '.join(_text(cell) for cell in line)} |" for line in lines)


def _text(value: str) -> str:
    """Names and ids come from files of others: they may not end a cell, a line, or start markup."""
    return re.sub(r"[\\|`]|<(?=\S)", r"\\\g<0>", " ".join(value.split()))


def _put(path: Path, content: bytes) -> Path:
    path.touch(mode=0o600)
    path.chmod(0o600)
    path.write_bytes(content)
    return path
