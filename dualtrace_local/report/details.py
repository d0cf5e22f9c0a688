"""What a report says beside its tables of accuracy: the judge's calibration, where wrong answers went wrong, time, known faults.

Records only. Shares are 0-1; keys of mappings are names of conditions and ids of questions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from dualtrace_local.stats import Agreement, Estimate

# --------------------------------------------------------------------------------------------------------- the judge


@dataclass(frozen=True)
class Agreed:
    """A judge beside labels, over the questions of ``kind``. ``n`` are labelled answers, ``unscored`` those without a verdict.

    ``table`` has the labels first and the judge second. ``false_positives``: judged correct, of those labelled wrong;
    ``false_negatives``: judged wrong, of those labelled correct. Intervals are Wilson's.
    """

    kind: str
    n: int
    unscored: int
    table: Agreement
    agreement: Estimate
    kappa: float | None
    false_positives: Estimate
    false_negatives: Estimate


@dataclass(frozen=True)
class ProbeRate:
    """Planted answers that must not pass: ``passed`` is the share that was judged correct, of the ``n`` with a verdict."""

    name: str
    planted: int
    unscored: int
    passed: Estimate


@dataclass(frozen=True)
class Calibration:
    """How far a judge agrees with labelled answers, and what passes that should not.

    ``key`` stands for the judge: its model's identity and everything that shapes its prompts. ``split`` is ``dev``, ``held`` or
    ``all``; the last of ``rows`` is over all kinds.
    """

    key: str
    model: dict[str, str]
    prompts: dict[str, str]
    labels: str
    labels_sha256: str
    labelled_by: tuple[str, ...]
    split: str
    seed: int
    rows: tuple[Agreed, ...]
    probes: tuple[ProbeRate, ...]
    seconds: float = 0.0
    versions: dict[str, str] = field(default_factory=dict)

    @property
    def overall(self) -> Agreed:
        """Over all kinds."""
        return self.rows[-1]


@dataclass(frozen=True)
class Judges:
    """Two judges over the same answers of one condition, those that have a verdict by both."""

    condition: str
    first: str
    second: str
    table: Agreement
    agreement: Estimate
    kappa: float | None


# ------------------------------------------------------------------------------------------------- where it went wrong


@dataclass(frozen=True)
class Trace:
    """What became of the evidence of one question under one condition, an entry for each evidence session.

    ``kept``: the gate and the condition let something of it be seen. ``places``: its place among the delivered sessions, from 1, or 0
    when nothing of it was delivered; best first where they were ``ranked``, else in the order of their dates. ``abstained`` is the
    reader's answer.
    """

    kept: tuple[bool, ...]
    places: tuple[int, ...]
    ranked: bool = True
    abstained: bool = False


class Step(StrEnum):
    """The step at which a question's answer went wrong; the first that did."""

    GATE = "not kept"
    SEARCH = "kept, but not found"
    SILENT = "found, but the reader abstained"
    READING = "found, but misread"
    INVENTED = "answered, although nothing is known"
    UNMARKED = "wrong, and no evidence is marked"


@dataclass(frozen=True)
class Steps:
    """Wrong answers of one condition by the step that failed."""

    condition: str
    wrong: int
    counts: dict[str, int]


@dataclass(frozen=True)
class Reach:
    """Evidence sessions among the first ``k`` of the delivered sessions: any of them, all of them."""

    condition: str
    k: int
    any_found: Estimate
    all_found: Estimate


@dataclass(frozen=True)
class Fault:
    """A publicly known fault of a question that this run asks."""

    question_id: str
    what: str
    source: str


@dataclass(frozen=True)
class Faultless:
    """One condition's judged answers over all questions, and without those that have a known fault."""

    condition: str
    with_all: Estimate
    without: Estimate
    left_out: int


@dataclass(frozen=True)
class Observed:
    """What the pipeline reads out of a run's files for ``Details``.

    ``origins``: where a role's model comes from. ``views``: what makes a condition, in words. ``seconds``: stage, then condition.
    ``traces``: condition, then question. ``opinions``: condition, then judge, then question: verdicts, where there are several judges.
    """

    calibrations: tuple[Calibration, ...] = ()
    origins: Mapping[str, str] = field(default_factory=dict)
    views: Mapping[str, str] = field(default_factory=dict)
    seconds: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    traces: Mapping[str, Mapping[str, Trace]] = field(default_factory=dict)
    opinions: Mapping[str, Mapping[str, Mapping[str, bool]]] = field(default_factory=dict)


@dataclass(frozen=True)
class Details:
    """What is worked out of ``Observed`` and the outcomes. ``same_family``: judge and reader, when they come from one family."""

    calibrations: tuple[Calibration, ...] = ()
    same_family: str = ""
    views: dict[str, str] = field(default_factory=dict)
    seconds: dict[str, dict[str, float]] = field(default_factory=dict)
    steps: tuple[Steps, ...] = ()
    reach: tuple[Reach, ...] = ()
    judges: tuple[Judges, ...] = ()
    faults: tuple[Fault, ...] = ()
    faultless: tuple[Faultless, ...] = ()
    question_steps: dict[str, dict[str, str]] = field(default_factory=dict)
    """Condition, then question: the step at which a wrong answer went wrong."""
