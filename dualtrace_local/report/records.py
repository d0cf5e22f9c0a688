"""What a report is made from (``RunData``) and what it says (``Report``). Frozen; shares are 0-1, published values per cent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from dualtrace_local.records import Answer, Gold, Usage, Verdict
from dualtrace_local.stats import Estimate, Paired, Spread

from .details import Details, Observed
from .published import Published

ABSTENTION = "abstention"
OVERALL = "overall"
APART = ("adversarial",)
"""Kinds that are reported apart and are in no figure about all questions: LoCoMo's category 5."""

# ---------------------------------------------------------------------------------------------------- what goes in


@dataclass(frozen=True)
class ModelUse:
    """A model in a role. ``digest`` is the SHA-256 of its weights file, ``engine`` what ran it."""

    role: str
    name: str
    digest: str = ""
    engine: str = ""


@dataclass(frozen=True)
class Header:
    """Under which conditions a run's numbers were made; all of it is printed.

    ``protocol`` is ``official`` or ``pooled``. ``later_questions`` counts questions that have a session dated after them (hidden
    only with ``hide_later``). ``prompts`` and ``versions`` map names to digests and versions, ``settings`` whatever else
    shaped the run; ``seconds`` is wall time by stage. ``development`` marks rows that prompts or thresholds were tuned on.

    ``release`` is that of the data, empty where its digest is of no known file; ``sample`` says how questions were drawn from it,
    empty for all of them; ``later_evidence`` counts questions with an evidence session dated after them, None where that was not
    counted; ``reconstructed`` names conditions that the paper describes in part only.
    """

    dataset: str
    dataset_sha256: str
    protocol: str
    hide_later: bool = False
    later_questions: int = 0
    distinct_sessions: int = 0
    session_occurrences: int = 0
    models: tuple[ModelUse, ...] = ()
    gate: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    prompts: dict[str, str] = field(default_factory=dict)
    settings: dict[str, str] = field(default_factory=dict)
    seed: int = 0
    window: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    development: bool = False
    release: str = ""
    sample: str = ""
    later_evidence: int | None = None
    reconstructed: tuple[str, ...] = ()

    def model(self, role: str) -> str:
        """Name of the model in ``role``, empty when none is given."""
        return next((m.name for m in self.models if m.role == role), "")


@dataclass(frozen=True)
class TeachTotals:
    """The store's ledger in counts of sessions, and what writing took. ``usage`` is by kind of request.

    ``tiers`` counts sessions by the gate's decision. Counts of the whole run, not of the last start alone. ``left_out`` counts by
    reason what of an export is no session: messages and files.
    """

    read: int = 0
    taught: int = 0
    dropped: int = 0
    empty: int = 0
    unchanged: int = 0
    forgotten: int = 0
    failed: int = 0
    memories: int = 0
    with_scene: int = 0
    tiers: dict[str, int] = field(default_factory=dict)
    usage: dict[str, Usage] = field(default_factory=dict)
    seconds: float = 0.0
    left_out: dict[str, int] = field(default_factory=dict)

    @property
    def spent(self) -> Usage:
        """Calls and tokens over all kinds of request."""
        return sum(self.usage.values(), Usage())

    @property
    def accounted(self) -> int:
        """What ``read`` must equal (design: taught + dropped + empty + unchanged + forgotten + failed)."""
        return self.taught + self.dropped + self.empty + self.unchanged + self.forgotten + self.failed


@dataclass(frozen=True)
class Failed:
    """A failed item of ``stage`` (teach, recall, judge). ``key`` is a question id for recall and judge. Never any chat text."""

    stage: str
    key: str
    reason: str
    condition: str = ""


@dataclass(frozen=True)
class Share:
    """``part`` of ``whole``: evidence sessions kept by the gate, or delivered to the reader."""

    part: int
    whole: int


@dataclass(frozen=True)
class RunData:
    """Everything a report needs, as records. Mappings are by condition, in the order they are to be shown.

    ``evidence_kept``: of the evidence sessions that the gate decided on, each once, those it kept. ``retrieval`` (condition ->
    question id -> evidence sessions delivered) is left empty where it was not measured. Of several rows with one id the first counts.
    ``joint``: what teaching both traces in one completion took and left, where a condition wanted it.
    """

    header: Header
    golds: tuple[Gold, ...]
    answers: Mapping[str, tuple[Answer, ...]]
    verdicts: Mapping[str, tuple[Verdict, ...]]
    failures: tuple[Failed, ...] = ()
    teach: TeachTotals = TeachTotals()
    joint: TeachTotals | None = None
    recall_usage: Mapping[str, Mapping[str, Usage]] = field(default_factory=dict)
    judge_usage: Mapping[str, Mapping[str, Usage]] = field(default_factory=dict)
    evidence_kept: Share = Share(0, 0)
    retrieval: Mapping[str, Mapping[str, Share]] = field(default_factory=dict)
    observed: Observed = field(default_factory=Observed)


# --------------------------------------------------------------------------------------------------- what comes out


class Outcome(StrEnum):
    """What became of one question under one condition. Every question of the dataset has exactly one."""

    CORRECT = "correct"
    WRONG = "wrong"
    UNSCORED = "unscored"
    FAILED = "failed"
    MISSING = "missing"


@dataclass(frozen=True)
class Row:
    """Counts and accuracy of one condition and kind. ``n = scored + unscored + failed + missing``.

    ``judged`` is over scored answers, ``everything`` over all ``n`` with whatever is not correct counted against it;
    each with the bootstrap and the Wilson interval.
    """

    condition: str
    kind: str
    n: int
    scored: int
    correct: int
    unscored: int
    failed: int
    missing: int
    judged: Estimate
    judged_wilson: Estimate
    everything: Estimate
    everything_wilson: Estimate


@dataclass(frozen=True)
class Comparison:
    """One line for a terminal table: accuracy over scored answers with its bootstrap interval, None where ``scored`` is 0."""

    condition: str
    kind: str
    correct: int
    scored: int
    unscored: int
    failed: int
    missing: int
    n: int
    accuracy: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True)
class ConditionSummary:
    """What is said once for a condition.

    ``task_averaged``: mean over kinds, abstention left out. ``coverage``: answers that do not abstain, of all questions;
    ``selective``: accuracy of those. ``context_tokens``: of what was delivered. ``judged_by``: verdicts by model or rule.
    """

    condition: str
    task_averaged: Estimate
    coverage: Estimate
    selective: Estimate
    context_tokens: Spread
    judged_by: dict[str, int]


@dataclass(frozen=True)
class StateRow:
    """Answers of one condition by what was delivered (A fact and scene, B fact only, C nothing)."""

    condition: str
    state: str
    n: int
    correct: int
    wrong: int
    unscored: int
    abstained: int


@dataclass(frozen=True)
class KindPair:
    """Two conditions over the questions of one kind, which says too how many of the discordant ones are of it.

    ``p_holm`` is the one-sided p and ``p_exact_holm`` McNemar's exact p, each corrected (Holm) for the number of kinds.
    """

    kind: str
    result: Paired
    p_holm: float | None
    p_exact_holm: float | None


@dataclass(frozen=True)
class Pair:
    """Two conditions over the questions that have a verdict under both; ``left_out`` have not. ``kinds`` are the paper's.

    ``p_exact_holm`` is McNemar's exact p corrected (Holm) for the number of pairs it is shown with.
    """

    first: str
    second: str
    left_out: int
    result: Paired
    kinds: tuple[KindPair, ...] = ()
    p_exact_holm: float | None = None


@dataclass(frozen=True)
class RetrievalRow:
    """Share of questions with evidence where any, and where all evidence sessions were delivered (Wilson intervals)."""

    condition: str
    any_delivered: Estimate
    all_delivered: Estimate


@dataclass(frozen=True)
class TokenRow:
    """Calls and tokens of one stage and kind of request."""

    stage: str
    condition: str
    kind: str
    usage: Usage


@dataclass(frozen=True)
class GateSummary:
    """``coverage``: sessions kept of those that the gate decided on. ``evidence_dropped``: evidence sessions dropped."""

    coverage: Estimate
    evidence_dropped: Estimate


@dataclass(frozen=True)
class QuestionOutcomes:
    """One question's outcome under each condition."""

    question_id: str
    kind: str
    abstention: bool
    outcomes: dict[str, Outcome]


@dataclass(frozen=True)
class Report:
    """All tables of a run. ``rows`` are by the dataset's kinds, ``groups`` by the paper's; both end in overall.

    ``problems`` are lines about rows that do not belong (duplicate and unknown ids, counts that do not add up).
    """

    header: Header
    questions: int
    question_list_sha256: str
    conditions: tuple[str, ...]
    rows: tuple[Row, ...]
    groups: tuple[Row, ...]
    summaries: tuple[ConditionSummary, ...]
    states: tuple[StateRow, ...]
    pairs: tuple[Pair, ...]
    retrieval: tuple[RetrievalRow, ...]
    tokens: tuple[TokenRow, ...]
    teach: TeachTotals
    joint: TeachTotals | None
    gate: GateSummary
    details: Details
    published: Published
    problems: tuple[str, ...]
    failures: tuple[Failed, ...]
    outcomes: tuple[QuestionOutcomes, ...]

    def row(self, condition: str, kind: str, *, grouped: bool = False) -> Row | None:
        """The row of ``condition`` and ``kind``, None where the dataset has no such kind."""
        rows = self.groups if grouped else self.rows
        return next((r for r in rows if r.condition == condition and r.kind == kind), None)


@dataclass(frozen=True)
class Written:
    """The files of a written report."""

    markdown: Path
    json: Path
    html: Path
    questions: Path
    png: Path
    svg: Path
    costs_png: Path
    costs_svg: Path
