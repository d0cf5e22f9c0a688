"""Commands about this machine: models and doctor."""

from __future__ import annotations

from pathlib import Path

import click

from dualtrace_local.config import lock_file

from . import render
from .common import Choice, emit, json_option, model_options, roles_of, say


@click.group()
def models() -> None:
    """The models known by name: list, fetch, check, carry."""


@models.command("list")
@click.option("--fits", is_flag=True, help="Only what is proposed for the card of this machine, best first.")
@model_options
@json_option
def list_(fits: bool, choice: Choice, as_json: bool) -> None:
    """List the models of models.yaml: roles, card, context, licence, what to know, and whether their files are here."""
    from dualtrace_local.pipeline.health import cards, fitting
    from dualtrace_local.weights import located

    known = choice.models.models
    shown = fitting(known, [card.memory for card in cards()]) if fits else tuple(known)
    here = {name: not known[name].has_files or located(name, known[name]) is not None for name in shown}
    if as_json:
        emit({"roles": roles_of(choice.models), "models": render.models_json(choice.models, here)})
    elif shown:
        render.models(choice.models, here)
    else:
        say("no entry of models.yaml is for a card like this machine's; the embedded default runs without one")


def _chosen(choice: Choice, names: tuple[str, ...]) -> tuple[str, ...]:
    return names or tuple(dict.fromkeys(roles_of(choice.models).values()))


@models.command()
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--update", is_flag=True, help="Take what the hub's revision means now, and write that into the lock file.")
@model_options
@json_option
def pull(names: tuple[str, ...], update: bool, choice: Choice, as_json: bool) -> None:
    """Fetch models and verify their SHA-256; those of all roles when no NAME is given.

    The only command that looks anything up in the network. A model from the hub is the commit that the lock file names; the first pull
    writes it there, beside the file of --models or $DUALTRACE_MODELS, else in the cache. A token is sent only when HF_TOKEN is set.
    """
    from dualtrace_local.weights import pull as fetch

    lock = lock_file(choice.models_file)
    specs = {name: choice.models.spec(name) for name in _chosen(choice, names)}
    folders = {name: str(fetch(name, spec, say, lock, update=update)) if spec.has_files else "" for name, spec in specs.items()}
    if as_json:
        emit({"models": {name: {"folder": folder} for name, folder in folders.items()}})


@models.command()
@click.argument("names", nargs=-1, metavar="[NAME]...")
@model_options
@json_option
def check(names: tuple[str, ...], choice: Choice, as_json: bool) -> None:
    """Read every file of the models again and compare digests; those of all roles when no NAME is given.

    Compared too: the lock file, and with models.yaml the licence on the model's card, its chat template and its longest context.
    """
    from dualtrace_local.weights import check as verify
    from dualtrace_local.weights import read_lock

    held = read_lock(lock_file(choice.models_file))
    found = {name: list(verify(name, choice.models.spec(name), held.get(name))) for name in _chosen(choice, names)}
    if as_json:
        emit({"models": {name: {"good": not problems, "problems": problems} for name, problems in found.items()}})
    else:
        render.checks(found)
    click.get_current_context().exit(1 if any(found.values()) else 0)


@models.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option("--out", required=True, metavar="FILE", type=click.Path(dir_okay=False, path_type=Path), help="The tar to write.")
@model_options
@json_option
def bundle(names: tuple[str, ...], out: Path, choice: Choice, as_json: bool) -> None:
    """Write models that are here into one tar, for a machine without any network. It holds nothing but models."""
    from dualtrace_local.weights import bundle as write

    write({name: choice.models.spec(name) for name in names}, out, say)
    if as_json:
        emit({"bundle": str(out), "bytes": out.stat().st_size, "models": sorted(set(names))})


@models.command()
@click.argument("file", metavar="FILE", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--update", is_flag=True, help="Take the bundle's commit where the lock file names another.")
@model_options
@json_option
def unbundle(file: Path, update: bool, choice: Choice, as_json: bool) -> None:
    """Take the models out of a bundle, after comparing every byte with its manifest; no network is used."""
    from dualtrace_local.weights import unbundle as read

    folders = read(file, choice.models, lock_file(choice.models_file), say, update=update)
    if as_json:
        emit({"models": {name: {"folder": str(folder)} for name, folder in folders.items()}})


@click.command()
@model_options
@json_option
def doctor(choice: Choice, as_json: bool) -> None:
    """Say what machine, cards, libraries, models and off-switches are in force, which model fits, and what to do about what is missing."""
    from dualtrace_local.pipeline.health import examine

    found = examine(choice.models)
    if as_json:
        emit(render.health_json(found))
    else:
        render.health(found)
    click.get_current_context().exit(0 if found.good else 1)
