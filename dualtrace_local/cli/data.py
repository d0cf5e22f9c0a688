"""Commands about source files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dualtrace_local.errors import DataError
from dualtrace_local.masking import mask, mask_value
from dualtrace_local.records import plain

from .common import emit, finish, json_option, listener, no_model, say
from .render import out, table

if TYPE_CHECKING:
    from dualtrace_local.corpus.check import DataCheck


@click.group()
def data() -> None:
    """Look at files of chats and benchmarks."""


@data.command("check")
@click.argument("files", nargs=-1, required=True, metavar="FILE...", type=click.Path(path_type=Path))
@no_model
@json_option
def check_(files: tuple[Path, ...], as_json: bool) -> None:
    """Say what files hold before they are taught or run: format, variant, counts, dates, records that cannot be read, known faults."""
    from dualtrace_local.corpus import found as found_in
    from dualtrace_local.corpus.check import check

    told = listener()
    found: list[DataCheck] = []
    refused: list[DataError] = []
    for file in files:
        told.stage(f"check {file.name}", 0)
        try:
            found += [_masked(check(part, told.advance)) for part in found_in(file).parts]
        except DataError as problem:
            refused.append(problem)
        finally:
            told.end()
    if not found:
        raise refused[0]
    for line in (*map(str, refused), *(line for one in found for line in (*one.note_lines, *one.bad_lines))):
        say(line)
    if as_json:
        emit({"files": plain(found), "refused": [str(problem) for problem in refused]})
    else:
        for one in found:
            _show(one)
    finish(len(refused) + sum(one.failed for one in found))


def _masked(found: DataCheck) -> DataCheck:
    """Without credentials in the lines, which show values that cannot be read, and in what speakers and kinds are called."""
    bad_lines, note_lines = (tuple(map(mask, lines)) for lines in (found.bad_lines, found.note_lines))
    turns, kinds = mask_value(found.turns), mask_value(found.by_kind)
    return replace(found, bad_lines=bad_lines, note_lines=note_lines, turns=turns, by_kind=kinds)


def _show(found: DataCheck) -> None:
    made = table("", "", title=found.file)
    for name, value in _rows(found):
        if value:
            made.add_row(name, value)
    out().print(made)
    out().print()


def _rows(found: DataCheck) -> tuple[tuple[str, str], ...]:
    questions = [f"{found.questions}: {_counts(found.by_kind)}", f"{found.abstention} of them without an answer"]
    if found.without_evidence:
        questions.append(f"{found.without_evidence} name no evidence")
    sessions = [
        f"{found.occurrences}, {found.distinct_sessions} of them differ in text or date, {found.distinct_texts} in text",
        *(f"{n} {what}" for n, what in ((found.empty, "empty"), (found.undated, "undated")) if n),
    ]
    benchmark = {"longmemeval", "locomo"} & found.formats.keys()
    variant = f"{found.variant or 'not known'}{f' ({found.because})' if found.because else ''}"
    return (
        ("format", f"{_counts(found.formats)}{', gzip' if found.packed else ''}" if found.good else "no record can be read"),
        ("variant", variant if benchmark else ""),
        ("release", (found.release or "not known") if benchmark else ""),
        ("size", f"{found.bytes:,} bytes"),
        ("SHA-256", found.sha256),
        ("SHA-256 unpacked", found.content_sha256 if found.packed else ""),
        ("records", f"{found.records} = {found.good} good + {found.bad} bad"),
        ("questions", "; ".join(questions) if found.questions else "none"),
        ("sessions", "; ".join(sessions)),
        ("turns", _counts(found.turns)),
        ("days", f"{found.first_day} to {found.last_day}" if found.first_day else "none"),
        ("twice in one haystack", f"{found.twice_in_a_haystack} sessions" if found.twice_in_a_haystack else ""),
        ("session after the question", f"{found.later_questions} questions (--hide-later hides those)" if found.later_questions else ""),
        ("left out", _counts(found.left_out)),
        ("notes", str(found.notes) if found.notes else ""),
        ("known faults", "\n".join(f"{d.question_id or 'all'}: {d.what} ({d.source})" for d in found.defects)),
        ("good for", ", ".join(found.uses) or "nothing"),
    )


def _counts(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{n:,} {name}" for name, n in values.items())
