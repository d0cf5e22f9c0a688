"""Outcomes to accuracies and paired comparisons: what needs only to know which question came out right under which condition."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from itertools import combinations

import numpy as np

from dualtrace_local.records import Gold
from dualtrace_local.stats import Estimate, accuracy, agree, compare, holm, macro, wilson

from .records import ABSTENTION, APART, OVERALL, KindPair, Outcome, Pair, Row

GROUPS = {
    "single-session-user": "single-session",
    "single-session-assistant": "single-session",
    "single-session-preference": "single-session",
    "multi-session": "multi-session",
    "knowledge-update": "knowledge-update",
    "temporal-reasoning": "temporal",
}
"""LongMemEval's ``question_type`` to the paper's categories (paper table 1); the order is the order of the tables."""

FRONT, BACK = ("c6", "c7"), ("vanilla",)
"""Differences are c6 minus c7 (what the paper is about, and shown first), and anything minus no memory."""

DECIDED = (Outcome.CORRECT, Outcome.WRONG)

Outcomes = Mapping[str, Mapping[str, Outcome]]
"""Condition (or system) -> question id -> outcome; every question of the dataset has one under each condition."""


def kind_of(gold: Gold) -> str:
    """The row a question counts in: its kind as the dataset has it, or ``abstention``."""
    return ABSTENTION if gold.abstention and gold.kind not in APART else gold.kind or "(no kind)"


def group_of(gold: Gold) -> str:
    """The paper's category of a question; a kind that the paper does not have keeps its own name."""
    return GROUPS.get(kind_of(gold), kind_of(gold))


def rows(
    golds: Mapping[str, Gold],
    outcomes: Outcomes,
    name: Callable[[Gold], str],
    order: tuple[str, ...],
    always: tuple[str, ...] = (),
) -> tuple[Row, ...]:
    """One row for each kind and condition: kinds in ``order``, then unknown ones, abstention, overall, and what is not in overall."""
    kinds = {name(g) for g in golds.values()} | set(always)
    rank = {kind: place for place, kind in enumerate(k for k in order if k != ABSTENTION)}
    ordered = sorted(kinds, key=lambda k: (k == ABSTENTION, rank.get(k, len(rank)), k))
    named = {kind: [q for q, g in golds.items() if name(g) == kind] for kind in ordered}
    members = {kind: ids for kind, ids in named.items() if kind not in APART}
    members[OVERALL] = [q for q, g in golds.items() if g.kind not in APART]
    members |= {kind: ids for kind, ids in named.items() if kind in APART}
    return tuple(_row(c, kind, [found[q] for q in ids]) for kind, ids in members.items() for c, found in outcomes.items())


def _row(condition: str, kind: str, found: list[Outcome]) -> Row:
    count = Counter(found)
    n, correct = len(found), count[Outcome.CORRECT]
    scored = correct + count[Outcome.WRONG]
    return Row(
        condition=condition,
        kind=kind,
        n=n,
        scored=scored,
        correct=correct,
        unscored=count[Outcome.UNSCORED],
        failed=count[Outcome.FAILED],
        missing=count[Outcome.MISSING],
        judged=accuracy(np.arange(scored) < correct),
        judged_wilson=wilson(correct, scored),
        everything=accuracy(np.arange(n) < correct),
        everything_wilson=wilson(correct, n),
    )


def scored(found: Mapping[str, Outcome], ids: Iterable[str]) -> list[bool]:
    """Right or wrong of each question in ``ids`` that has a verdict."""
    return [found[q] is Outcome.CORRECT for q in ids if found[q] in DECIDED]


def task_averaged(golds: Mapping[str, Gold], found: Mapping[str, Outcome]) -> Estimate:
    """Mean of the accuracies of the dataset's kinds, abstention and what is reported apart left out."""
    kinds: dict[str, list[str]] = {}
    for key, gold in golds.items():
        if kind_of(gold) not in (ABSTENTION, *APART):
            kinds.setdefault(gold.kind, []).append(key)
    return macro([np.array(scored(found, ids), dtype=bool) for ids in kinds.values()])


def pairs(golds: Mapping[str, Gold], outcomes: Outcomes) -> tuple[Pair, ...]:
    """Every two conditions once, over the questions judged under both; p corrected for the number of pairs."""
    counted = {q: group_of(g) for q, g in golds.items() if g.kind not in APART}
    found = [pair(a, b, (outcomes[a], outcomes[b]), counted) for a, b in _couples(tuple(outcomes))]
    corrected = holm([p.result.mcnemar.p_exact for p in found])
    return tuple(replace(one, p_exact_holm=p) for one, p in zip(found, corrected, strict=True))


def _couples(names: tuple[str, ...]) -> list[tuple[str, str]]:
    """Every two conditions once: those of ``FRONT`` first, those of ``BACK`` last, the others in the order they were run in."""
    front = [name for name in FRONT if name in names]
    middle = [name for name in names if name not in (*FRONT, *BACK)]
    return list(combinations((*front, *middle, *(name for name in names if name in BACK)), 2))


def pair(first: str, second: str, found: tuple[Mapping[str, Outcome], Mapping[str, Outcome]], kinds: Mapping[str, str]) -> Pair:
    """Two rows of outcomes over the questions in ``kinds`` (question id -> kind), whole and by kind."""
    one, two = found
    shared = [q for q in kinds if one.get(q) in DECIDED and two.get(q) in DECIDED]
    by_kind = {kind: [q for q in shared if kinds[q] == kind] for kind in dict.fromkeys(kinds.values())}
    results = {kind: compare(agree(_bools(one, ids), _bools(two, ids))) for kind, ids in by_kind.items() if ids}
    one_sided = holm([r.p_one_sided for r in results.values()])
    exact = holm([r.mcnemar.p_exact for r in results.values()])
    order = {kind: place for place, kind in enumerate((*dict.fromkeys(GROUPS.values()), ABSTENTION))}
    rows = [KindPair(kind, r, p, e) for (kind, r), p, e in zip(results.items(), one_sided, exact, strict=True)]
    return Pair(
        first,
        second,
        len(kinds) - len(shared),
        compare(agree(_bools(one, shared), _bools(two, shared))),
        kinds=tuple(sorted(rows, key=lambda row: order.get(row.kind, len(order)))),
    )


def _bools(found: Mapping[str, Outcome], ids: Iterable[str]) -> np.ndarray:
    return np.array(scored(found, ids), dtype=bool)
