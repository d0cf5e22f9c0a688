"""Commands of an experiment: run, judge, report, and the demo."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dualtrace_local.config import TeachSettings, read_conditions

from . import render
from .common import Choice, conditions_file_option, emit, finish, json_option, limit_option, listener, model_options, names, no_model, say

if TYPE_CHECKING:
    from dualtrace_local.pipeline.experiment import Result


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
    limit: int | None,
    choice: Choice,
    as_json: bool,
) -> None:
    """Teach DATASET once, answer its questions under each condition, judge, report. Started again, it goes on where it stopped."""
    from dualtrace_local.pipeline import experiment
    from dualtrace_local.pipeline.parts import Parts

    plan = experiment.Plan(
        dataset,
        names(conditions),
        "pooled" if protocol == "pooled" else "official",
        hide_later,
        limit,
        TeachSettings(assistant_chars=assistant_chars, seed=choice.seed),
        development,
    )
    with Parts(choice.models, listener(), seed=choice.seed) as parts:
        result = experiment.run(plan, out, parts, read_conditions(conditions_file))
    _show(result, out, as_json)


@click.command()
@click.argument("run_folder", metavar="RUN", type=click.Path(file_okay=False, path_type=Path))
@model_options
@json_option
def judge(run_folder: Path, choice: Choice, as_json: bool) -> None:
    """Judge the answers of a run that have no verdict yet, and report. Another --judge-model judges anew beside the first."""
    from dualtrace_local.pipeline import experiment
    from dualtrace_local.pipeline.parts import Parts

    with Parts(choice.models, listener(), seed=choice.seed) as parts:
        result = experiment.judge_run(run_folder, parts)
    _show(result, run_folder, as_json)


@click.command()
@click.argument("run_folder", metavar="RUN", type=click.Path(file_okay=False, path_type=Path))
@no_model
@json_option
def report(run_folder: Path, as_json: bool) -> None:
    """Make the report of a run again from its files; no model is needed."""
    from dualtrace_local.pipeline import experiment

    _show(experiment.report_run(run_folder, say), run_folder, as_json)


def _show(result: Result, out: Path, as_json: bool) -> None:
    if as_json:
        emit(render.result_json(result, out))
    else:
        render.result(result, out)
    finish(result.failed + result.unscored)


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
