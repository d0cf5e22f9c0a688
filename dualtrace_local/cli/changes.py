"""What changed and what contradicts itself among the memories of a scope."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from dualtrace_local.grounding.lineup import line_up
from dualtrace_local.records import VERIFIED, Component, Memory, Scope

from .common import Choice, emit, json_option, model_options, no_model, scope_option, store_option
from .memories import by_option, change_json, mine
from .render import opened, out, table


@click.command()
@store_option
@scope_option
@no_model
@json_option
def conflicts(store_path: Path, scope: Scope, as_json: bool) -> None:
    """List memories that tell differently of one thing: changes, where the later one holds, and conflicts, where neither does.

    Worked out anew each time from what is stored; nothing is stored by it. Status: verified is what the owner said is right, observed what
    the user said plainly, inferred what they were unsure of.
    """
    with opened(store_path) as store:
        known = store.memories(scope)
    found = [
        {"kind": pair.kind, "earlier": _told(known[pair.earlier], pair.was), "later": _told(known[pair.later], pair.told)}
        for pair in line_up(known)
    ]
    if as_json:
        emit({"pairs": found})
    else:
        _show(found)


@click.command()
@click.argument("memory_id", metavar="ID")
@by_option
@store_option
@scope_option
@model_options
@json_option
def resolve(memory_id: str, by: str, store_path: Path, scope: Scope, choice: Choice, as_json: bool) -> None:
    """Say which of several memories in conflict holds: this one is verified, those that contradict it are retracted.

    Each is a version of its own that `memory undo` takes back.
    """
    with mine(store_path, scope, choice) as own:
        made = own.resolve(memory_id, by=by)
    if as_json:
        emit({"changes": [change_json(c) for c in made]})
        return
    for c in made:
        out().print(f"{c.memory.id[:12]}: {c.action} by {c.by} at {c.at}: {c.memory.fact}", markup=False)


def _told(source: Memory, component: Component) -> dict[str, str]:
    day = f"{source.date:%Y-%m-%d}" if source.date else ""
    status = VERIFIED if source.status == VERIFIED else "inferred" if component.hedged else "observed"
    return {"id": source.id, "date": day, "status": status, "says": component.text}


def _show(found: Sequence[dict[str, Any]]) -> None:
    made = table("", "said on", "id", "status", "what")
    for pair in found:
        for which in ("later", "earlier"):
            told = pair[which]
            made.add_row(pair["kind"] if which == "later" else "", told["date"], told["id"][:12], told["status"], told["says"])
    out().print(made)
    changed = sum(pair["kind"] == "changed" for pair in found)
    out().print(f"{changed} changed, {len(found) - changed} in conflict")
