"""Commands on single memories: correct, undo, forget, take away. They stand beside ``memory list`` and ``show``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dualtrace_local.records import Scope, plain

from . import render
from .common import Choice, emit, finish, json_option, listener, model_options, no_model, scope_option, store_option

if TYPE_CHECKING:
    from dualtrace_local import Memory
    from dualtrace_local.pipeline.forget import Forgotten, Plan
    from dualtrace_local.store import Change

NAMED = 20
"""Whole sessions that are named before they are removed."""

by_option = click.option("--by", default="", metavar="NAME", help="Who says so; the name of this account by default.")


def mine(store_path: Path, scope: Scope, choice: Choice | None = None) -> Memory:
    """The memory of one scope, told of what goes on."""
    from dualtrace_local import Memory

    models = choice.models if choice else None
    return Memory.open(store_path, user=scope.user, project=scope.project, models=models, listener=listener())


def _tell(made: Change, *, as_json: bool) -> None:
    if as_json:
        emit(change_json(made))
    else:
        render.out().print(f"change {made.number}: {made.action} by {made.by} at {made.at}")
        render.memory(made.memory)


def change_json(change: Change) -> dict[str, Any]:
    """A change as ``--json`` shows it."""
    return {
        "number": change.number,
        "action": change.action,
        "by": change.by,
        "at": change.at,
        "memory": render.memory_json(change.memory),
    }


@click.command()
@click.argument("memory_id", metavar="ID")
@click.option("--fact", multiple=True, metavar="SENTENCE", help="What is right. Repeat it for a fact of several sentences.")
@click.option("--scene", metavar="TEXT", help="A scene that goes with it; an empty text takes it away.")
@click.option("--anchor", metavar="SLUG", help="What it is about, as in spare-key.")
@click.option("--category", metavar="TEXT", help="Its category.")
@click.option("--type", "info_type", type=click.Choice(["discrete", "compositional", "relational"]), help="Its information type.")
@by_option
@store_option
@scope_option
@model_options
@json_option
def edit(  # noqa: PLR0913, PLR0917 - one parameter for each option
    memory_id: str,
    fact: tuple[str, ...],
    scene: str | None,
    anchor: str | None,
    category: str | None,
    info_type: str | None,
    by: str,
    store_path: Path,
    scope: Scope,
    choice: Choice,
    as_json: bool,
) -> None:
    """Correct a memory. The old version stays in its history; searches and answers use the new one.

    A new fact without a new scene takes the scene away, since it holds the old details.
    """
    from dualtrace_local.pipeline.correct import Edit

    with mine(store_path, scope, choice) as own:
        made = own.edit(memory_id, Edit(fact or None, scene, anchor, category, info_type), by=by)
    _tell(made, as_json=as_json)


@click.command()
@click.argument("memory_id", metavar="ID")
@by_option
@store_option
@scope_option
@model_options
@json_option
def verify(memory_id: str, by: str, store_path: Path, scope: Scope, choice: Choice, as_json: bool) -> None:
    """Say that a memory is right. One that was retracted comes back."""
    with mine(store_path, scope, choice) as own:
        made = own.verify(memory_id, by=by)
    _tell(made, as_json=as_json)


@click.command()
@click.argument("memory_id", metavar="ID")
@by_option
@store_option
@scope_option
@model_options
@json_option
def retract(memory_id: str, by: str, store_path: Path, scope: Scope, choice: Choice, as_json: bool) -> None:
    """Take a memory out of every search, answer, list and export. Its history and its verbatim rounds stay; forget removes."""
    with mine(store_path, scope, choice) as own:
        made = own.retract(memory_id, by=by)
    _tell(made, as_json=as_json)


@click.command()
@click.argument("memory_id", metavar="ID")
@click.argument("number", required=False, type=click.IntRange(min=1), metavar="[CHANGE]")
@by_option
@store_option
@scope_option
@model_options
@json_option
def undo(memory_id: str, number: int | None, by: str, store_path: Path, scope: Scope, choice: Choice, as_json: bool) -> None:
    """Put back what a change of a memory changed: the newest, or the one with the number that history shows.

    What other changes did stays. Refused when a later one changed the same again. What was forgotten cannot be undone.
    """
    with mine(store_path, scope, choice) as own:
        made = own.undo(memory_id, number, by=by)
    _tell(made, as_json=as_json)


@click.command()
@click.argument("memory_id", required=False, default="", metavar="[ID]")
@store_option
@scope_option
@no_model
@json_option
def history(memory_id: str, store_path: Path, scope: Scope, as_json: bool) -> None:
    """Every version of a memory, or of all that were ever changed: what, by whom, when."""
    with mine(store_path, scope) as own:
        found = own.history(memory_id)
    if as_json:
        emit({"changes": [change_json(c) for c in found]})
        return
    made = render.table("id", ">change", "what", "by", "at", "status", "anchor", "fact")
    for c in found:
        made.add_row(c.memory.id[:12], str(c.number), c.action, c.by, c.at, c.memory.status, c.memory.anchor, c.memory.fact)
    render.out().print(made)


# ---------------------------------------------------------------------------------------------------------- forget


@click.command()
@click.argument("memory_id", required=False, default="", metavar="[ID]")
@click.option("--session", default="", metavar="ID", help="A whole session, by its id in the source or the beginning of its key.")
@click.option("--source", default="", metavar="FILE", help="Every session of a taught file, by its name.")
@click.option("--anchor", default="", metavar="SLUG", help="Every memory with this anchor.")
@click.option(
    "--search", "words", default="", metavar="TEXT", help="Every memory and session in which this text stands, whatever its case."
)
@click.option("--everything", is_flag=True, help="All of the scope.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--dry-run", is_flag=True, help="Only show what would go.")
@store_option
@scope_option
@no_model
@json_option
def forget(  # noqa: PLR0913, PLR0917 - one parameter for each option
    memory_id: str,
    session: str,
    source: str,
    anchor: str,
    words: str,
    everything: bool,
    yes: bool,
    dry_run: bool,
    store_path: Path,
    scope: Scope,
    as_json: bool,
) -> None:
    """Remove for good: texts, vectors, index terms, verbatim rounds, versions, failures, and copies in a run folder.

    With a single memory go all verbatim rounds of its session, and memories that rest on the same words. Shows what will go, asks, removes
    it, and proves it by a search of the bytes of all files. It does not come back when the same file is taught, unless with --again.
    """
    from dualtrace_local.pipeline.forget import Which

    which = Which(memory_id, session, source, anchor, words, everything)
    shown: list[Plan] = []
    with mine(store_path, scope) as own:
        done = own.forget(which, _asking(shown, ask=not yes, dry_run=dry_run, as_json=as_json))
    if as_json:
        emit(_forgotten_json(shown[0], done))
    elif done:
        _forgotten(done)
    if done and not done.gone:
        click.get_current_context().exit(1)


def _asking(shown: list[Plan], *, ask: bool, dry_run: bool, as_json: bool) -> Callable[[Plan], bool]:
    def agreed(plan: Plan) -> bool:
        shown.append(plan)
        if not as_json:
            _plan(plan)
        if dry_run:
            return False
        return not ask or click.confirm("Remove this for good?", err=True)

    return agreed


def _plan(plan: Plan) -> None:
    made = render.table("id", "date", "anchor", "fact")
    for m in plan.memories:
        why = " (rests on the same words)" if m.id in plan.alike else ""
        made.add_row(m.id[:12], f"{m.date:%Y-%m-%d}" if m.date else "", m.anchor, m.fact + why)
    console = render.out()
    console.print(made)
    console.print(f"{len(plan.memories)} memories, {len(plan.rounds)} verbatim rounds, {len(plan.sessions)} whole sessions")
    for row in plan.sessions[:NAMED]:
        console.print(f"  session {row.external_id or row.key[:12]} of {row.date or 'an unknown day'}, {row.source}:{row.record}")
    if len(plan.sessions) > NAMED:
        console.print(f"  and {len(plan.sessions) - NAMED} more")


def _forgotten_json(plan: Plan, done: Forgotten | None) -> dict[str, Any]:
    from dualtrace_local.pipeline.forget import OUT_OF_REACH

    found: dict[str, Any] = {
        "removed": done is not None,
        "memories": [m.id for m in plan.memories],
        "alike": list(plan.alike),
        "sessions": [row.key for row in plan.sessions],
        "rounds": len(plan.rounds),
    }
    if done:
        found |= {"gone": done.gone, "proof": plain(done.proof), "files": done.files, "cleaned": done.cleaned, "left_in": list(done.where)}
        found |= {"blind": list(done.blind), "out_of_reach": list(OUT_OF_REACH)}
    return found


def _forgotten(done: Forgotten) -> None:
    from dualtrace_local.pipeline.forget import OUT_OF_REACH

    console = render.out()
    console.print("removed" if done.gone else "NOT ALL REMOVED")
    made = render.table("looked for", ">pieces", ">found before", ">found after")
    for kind, sought in done.proof.items():
        made.add_row(kind, str(sought.looked_for), str(sought.before), str(sought.left))
    console.print(made)
    console.print(f"in every byte of {done.files} files, as UTF-8, in small letters and as UTF-16; {done.rows_left} rows left")
    for kind in done.blind:
        console.print(f"no {kind} was seen before either: its absence is shown by the rows alone", soft_wrap=True)
    for name, lines in done.cleaned.items():
        console.print(f"{name}: {lines} removed")
    for name in done.where:
        console.print(f"still in {name}; delete it, or repeat the command when no other program uses the store", soft_wrap=True)
    console.print("Out of reach:")
    for line in OUT_OF_REACH:
        console.print(f"- {line}", soft_wrap=True)


# --------------------------------------------------------------------------------------------------- export, import


@click.command()
@click.argument("target", metavar="OUT", type=click.Path(path_type=Path))
@click.option("--format", "form", type=click.Choice(["archive", "markdown"]), default="archive", show_default=True,
              help="archive: one file of JSON lines with everything but vectors; markdown: a folder to read, a file a trace.")  # fmt: skip
@click.option("--all-scopes", is_flag=True, help="Of every user and project, not of --scope alone.")
@store_option
@scope_option
@no_model
@json_option
def export(target: Path, form: str, all_scopes: bool, store_path: Path, scope: Scope, as_json: bool) -> None:
    """Take memories away as files. An archive holds history, retracted memories and verbatim rounds too, and can be imported again."""
    from dualtrace_local import __version__
    from dualtrace_local.pipeline.export import scopes_of, write_archive, write_markdown

    with render.opened(store_path) as store:
        scopes = scopes_of(store) if all_scopes else [scope]
        if form == "archive":
            done = write_archive(store, scopes, target, __version__)
        else:
            done = write_markdown([m for s in scopes for m in store.memories(s)], target)
    if as_json:
        emit(plain(done))
    else:
        click.echo(f"{done.memories} memories of {done.sessions} sessions in {done.files} files")


@click.command("import")
@click.argument("archive", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--again", is_flag=True, help="Bring back what was forgotten by order too.")
@store_option
@model_options
@json_option
def import_(archive: Path, again: bool, store_path: Path, choice: Choice, as_json: bool) -> None:
    """Put an archive into a store. Doing it again adds nothing; ids, dates, scopes and history are kept, vectors are made anew."""
    from dualtrace_local.pipeline.export import read_archive
    from dualtrace_local.pipeline.parts import Parts

    with Parts(choice.models, listener()) as parts:
        done = read_archive(archive, store_path, parts, again=again)
    if as_json:
        emit(plain(done))
    else:
        counts = " + ".join(f"{getattr(done, name)} {name}" for name in ("added", "unchanged", "forgotten", "failed"))
        click.echo(f"{done.read} sessions read = {counts}")
    finish(done.failed)
