"""Markdown, HTML and JSON of a report, and the files on disk (folders 0700, files 0600)."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path

from jinja2 import Environment, StrictUndefined

from dualtrace_local.config import package_file
from dualtrace_local.records import plain

from .figure import draw
from .records import Report, Written
from .sections import Section, Table, sections, title

FORMAT = 1
"""Version of report.json."""

TEMPLATE = "report/report.html.j2"


def write(report: Report, folder: Path) -> Written:
    """report.md, report.json, report.html, accuracy.png and accuracy.svg in ``folder``, replacing what is there.

    Raises:
        OSError: the folder cannot be written.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    figure = draw(report)
    return Written(
        markdown=_put(folder / "report.md", markdown(report).encode()),
        json=_put(folder / "report.json", as_json(report).encode()),
        html=_put(folder / "report.html", html(report, figure.png).encode()),
        png=_put(folder / "accuracy.png", figure.png),
        svg=_put(folder / "accuracy.svg", figure.svg),
    )


def as_json(report: Report) -> str:
    """The report as strict JSON: every table with its primary facts, None as null, no NaN."""
    document = {"format": FORMAT, **plain(report), "published": report.published.model_dump(mode="json")}
    return json.dumps(document, ensure_ascii=False, allow_nan=False, indent=1) + "\n"


def markdown(report: Report) -> str:
    """The report as Markdown, with the figure by its file name."""
    parts = [f"# {_text(title(report))}", "![Accuracy by kind of question](accuracy.png)"]
    for section in sections(report):
        parts.append(f"## {section.title}")
        parts.extend(_section(section))
    return "\n\n".join(parts) + "\n"


def html(report: Report, png: bytes) -> str:
    """The report as one HTML file that loads nothing from elsewhere."""
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string(package_file(TEMPLATE).read_text(encoding="utf-8"))
    return template.render(title=title(report), sections=sections(report), figure=base64.b64encode(png).decode())


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
