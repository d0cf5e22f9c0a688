"""Commands that set results side by side: runs of this program, and marked answers of any system."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dualtrace_local.errors import ConfigError, RunError
from dualtrace_local.records import plain

from .common import emit, finish, json_option, no_model, say
from .render import out, table

if TYPE_CHECKING:
    from dualtrace_local.report.cells import Section
    from dualtrace_local.report.compare import Compared


@click.command("compare")
@click.argument("run_folders", nargs=-1, required=True, metavar="RUN...", type=click.Path(file_okay=False, path_type=Path))
@no_model
@json_option
def compare(run_folders: tuple[Path, ...], as_json: bool) -> None:
    """Set runs side by side, and beside the paper: accuracy by kind, scene gain, run against run, repeated runs.

    A folder of `dualtrace run --seeds` stands for its runs. Runs with another protocol or other data get tables of their own.
    """
    compare_folders(run_folders, as_json)


def compare_folders(folders: Iterable[Path], as_json: bool) -> None:
    """Read the runs, compare them, print; nothing is written."""
    from dualtrace_local.pipeline import experiment
    from dualtrace_local.report import read_published
    from dualtrace_local.report.beside import compared_sections
    from dualtrace_local.report.compare import Run, compare_runs

    runs = tuple(Run(name, experiment.report_of(path, say)) for name, path in _named(folders))
    found = compare_runs(runs, read_published())
    if as_json:
        emit(_document(found))
    else:
        show(compared_sections(found, runs))


def _named(folders: Iterable[Path]) -> Iterator[tuple[str, Path]]:
    """Run folders, each once, by the shortest ends of their paths that tell them apart."""
    paths = list(dict.fromkeys(path for folder in folders for path in _runs_in(folder)))
    parts = {path: path.resolve().parts for path in paths}
    for path in paths:
        ends = (n for n in range(1, len(parts[path]) + 1) if sum(other[-n:] == parts[path][-n:] for other in parts.values()) == 1)
        yield "/".join(parts[path][-next(ends, len(parts[path])) :]), path


def _runs_in(folder: Path) -> list[Path]:
    if (folder / "run.json").is_file() or not folder.is_dir():
        return [folder]
    found = sorted((file.parent for file in folder.glob("seed-*/run.json")), key=lambda path: (len(path.name), path.name))
    if not found:
        raise RunError(f"{folder} holds no run (neither run.json nor seed-*/run.json); name folders that `dualtrace run --out` made")
    return found


def _document(found: Compared) -> dict[str, Any]:
    return {**plain(found), "published": found.published.model_dump(mode="json")}


@click.group()
def stats() -> None:
    """Statistics of results that were made elsewhere."""


@stats.command("compare")
@click.argument("first", metavar="A", type=click.Path(dir_okay=False, path_type=Path))
@click.argument("second", metavar="B", type=click.Path(dir_okay=False, path_type=Path))
@no_model
@json_option
def compare_marks(first: Path, second: Path, as_json: bool) -> None:
    """Compare two systems, given for each a file with question_id and correct (true or false) a line, and question_type where known."""
    from dualtrace_local.corpus.marks import golds_of, read_marks
    from dualtrace_local.report.beside import marked_sections
    from dualtrace_local.report.compare import compare_marked

    if first.resolve() == second.resolve():
        raise ConfigError(f"{first} is named twice; give the files of two systems")
    files = (read_marks(first), read_marks(second))
    golds, told = golds_of(*files)
    bad = [line for file in files for line in file.bad]
    for line in (*map(str, bad), *told):
        say(line)
    names = (first.stem, second.stem) if first.stem != second.stem else (str(first), str(second))
    found = compare_marked(names, (files[0].correct, files[1].correct), golds)
    if as_json:
        emit({**plain(found), "bad_records": len(bad)})
    else:
        show(marked_sections(found))
    finish(len(bad))


def show(sections: Iterable[Section]) -> None:
    """Titled notes and tables on stdout."""
    console = out()
    for section in sections:
        console.print(f"\n{section.title}", style="bold")
        for note in section.notes:
            console.print(note)
        for found in section.tables:
            made = table(*found.heads)
            for row in found.rows:
                made.add_row(*row)
            console.print()
            console.print(made)
        for line in section.lines:
            console.print(f"- {line}")
