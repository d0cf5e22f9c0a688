"""What commands share: options, progress on stderr, one JSON document on stdout."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click

from dualtrace_local.config import Models, Role, read_models
from dualtrace_local.errors import ConfigError
from dualtrace_local.records import Scope

if TYPE_CHECKING:
    from dualtrace_local.pipeline.parts import Listener

F = TypeVar("F", bound=Callable[..., Any])
FAILED_RECORDS = 3


@dataclass(frozen=True)
class Choice:
    """The model options of a command."""

    models: Models
    seed: int
    models_file: Path | None = None


def model_options(command: F) -> F:
    """``--model`` and its kin; the command gets ``choice``. With ``--server`` the names are the server's own."""

    @click.option("--server", "servers", multiple=True, metavar="URL", help="OpenAI-compatible server to use instead. Repeatable.")
    @click.option("--model", metavar="NAME", help="Model for all of writing, reading and judging.")
    @click.option("--encode-model", metavar="NAME", help="Model that writes memories.")
    @click.option("--read-model", metavar="NAME", help="Model that answers.")
    @click.option("--judge-model", metavar="NAME", help="Model that judges.")
    @click.option("--models", "models_file", metavar="FILE", type=click.Path(dir_okay=False, path_type=Path), help="Another models.yaml.")
    @click.option("--seed", default=0, show_default=True, help="Seed of the engine and of every request.")
    @functools.wraps(command)
    def wrapped(
        *args: Any,
        servers: tuple[str, ...],
        model: str | None,
        encode_model: str | None,
        read_model: str | None,
        judge_model: str | None,
        models_file: Path | None,
        seed: int,
        **options: Any,
    ) -> Any:
        known = read_models(models_file)
        names = {"encode": encode_model or model, "read": read_model or model, "judge": judge_model or model}
        models = known.with_server(servers, **names) if servers else known.with_roles(**names)
        return command(*args, choice=Choice(models, seed, models_file), **options)

    return wrapped  # type: ignore[return-value]


def no_model(command: F) -> F:
    """The model options for a command that needs no model, so that one set of options fits all: names are checked, nothing else."""

    @model_options
    @functools.wraps(command)
    def wrapped(*args: Any, choice: Choice, **options: Any) -> Any:
        del choice
        return command(*args, **options)

    return wrapped  # type: ignore[return-value]


json_option = click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout instead of text.")
store_option = click.option(
    "--store",
    "store_path",
    required=True,
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    help="The store's folder.",
)
conditions_file_option = click.option(
    "--conditions-file", metavar="FILE", type=click.Path(dir_okay=False, path_type=Path), help="Conditions of your own."
)
limit_option = click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Only the first N records of each source.")


def _parse_scope(_ctx: click.Context, _param: click.Parameter, values: tuple[str, ...]) -> Scope:
    given: dict[str, str] = {}
    for value in values:
        name, equals, text = value.partition("=")
        if name not in ("user", "project") or not equals or not text:
            raise click.BadParameter(f"{value!r}; write user=NAME or project=NAME")
        if not text.isprintable():
            raise click.BadParameter(f"{value!r}; a name holds no control or broken characters")
        given[name] = text
    return Scope(**given)


scope_option = click.option(
    "--scope",
    callback=_parse_scope,
    multiple=True,
    metavar="user=NAME",
    help="Whose memories: user=NAME, project=NAME. May be repeated.",
)


def parse_as_of(_ctx: click.Context, _param: click.Parameter, value: str | None) -> datetime:
    """``--as-of`` as a date; without it, now (the one use of the clock, for a question asked now)."""
    from dualtrace_local.corpus import parse_date

    if value is None:
        return datetime.now().replace(second=0, microsecond=0)  # noqa: DTZ005 - local wall time, as sessions have it
    if (date := parse_date(value)) is None:
        raise click.BadParameter(f"{value!r} is not a date; write YYYY-MM-DD or YYYY-MM-DD HH:MM")
    return date


def emit(value: object) -> None:
    """Print one JSON document on stdout, as UTF-8 whatever the locale; half a surrogate pair becomes an escape that JSON reads back."""
    emit_line(json.dumps(value, ensure_ascii=False, indent=2, allow_nan=False))


def emit_line(text: str) -> None:
    """Print JSON text on stdout as it is said in ``emit``."""
    click.echo(text.encode("utf-8", "backslashreplace"))


def say(line: str) -> None:
    """One line on stderr, without credentials: a value that cannot be read may hold one."""
    from dualtrace_local.masking import mask

    click.echo(mask(line), err=True)


def finish(failed: int) -> NoReturn:
    """End with 3 when something failed, else 0."""
    click.get_current_context().exit(FAILED_RECORDS if failed else 0)


def listener() -> Listener:
    """Progress with rate and time left on stderr: a moving bar on a terminal, else a line now and then."""
    from .progress import Progress

    return Progress()


def roles_of(models: Models) -> dict[str, str]:
    """Which model plays which role."""
    return {role.value: models.roles[role] for role in Role}


def names(value: str) -> tuple[str, ...]:
    """A comma-separated list. Raises ConfigError when it is empty."""
    found = tuple(dict.fromkeys(part.strip() for part in value.split(",") if part.strip()))
    if not found:
        raise ConfigError("--conditions is empty; name at least one, for example c6,c7")
    return found
