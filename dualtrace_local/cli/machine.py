"""Commands about this machine: models and doctor."""

from __future__ import annotations

import click

from . import render
from .common import Choice, emit, json_option, model_options, roles_of, say


@click.group()
def models() -> None:
    """The models known by name: list, fetch, check."""


@models.command("list")
@model_options
@json_option
def list_(choice: Choice, as_json: bool) -> None:
    """List the models of models.yaml, their roles, licences, and whether their files are here."""
    from dualtrace_local.weights import located

    here = {name: spec.engine == "scripted" or located(name, spec) is not None for name, spec in choice.models.models.items()}
    if as_json:
        emit({"roles": roles_of(choice.models), "models": render.models_json(choice.models, here)})
    else:
        render.models(choice.models, here)


def _chosen(choice: Choice, names: tuple[str, ...]) -> tuple[str, ...]:
    return names or tuple(dict.fromkeys(roles_of(choice.models).values()))


@models.command()
@click.argument("names", nargs=-1, metavar="[NAME]...")
@model_options
@json_option
def pull(names: tuple[str, ...], choice: Choice, as_json: bool) -> None:
    """Fetch models and verify their SHA-256; those of all roles when no NAME is given. The only command that uses the network."""
    from dualtrace_local.weights import pull as fetch

    specs = {name: choice.models.spec(name) for name in _chosen(choice, names)}
    folders = {name: "" if spec.engine == "scripted" else str(fetch(name, spec, say)) for name, spec in specs.items()}
    if as_json:
        emit({"models": {name: {"folder": folder} for name, folder in folders.items()}})


@models.command()
@click.argument("names", nargs=-1, metavar="[NAME]...")
@model_options
@json_option
def check(names: tuple[str, ...], choice: Choice, as_json: bool) -> None:
    """Read every file of the models again and compare digests; those of all roles when no NAME is given."""
    from dualtrace_local.weights import check as verify

    found = {
        name: [] if choice.models.spec(name).engine == "scripted" else list(verify(name, choice.models.spec(name)))
        for name in _chosen(choice, names)
    }
    if as_json:
        emit({"models": {name: {"good": not problems, "problems": problems} for name, problems in found.items()}})
    else:
        render.checks(found)
    click.get_current_context().exit(1 if any(found.values()) else 0)


@click.command()
@model_options
@json_option
def doctor(choice: Choice, as_json: bool) -> None:
    """Say what machine, libraries, models and off-switches are in force, and what to do about what is missing."""
    from dualtrace_local.pipeline.health import examine

    found = examine(choice.models)
    if as_json:
        emit(render.health_json(found))
    else:
        render.health(found)
    click.get_current_context().exit(0 if found.good else 1)
