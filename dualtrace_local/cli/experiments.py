"""Commands of an experiment: run, and the demo."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import click

from dualtrace_local.config import TeachSettings, read_conditions
from dualtrace_local.errors import ConfigError

from . import render
from .common import Choice, conditions_file_option, emit, finish, json_option, limit_option, listener, model_options, names
from .judging import show
from .stats import compare_folders


def _parse_seeds(_ctx: click.Context, _param: click.Parameter, value: str | None) -> tuple[int, ...]:
    """``--seeds 0,1,2``; empty when it is not given."""
    if value is None:
        return ()
    given = [part.strip() for part in value.split(",")]
    if not all(part.isdecimal() for part in given) or len(set(map(int, given))) < len(given):
        raise click.BadParameter(f"{value!r}; write different whole numbers, for example 0,1,2")
    return tuple(map(int, given))


@click.command()
@click.argument("dataset", type=click.Path(path_type=Path))
@click.option(
    "--out",
    required=True,
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    help="The run's folder; resumed when it exists.",
)
@click.option("--conditions", default="c6,c7", show_default=True, metavar="NAMES", help="Conditions, separated by commas.")
@conditions_file_option
@click.option("--protocol", type=click.Choice(["official", "pooled"]), default="official", show_default=True,
              help="official: a question sees its own haystack; pooled: one store of all haystacks, as in the paper.")  # fmt: skip
@click.option("--hide-later", is_flag=True, help="Hide sessions dated after the question.")
@click.option("--development", is_flag=True, help="Label the numbers: prompts or thresholds were tuned on these rows.")
@click.option("--assistant-chars", type=click.IntRange(min=0), default=TeachSettings().assistant_chars, show_default=True,
              help="Characters of each assistant turn that the writer reads.")  # fmt: skip
@click.option("--sample", type=click.Choice(["paper"]), help="paper: draw 20 questions of each of the paper's kinds and 20 abstentions.")
@click.option("--sample-seed", type=int, metavar="N", help="Seed of the draw; 42 if not given.")
@click.option("--seeds", metavar="LIST", callback=_parse_seeds,
              help="Several runs, one for each seed (0,1,2), in seed-N folders under --out; instead of --seed.")  # fmt: skip
@limit_option
@model_options
@json_option
def run(  # noqa: PLR0913, PLR0917 - one parameter for each option
    dataset: Path,
    out: Path,
    conditions: str,
    conditions_file: Path | None,
    protocol: str,
    hide_later: bool,
    development: bool,
    assistant_chars: int,
    sample: str | None,
    sample_seed: int | None,
    seeds: tuple[int, ...],
    limit: int | None,
    choice: Choice,
    as_json: bool,
) -> None:
    """Teach DATASET once, answer its questions under each condition, judge, report. Started again, it goes on where it stopped."""
    from dualtrace_local.pipeline import experiment
    from dualtrace_local.pipeline.parts import Parts
    from dualtrace_local.pipeline.sample import SEED, draw

    if sample is None and sample_seed is not None:
        raise ConfigError("--sample-seed is the seed of a draw; give --sample paper too, or leave it out")
    plan = experiment.Plan(
        dataset,
        names(conditions),
        "pooled" if protocol == "pooled" else "official",
        hide_later,
        limit,
        TeachSettings(assistant_chars=assistant_chars),
        development,
        draw(dataset, SEED if sample_seed is None else sample_seed, limit) if sample else None,
    )
    chosen = read_conditions(conditions_file)

    def once(seed: int, folder: Path) -> experiment.Result:
        seeded = replace(plan, settings=plan.settings.model_copy(update={"seed": seed}))
        with Parts(choice.models, listener(), seed=seed) as parts:
            return experiment.run(seeded, folder, parts, chosen)

    if not seeds:
        show(once(choice.seed, out), out, as_json)
        return
    results = {folder: once(seed, folder) for seed in seeds for folder in (out / f"seed-{seed}",)}
    compare_folders(results, as_json)
    finish(sum(result.failed + result.unscored for result in results.values()))


@click.command()
@click.option(
    "--out",
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where the demo's run lies; in the cache by default.",
)
@model_options
@json_option
def demo(out: Path | None, choice: Choice, as_json: bool) -> None:
    """Show the idea on the shipped sample: what the gate keeps, a fact with its scene, an answer with its sources, c6 beside c7."""
    from dualtrace_local.pipeline.demo import story
    from dualtrace_local.pipeline.parts import Parts

    started = time.monotonic()
    with Parts(choice.models, listener(), seed=choice.seed) as parts:
        told = story(out, parts, read_conditions())
    seconds = time.monotonic() - started
    if as_json:
        emit(render.story_json(told, seconds))
    else:
        render.story(told, seconds)
    finish(told.result.failed + told.result.unscored)
