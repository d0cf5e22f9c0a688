"""What changed and what contradicts itself among the memories of a scope."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dualtrace_local.records import Component, Memory, Scope

from .common import emit, json_option, no_model, scope_option, store_option
from .daily import memory
from .render import opened, out, table


@memory.command("conflicts")
@store_option
@scope_option
@no_model
@json_option
def conflicts(store_path: Path, scope: Scope, as_json: bool) -> None:
    """List memories that tell differently of one thing: changes, where the later one holds, and conflicts, where neither does.

    Worked out anew each time from what is stored; nothing is stored by it. Status: observed is what the user said plainly, inferred what
    they were unsure of.
    """
    from dualtrace_local.grounding.lineup import line_up

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


def _told(source: Memory, component: Component) -> dict[str, str]:
    day = f"{source.date:%Y-%m-%d}" if source.date else ""
    return {"id": source.id, "date": day, "status": "inferred" if component.hedged else "observed", "says": component.text}


def _show(found: Sequence[dict[str, Any]]) -> None:
    made = table("", "said on", "id", "status", "what")
    for pair in found:
        for which in ("later", "earlier"):
            told = pair[which]
            made.add_row(pair["kind"] if which == "later" else "", told["date"], told["id"][:12], told["status"], told["says"])
    out().print(made)
    changed = sum(pair["kind"] == "changed" for pair in found)
    out().print(f"{changed} changed, {len(found) - changed} in conflict")
