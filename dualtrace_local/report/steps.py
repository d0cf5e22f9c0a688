"""What is worked out of the outcomes and what was observed: failed steps, reach, judges beside each other, known faults."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import combinations

import numpy as np

from dualtrace_local.corpus.known import DEFECTS, RELEASES
from dualtrace_local.records import Gold
from dualtrace_local.stats import accuracy, agree, kappa, wilson

from .details import Details, Fault, Faultless, Judges, Observed, Reach, Step, Steps, Trace
from .records import APART, Header, Outcome, QuestionOutcomes, RunData
from .tables import DECIDED

AT = (1, 3, 5, 10)
"""Numbers of sessions, best first, among which evidence is looked for."""

REPACKERS = {"redhatai", "unsloth", "bartowski", "lmstudio-community", "thebloke", "nvidia"}
"""Publishers of other people's models in another form: their name says nothing of a model's family."""


def details(run: RunData, outcomes: tuple[QuestionOutcomes, ...]) -> Details:
    """Everything that stands beside the accuracy tables."""
    observed = run.observed
    golds = {g.question_id: g for g in reversed(run.golds)}
    conditions = tuple(outcomes[0].outcomes) if outcomes else ()
    steps = {c: dict(_steps(c, outcomes, golds, observed.traces.get(c, {}))) for c in conditions}
    faults = tuple(_faults(golds, run.header.dataset_sha256))
    return Details(
        calibrations=observed.calibrations,
        same_family=same_family(run.header, observed.origins),
        views=dict(observed.views),
        seconds={stage: dict(by) for stage, by in observed.seconds.items()},
        steps=tuple(Steps(c, len(found), _in_order(found)) for c, found in steps.items()),
        reach=tuple(r for c in conditions for r in _reach(c, observed.traces.get(c, {}), golds)),
        judges=tuple(_judges(observed)),
        faults=faults,
        faultless=tuple(_faultless(c, outcomes, {f.question_id for f in faults}) for c in conditions) if faults else (),
        question_steps={c: {q: step.value for q, step in found.items()} for c, found in steps.items()},
    )


# ----------------------------------------------------------------------------------------------------------- steps


def failed_step(gold: Gold, trace: Trace | None) -> Step:
    """The first step that failed for an answer that was judged wrong."""
    if gold.abstention:
        return Step.INVENTED
    if trace is None or not trace.kept:
        return Step.UNMARKED
    if lacking := [kept for kept, place in zip(trace.kept, trace.places, strict=True) if place == 0]:
        return Step.SEARCH if all(lacking) else Step.GATE
    return Step.SILENT if trace.abstained else Step.READING


def _steps(
    condition: str, outcomes: tuple[QuestionOutcomes, ...], golds: Mapping[str, Gold], traces: Mapping[str, Trace]
) -> Iterator[tuple[str, Step]]:
    for row in outcomes:
        if row.outcomes[condition] is Outcome.WRONG:
            yield row.question_id, failed_step(golds[row.question_id], traces.get(row.question_id))


def _in_order(found: Mapping[str, Step]) -> dict[str, int]:
    count = Counter(found.values())
    return {step.value: count[step] for step in Step}


def _reach(condition: str, traces: Mapping[str, Trace], golds: Mapping[str, Gold]) -> Iterator[Reach]:
    """Only of conditions that rank; abstention left out, as everywhere in retrieval."""
    known = [t.places for q, t in traces.items() if q in golds and not golds[q].abstention and t.places]
    for k in AT if known and all(t.ranked for t in traces.values()) else ():
        within = [[0 < place <= k for place in places] for places in known]
        yield Reach(condition, k, wilson(sum(map(any, within)), len(within)), wilson(sum(map(all, within)), len(within)))


# ---------------------------------------------------------------------------------------------------------- judges


def same_family(header: Header, origins: Mapping[str, str]) -> str:
    """Judge and reader as ``NAME and NAME``, when they are one model or come from one family; else empty."""
    reader, judge = header.model("read"), header.model("judge")
    if not reader or not judge:
        return ""
    shared = families(origins.get("read", "") or reader) & families(origins.get("judge", "") or judge)
    return f"{judge} and {reader}" if reader == judge or shared else ""


def families(origin: str) -> frozenset[str]:
    """Publisher, and the leading letters of the model's name: ``Qwen/Qwen3-4B`` gives qwen; a repacker counts for nothing."""
    *publisher, name = origin.split(",", maxsplit=1)[0].strip().lower().split("/")
    letters = re.match(r"[a-z]+", name)
    return frozenset({*publisher[-1:], *([letters.group()] if letters else [])} - REPACKERS)


def _judges(observed: Observed) -> Iterator[Judges]:
    for condition, by_judge in observed.opinions.items():
        for first, second in combinations(by_judge, 2):
            shared = [q for q in by_judge[first] if q in by_judge[second]]
            table = agree(*(np.array([by_judge[name][q] for q in shared], dtype=bool) for name in (first, second)))
            yield Judges(condition, first, second, table, wilson(table.both + table.neither, table.n), kappa(table))


# ---------------------------------------------------------------------------------------------------- known faults


def _faults(golds: Mapping[str, Gold], sha256: str) -> Iterator[Fault]:
    """Known faults of single questions, but those that the data's release is known to have repaired."""
    release = RELEASES[sha256].release if sha256 in RELEASES else ""
    for defect in DEFECTS:
        if defect.question_id in golds and not (release and defect.repaired_in == release):
            yield Fault(defect.question_id, defect.what, defect.source)


def _faultless(condition: str, outcomes: tuple[QuestionOutcomes, ...], faulty: set[str]) -> Faultless:
    counted = [(row.question_id, row.outcomes[condition]) for row in outcomes if row.kind not in APART]
    decided = [(q, o is Outcome.CORRECT) for q, o in counted if o in DECIDED]
    sound = [right for q, right in decided if q not in faulty]
    everything = [right for _, right in decided]
    return Faultless(
        condition,
        accuracy(np.array(everything, dtype=bool)),
        accuracy(np.array(sound, dtype=bool)),
        len(everything) - len(sound),
    )
