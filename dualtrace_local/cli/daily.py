"""Commands of daily life: teach, remember, ask, memory, store."""

from __future__ import annotations

import json
import sys
from datetime import datetime
from pathlib import Path

import click

from dualtrace_local.config import TeachSettings, read_conditions
from dualtrace_local.errors import DataError
from dualtrace_local.records import Scope, plain

from . import render
from .common import (
    Choice,
    conditions_file_option,
    emit,
    emit_line,
    finish,
    json_option,
    limit_option,
    listener,
    model_options,
    no_model,
    parse_as_of,
    scope_option,
    store_option,
)


@click.command()
@click.argument("sources", nargs=-1, required=True, metavar="SOURCE...", type=click.Path(path_type=Path))
@store_option
@scope_option
@limit_option
@click.option("--assistant-chars", type=click.IntRange(min=0), default=TeachSettings().assistant_chars, show_default=True,
              help="Characters of each assistant turn that the writer reads.")  # fmt: skip
@click.option("--again", is_flag=True, help="Teach what was forgotten by order too.")
@click.option("--keep-rounds", type=click.Choice(["all", "kept", "none"]), default="all", show_default=True,
              help="Verbatim rounds to store: of all sessions, of those kept by the gate, or none.")  # fmt: skip
@model_options
@json_option
def teach(  # noqa: PLR0913, PLR0917 - one parameter for each option
    sources: tuple[Path, ...],
    store_path: Path,
    scope: Scope,
    limit: int | None,
    assistant_chars: int,
    again: bool,
    keep_rounds: str,
    choice: Choice,
    as_json: bool,
) -> None:
    """Read chat files into a store. What is there already stays; an interrupted teach goes on.

    SOURCE is an export of ChatGPT or Claude (zip, folder or file), chats as Markdown or text, or a file of LongMemEval, LoCoMo, ShareGPT
    or plain sessions {"id", "date", "turns": [{"role", "content"}]}, as a JSON array or JSON lines, packed with gzip or not; the format is
    found from the content.
    """
    from dualtrace_local import Memory

    settings = TeachSettings.model_validate({"assistant_chars": assistant_chars, "keep_rounds": keep_rounds, "seed": choice.seed})
    with Memory.open(
        store_path, user=scope.user, project=scope.project, models=choice.models, listener=listener(), seed=choice.seed
    ) as mine:
        totals = mine.teach(*sources, settings=settings, limit=limit, again=again)
    if as_json:
        emit(render.totals_json(totals))
    else:
        render.totals(totals)
    finish(totals.failed)


@click.command()
@click.argument("text")
@store_option
@scope_option
@click.option("--as-of", callback=parse_as_of, metavar="DATE", help="When it is said, for words like yesterday; now by default.")
@model_options
@json_option
def remember(text: str, store_path: Path, scope: Scope, as_of: datetime, choice: Choice, as_json: bool) -> None:
    """Keep one statement about yourself, whatever the gate would say.

    TEXT is the statement in your own words, or - to read it from stdin. Credentials in it are masked, as always.
    """
    from dualtrace_local import Memory

    said = _stdin() if text == "-" else text
    with Memory.open(
        store_path, user=scope.user, project=scope.project, models=choice.models, listener=listener(), seed=choice.seed
    ) as mine:
        found = mine.remember(said, as_of=as_of)
    if as_json:
        emit(render.remembered_json(found))
    else:
        render.remembered(found)


def _stdin() -> str:
    """All of stdin, as UTF-8. Raises DataError when it is something else."""
    try:
        return sys.stdin.buffer.read().decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        raise DataError(f"stdin: not UTF-8 at byte {problem.start + 1}; give the statement as UTF-8 text") from problem


@click.command()
@click.argument("question")
@store_option
@scope_option
@click.option("--as-of", callback=parse_as_of, metavar="DATE", help="The day on which the question is asked; today by default.")
@click.option("--condition", default="c6", show_default=True, metavar="NAME", help="How the store is used; see conditions.yaml.")
@conditions_file_option
@model_options
@json_option
def ask(question: str, store_path: Path, scope: Scope, as_of: datetime, condition: str, conditions_file: Path | None,
        choice: Choice, as_json: bool) -> None:  # fmt: skip
    """Answer a question from a store."""
    from dualtrace_local import Memory

    rules = read_conditions(conditions_file).get(condition)
    with Memory.open(
        store_path, user=scope.user, project=scope.project, models=choice.models, listener=listener(), seed=choice.seed
    ) as mine:
        answer = mine.ask(question, as_of=as_of, condition=condition, rules=rules)
    if as_json:
        emit(render.answer_json(answer))
    else:
        render.answer(answer)


@click.group()
def memory() -> None:
    """See, correct, forget and take away what is remembered."""


@memory.command("list")
@store_option
@scope_option
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="At most N memories.")
@click.option("--retracted", is_flag=True, help="Those that were retracted, instead.")
@no_model
@json_option
def list_(store_path: Path, scope: Scope, limit: int | None, retracted: bool, as_json: bool) -> None:
    """List the memories of a scope as they are now, by date."""
    with render.opened(store_path) as store:
        there = store.retracted(scope) if retracted else store.memories(scope)
        found = sorted(there, key=lambda m: (m.date is not None, m.date, m.session_key, m.ordinal))[:limit]
    if as_json:
        emit({"memories": [render.memory_json(m) for m in found]})
    else:
        render.memories(found)


@memory.command()
@click.argument("memory_id", metavar="ID")
@store_option
@scope_option
@no_model
@json_option
def show(memory_id: str, store_path: Path, scope: Scope, as_json: bool) -> None:
    """Show one memory whole: fact, scene, scores, the user's words it rests on, the turns they stand in. ID may be its first characters."""
    with render.opened(store_path) as store:
        found = store.memory(memory_id, scope)
        source = next((row for row in store.sessions(scope) if row.key == found.session_key), None)
        rounds = store.rounds(scope, frozenset((found.session_key,)))
    turns = [r for r in rounds if any(c.quote and c.quote in r.user for c in found.components)]
    if as_json:
        emit(render.memory_json(found) | {"source": f"{source.source}:{source.record}" if source else "", "turns": plain(turns)})
    else:
        render.memory(found, source, turns)


@memory.command()
@store_option
@scope_option
@no_model
@json_option
def stats(store_path: Path, scope: Scope, as_json: bool) -> None:
    """Count what the gate kept, by tier, type and category."""
    with render.opened(store_path) as store:
        found = render.stats_json(store.sessions(scope), store.memories(scope))
    if as_json:
        emit(found)
    else:
        render.stats(found)


@click.group()
def store() -> None:
    """Look at a store as a whole, check it and care for it."""


@store.command()
@store_option
@no_model
@json_option
def dump(store_path: Path, as_json: bool) -> None:
    """Print every row, sorted, one JSON object a line (an array with --json): two stores are equal when their dumps are."""
    with render.opened(store_path) as opened:
        rows = opened.dump()
        if as_json:
            emit(list(rows))
        else:
            for row in rows:
                emit_line(json.dumps(row, ensure_ascii=False, sort_keys=True))


@store.command()
@store_option
@no_model
@json_option
def info(store_path: Path, as_json: bool) -> None:
    """Say what a store holds, with which embedding model, and its size."""
    with render.opened(store_path) as opened:
        found = plain(opened.info())
    if as_json:
        emit(found)
    else:
        render.fields(found)
