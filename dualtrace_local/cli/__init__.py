"""The command line: parse, call, echo. Nothing heavy is imported before a command needs it."""

from __future__ import annotations

import sys

import click

from dualtrace_local import __version__
from dualtrace_local.errors import DualtraceError

from .changes import conflicts, resolve
from .common import say
from .conditions import conditions
from .daily import ask, memory, remember, store, teach
from .data import data
from .experiments import demo, run
from .judging import judge, report
from .machine import doctor, models
from .memories import edit, export, forget, history, import_, retract, undo, verify
from .stats import compare, stats
from .stores import check, migrate, optimize, reembed

HELP = ["-h", "--help"]


class Group(click.Group):
    """Ends every error that is meant for the user as one line and its exit code; anything else is a bug and stays a traceback."""

    def invoke(self, ctx: click.Context) -> object:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except DualtraceError as problem:
            say(f"dualtrace: {' '.join(str(problem).split())}")
            ctx.exit(problem.exit_code)
        except KeyboardInterrupt:
            click.echo("dualtrace: interrupted; what was finished is kept, the same command goes on from there", err=True)
            ctx.exit(130)


@click.group(cls=Group, context_settings={"help_option_names": HELP, "max_content_width": 110})
@click.version_option(__version__, prog_name="dualtrace")
def main() -> None:
    """A local-first memory for language-model assistants.

    Every chat session passes an evidence gate; what passes is kept twice, as a fact and as a scene, and questions are answered from both
    months later. Everything runs on this machine.

    Exit codes: 0 done, 1 stopped, 2 wrong use, 3 finished with failed records, 11 store in use.
    """
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


for command in (edit, verify, retract, undo, history, conflicts, resolve, forget, export, import_):
    memory.add_command(command)
for command in (check, optimize, reembed, migrate):
    store.add_command(command)
for command in (demo, teach, remember, ask, run, conditions, judge, report, compare, stats, memory, store, data, models, doctor):
    main.add_command(command)
