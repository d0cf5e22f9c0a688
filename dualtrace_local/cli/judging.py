"""Commands about verdicts: judge a run, measure the judge, bring in verdicts made elsewhere, report."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from dualtrace_local.records import plain

from . import render
from .common import Choice, emit, finish, json_option, listener, model_options, no_model, say

if TYPE_CHECKING:
    from dualtrace_local.pipeline.calibrate import Imported
    from dualtrace_local.pipeline.experiment import Result
    from dualtrace_local.report.details import Calibration

RUN = "run"


class Judging(click.Group):
    """``judge RUN`` is ``judge run RUN``: a folder called as one of the commands has to be written ``./NAME``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put the command in where a run folder or an option of it stands first."""
        if args and args[0] not in self.commands and args[0] not in ctx.help_option_names:
            args = [RUN, *args]
        return super().parse_args(ctx, args)


run_argument = click.argument("run_folder", metavar="RUN", type=click.Path(file_okay=False, path_type=Path))


@click.group(cls=Judging)
def judge() -> None:
    """Verdicts on the answers of a run. `dualtrace judge RUN` is short for `dualtrace judge run RUN`."""


@judge.command(RUN)
@run_argument
@model_options
@json_option
def judge_run(run_folder: Path, choice: Choice, as_json: bool) -> None:
    """Judge the answers of a run that have no verdict yet, and report. Another --judge-model judges anew beside the first."""
    from dualtrace_local.pipeline import experiment
    from dualtrace_local.pipeline.parts import Parts

    with Parts(choice.models, listener(), seed=choice.seed) as parts:
        result = experiment.judge_run(run_folder, parts)
    show(result, run_folder, as_json)


@judge.command()
@click.argument("labels", metavar="LABELS", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--split", type=click.Choice(["dev", "held", "all"]), default="all", show_default=True,
              help="Which half of the questions, by a hash of their ids: dev to tune prompts on, held to measure.")  # fmt: skip
@click.option("--no-probes", is_flag=True, help="Leave out the planted answers (wrong, vague, abstaining) that must not pass.")
@click.option(
    "--out",
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where the result is kept; in the cache by default. A run's reports also look in its folder calibration/.",
)
@model_options
@json_option
def calibrate(labels: Path, split: Literal["dev", "held", "all"], no_probes: bool, out: Path | None, choice: Choice, as_json: bool) -> None:
    """Measure how far the judge agrees with LABELS: a JSONL file of judged answers.

    A line holds question_id, question_type, question, answer, hypothesis and label (true or false). Reports of runs that this judge has
    judged with these prompts name the result.
    """
    from dualtrace_local.pipeline.calibrate import calibrate as measured
    from dualtrace_local.pipeline.calibrate import keep, read_labels
    from dualtrace_local.pipeline.parts import Parts

    given = read_labels(labels, split)
    for line in given.rejected:
        say(line)
    with Parts(choice.models, listener(), seed=choice.seed) as parts:
        found = measured(given, parts, planted=not no_probes)
    path = keep(found, out)
    if as_json:
        emit(plain(found) | {"kept": str(path), "rejected": len(given.rejected)})
    else:
        _calibration(found, path)
    finish(len(given.rejected) + found.overall.unscored + sum(p.unscored for p in found.probes))


def _calibration(found: Calibration, path: Path) -> None:
    from dualtrace_local.report.judged import calibrated, calibration_tables

    console = render.out()
    console.print(calibrated(found), soft_wrap=True)
    for made in calibration_tables(found):
        shown = render.table(made.heads[0], *(f">{head}" for head in made.heads[1:]))
        for row in made.rows:
            shown.add_row(*row)
        console.print(shown)
    console.print(f"kept in {path}", soft_wrap=True)


@judge.command("import")
@run_argument
@click.argument("results", metavar="RESULTS", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--judge", "name", required=True, metavar="NAME", help="Under which name the verdicts are kept.")
@click.option("--condition", default="", metavar="NAME", help="Whose answers were judged; by default what RESULTS is named after.")
@no_model
@json_option
def import_(run_folder: Path, results: Path, name: str, condition: str, as_json: bool) -> None:
    """Take the labels of RESULTS, a result file of LongMemEval's evaluate_qa.py, as verdicts of a judge, and report.

    A line holds question_id and autoeval_label with model and label. Lines about unknown questions or about other answers than those of
    the run, and questions with two labels, give no verdict and are counted.
    """
    from dualtrace_local.pipeline import experiment

    found, result = experiment.import_run(run_folder, results, name, condition, say)
    if as_json:
        emit({"import": _counts(found)} | render.result_json(result, run_folder))
    else:
        render.fields(_counts(found))
        render.result(result, run_folder)
    finish(found.left_out + result.failed + result.unscored)


def _counts(found: Imported) -> dict[str, Any]:
    return {k: v for k, v in plain(found).items() if k != "told"}


@click.command()
@run_argument
@no_model
@json_option
def report(run_folder: Path, as_json: bool) -> None:
    """Make the report of a run again from its files; no model is needed."""
    from dualtrace_local.pipeline import experiment

    show(experiment.report_run(run_folder, say), run_folder, as_json)


def show(result: Result, out: Path, as_json: bool) -> None:
    """A run's result on stdout, and the exit code."""
    if as_json:
        emit(render.result_json(result, out))
    else:
        render.result(result, out)
    finish(result.failed + result.unscored)
