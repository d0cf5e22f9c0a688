"""Commands that care for a whole store: check, optimize, reembed, migrate. They stand beside ``store info`` and ``dump``."""

from __future__ import annotations

from pathlib import Path

import click

from dualtrace_local.records import plain

from .common import Choice, emit, json_option, listener, model_options, no_model, say, store_option


@click.command()
@click.option("--read-data", is_flag=True, help="Read every byte and compare it with what was written.")
@store_option
@no_model
@json_option
def check(read_data: bool, store_path: Path, as_json: bool) -> None:
    """Prove a store whole: files against their check sums, ids, links, counts, texts, vectors, the word index.

    Ends with 1 and names each file or row that is not as it must be. Nothing is repaired.
    """
    from dualtrace_local.store.check import check as look

    found = look(store_path, say, read=read_data)
    if as_json:
        emit({"whole": not found.problems, **plain(found)})
    else:
        for problem in found.problems:
            click.echo(f"{problem.where}: {problem.what}")
        counted = ", ".join(f"{n} {table}" for table, n in found.rows.items())
        state = f"{len(found.problems)} problems" if found.problems else "whole"
        click.echo(f"{state}: {found.files} files{' read' if found.read else ''}{f'; {counted}' if counted else ''}")
    click.get_current_context().exit(1 if found.problems else 0)


@click.command()
@store_option
@no_model
@json_option
def optimize(store_path: Path, as_json: bool) -> None:
    """Put small files together and remove old versions at once. Teaching does it by itself; a reader in the middle of something fails."""
    from dualtrace_local.store.care import optimize as tidy

    before, after = tidy(store_path, say)
    if as_json:
        emit({"bytes_before": before, "bytes_after": after})
    else:
        click.echo(f"{before:,} bytes before, {after:,} after")


@click.command()
@click.option("--embed-model", metavar="NAME", help="The new embedding model; that of the role embed by default.")
@store_option
@model_options
@json_option
def reembed(embed_model: str | None, store_path: Path, choice: Choice, as_json: bool) -> None:
    """Move a store to another embedding model. The old vectors serve until all new ones are there; started again, it goes on.

    Afterwards the store opens with the new model alone: name it for the role embed in a models file of your own (--models).
    """
    from dualtrace_local.pipeline.parts import Parts
    from dualtrace_local.store.care import reembed as move

    shown = listener()
    with Parts(choice.models.with_roles(embed=embed_model), shown) as parts:
        shown.stage("embed", 0)
        try:
            done = move(store_path, parts.embedder, shown.say, shown.advance)
        finally:
            shown.end()
        model = parts.embedder.name
    if as_json:
        emit({"embedder": model, "vectors": done})
    else:
        click.echo(f"{done} vectors by {model}" if done else f"the store has the vectors of {model} already")


@click.command()
@store_option
@no_model
@json_option
def migrate(store_path: Path, as_json: bool) -> None:
    """Bring a store of an older format to the present one. Copy the folder first if you may want to go back."""
    from dualtrace_local.store.care import migrate as bring

    before, after = bring(store_path, say)
    if as_json:
        emit({"before": before, "after": after})
    elif before == after:
        click.echo(f"format {after} is the present one; nothing to do")
