"""Commands about conditions: the named ways to use a taught store, the shipped ones or those of a file."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import click
import yaml

from dualtrace_local.config import Condition, read_conditions

from .common import conditions_file_option, emit, json_option, no_model
from .render import fields, out, table

MARK = "reconstruction"
"""Stands wherever a condition is shown that the paper does not describe in full."""


@click.group()
def conditions() -> None:
    """The named ways to use a taught store (`run --conditions`, `ask --condition`)."""


@conditions.command("list")
@conditions_file_option
@no_model
@json_option
def list_(conditions_file: Path | None, as_json: bool) -> None:
    """All conditions: what of a store each sees, by what it finds it, and what the reader is shown."""
    known = read_conditions(conditions_file).conditions
    if as_json:
        emit({"conditions": [_document(name, condition) for name, condition in known.items()]})
        return
    made = table("condition", "stored", "found by", "search", "reader sees", "")
    for name, condition in known.items():
        made.add_row(name, *_in_words(condition).values(), MARK if condition.reconstruction else "")
    out().print(made)


@conditions.command("show")
@click.argument("name")
@conditions_file_option
@no_model
@json_option
def show(name: str, conditions_file: Path | None, as_json: bool) -> None:
    """One condition, in words and as an entry of a conditions file."""
    condition = read_conditions(conditions_file).get(name)
    if as_json:
        emit(_document(name, condition))
        return
    fields({"condition": name, "what it is": condition.told} | {k: v for k, v in _in_words(condition).items() if v})
    entry = condition.model_dump(mode="json", exclude_defaults=True)
    out().print("\nas an entry of a conditions file:\n")
    out().print(yaml.safe_dump({name: entry}, sort_keys=False, allow_unicode=True, width=math.inf), end="", soft_wrap=True)


def _document(name: str, condition: Condition) -> dict[str, Any]:
    return {"name": name, **condition.model_dump(mode="json")}


def _in_words(condition: Condition) -> dict[str, str]:
    """The columns of the list."""
    if condition.stored == "nothing":
        return {"stored": "nothing", "found by": "", "search": "", "reader sees": ""}
    stored = condition.stored.replace("+", " + ")
    stored += f", total >= {condition.minimum}" if condition.minimum else ""
    stored += f", scene from {condition.scene_from}" if condition.scene_from else ""
    stored += f", with stakes from {condition.stakes_from}" if condition.stakes_from else ""
    stored += ", written jointly" if condition.taught == "jointly" else ""
    stored += " of evidence sessions" if condition.sessions == "evidence" else ""
    scene = {"recalled": "scene made at recall", "shuffled": "another's scene", "quote": "quote"}.get(condition.scene, "scene")
    return {
        "stored": stored,
        "found by": "" if condition.search == "everything" else condition.key.replace("+", " + "),
        "search": condition.search + (f" + {condition.anchors} anchors" if condition.anchors else ""),
        "reader sees": condition.shows.replace("+scene", f" + {scene}") + (", all that fits" if condition.room == "context" else ""),
    }
