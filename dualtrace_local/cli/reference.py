"""The command reference of the README, made from the commands themselves: ``python -m dualtrace_local.cli.reference README.md``."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from . import HELP, main

START, END = "<!-- commands: made by python -m dualtrace_local.cli.reference -->", "<!-- end of commands -->"
WIDTH = 100


def commands(group: click.Group, prefix: str) -> Iterator[tuple[str, click.Command]]:
    """Every command below ``group`` with its full name, in the order of the help."""
    for name, command in sorted(group.commands.items()):
        full = f"{prefix} {name}"
        if isinstance(command, click.Group):
            yield from commands(command, full)
        else:
            yield full, command


def reference() -> str:
    """Markdown: one section a command, holding its help."""
    sections = []
    for name, command in commands(main, "dualtrace"):
        # The option names are said here too: a command keeps the help option of its first use.
        context = click.Context(command, info_name=name, terminal_width=WIDTH, max_content_width=WIDTH, help_option_names=HELP)
        text = command.get_help(context)
        sections.append(f"### {name}\n\n```\n{text}\n```\n")
    return "\n".join(sections)


def renewed(text: str) -> str:
    """``text`` with the part between the two marks made anew. Raises ValueError when the marks are not there."""
    if START not in text or END not in text:
        msg = f"the marks {START!r} and {END!r} are missing"
        raise ValueError(msg)
    return re.sub(f"{re.escape(START)}.*{re.escape(END)}", lambda _: f"{START}\n\n{reference()}\n{END}", text, flags=re.DOTALL)


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.write_text(renewed(target.read_text(encoding="utf-8")), encoding="utf-8")
