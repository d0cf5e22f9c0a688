"""Pure functions on arrays of outcomes: estimates, intervals, paired tests, agreement.

An outcome is a boolean, True for a correct answer. Whoever calls leaves unscored answers out; nothing here guesses them.
Shares are between 0 and 1. Where there is nothing to estimate from, the value is None: never NaN, never a made-up 0.

The bootstrap resamples questions with replacement. What such a resample holds of each kind of outcome is multinomial, so the
counts are drawn directly: the same distribution as drawing positions, without a 10,000 x n table, and a result that does not
depend on the order of the questions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

RESAMPLES = 10_000
"""Bootstrap resamples (paper section 3.6)."""

SEED = 42
"""Seed of every bootstrap (paper section 3.6)."""

LEVEL = 0.95
"""Confidence level of every interval."""


@dataclass(frozen=True)
class Estimate:
    """A share with its interval, from ``n`` outcomes. All None when ``n`` is 0."""

    n: int
    value: float | None = None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Agreement:
    """The 2x2 table of two conditions over the same questions, as counts of correct answers."""

    both: int
    neither: int
    only_first: int
    only_second: int

    @property
    def n(self) -> int:
        """Questions compared."""
        return self.both + self.neither + self.only_first + self.only_second


@dataclass(frozen=True)
class McNemar:
    """McNemar's test on the discordant pairs. ``chi_squared`` and ``p_chi_squared`` are None when there are none."""

    chi_squared: float | None
    p_chi_squared: float | None
    p_exact: float | None


@dataclass(frozen=True)
class Paired:
    """First minus second: the difference of the two shares with its interval, and the tests on the same pairs.

    ``p_one_sided`` is the bootstrap's p for "first is not better than second".
    """

    agreement: Agreement
    difference: Estimate
    p_one_sided: float | None
    mcnemar: McNemar


@dataclass(frozen=True)
class Unpaired:
    """First minus second, of two shares over different questions: the difference with its interval, and Fisher's exact p, two-sided."""

    difference: Estimate
    p_exact: float | None


@dataclass(frozen=True)
class Repeats:
    """Mean of ``n`` repeated runs, their standard deviation (n - 1; None for a single run), the lowest and the highest."""

    n: int
    mean: float | None = None
    deviation: float | None = None
    lowest: float | None = None
    highest: float | None = None


@dataclass(frozen=True)
class Spread:
    """Mean, median and 95th percentile of ``n`` numbers; None when there are none."""

    n: int
    mean: float | None = None
    median: float | None = None
    p95: float | None = None


def accuracy(outcomes: ArrayLike) -> Estimate:
    """Share of True in ``outcomes`` (shape [n]) with the percentile bootstrap interval.

    Source: Efron and Tibshirani 1993, chapter 13. When all outcomes agree the interval has no width: read ``wilson`` then.

    Raises:
        ValueError: ``outcomes`` is not one row of booleans.
    """
    row = _booleans(outcomes)
    if not row.size:
        return Estimate(0)
    resampled = _generator().binomial(row.size, row.mean(), RESAMPLES) / row.size
    return _estimate(row.size, float(row.mean()), resampled)


def macro(groups: Sequence[ArrayLike]) -> Estimate:
    """Mean of the groups' accuracies, each group counting the same; empty groups are left out.

    The interval resamples within each group (stratified bootstrap, Davison and Hinkley 1997, section 3.2).
    """
    rows = [row for row in map(_booleans, groups) if row.size]
    if not rows:
        return Estimate(0)
    random = _generator()
    resampled = np.mean([random.binomial(row.size, row.mean(), RESAMPLES) / row.size for row in rows], axis=0)
    return _estimate(sum(row.size for row in rows), float(np.mean([row.mean() for row in rows])), resampled)


def wilson(correct: int, n: int) -> Estimate:
    """``correct`` of ``n`` with the score interval of Wilson 1927 (as statsmodels has it); it keeps a width at 0 and n.

    Raises:
        ValueError: ``correct`` is not between 0 and ``n``.
    """
    from statsmodels.stats.proportion import proportion_confint

    if not 0 <= correct <= n:
        msg = f"correct must lie between 0 and n, got {correct} of {n}"
        raise ValueError(msg)
    if n == 0:
        return Estimate(0)
    low, high = proportion_confint(correct, n, alpha=1 - LEVEL, method="wilson")
    return Estimate(n, correct / n, max(0.0, float(low)), min(1.0, float(high)))


def agree(first: ArrayLike, second: ArrayLike) -> Agreement:
    """Counts of both, neither, only first and only second, of two rows over the same questions (shape [n] each).

    Raises:
        ValueError: the rows have different lengths or are not booleans.
    """
    one, two = _booleans(first), _booleans(second)
    if one.shape != two.shape:
        msg = f"paired rows must have one length, got {one.size} and {two.size}"
        raise ValueError(msg)
    return Agreement(
        both=int((one & two).sum()),
        neither=int((~one & ~two).sum()),
        only_first=int((one & ~two).sum()),
        only_second=int((~one & two).sum()),
    )


def compare(agreement: Agreement) -> Paired:
    """The paired comparison that a 2x2 table gives: bootstrap difference, one-sided p, McNemar's tests.

    The resampling unit is the question (a pair). p is (1 + resamples with a difference <= 0) / (1 + resamples): the added one
    counts the data themselves as a resample, so that p is never 0 (Davison and Hinkley 1997, section 4.2).
    """
    n = agreement.n
    if n == 0:
        return Paired(agreement, Estimate(0), None, mcnemar(agreement))
    shares = np.array([agreement.only_first, agreement.only_second, agreement.both + agreement.neither]) / n
    counts = _generator().multinomial(n, shares, RESAMPLES)
    resampled = (counts[:, 0] - counts[:, 1]) / n
    p = (1 + int((resampled <= 0).sum())) / (1 + RESAMPLES)
    value = (agreement.only_first - agreement.only_second) / n
    return Paired(agreement, _estimate(n, value, resampled), p, mcnemar(agreement))


def mcnemar(agreement: Agreement) -> McNemar:
    """McNemar 1947, with the continuity correction of Edwards 1948, (|b - c| - 1)^2 / (b + c), and exact (binomial).

    b and c are the discordant counts. Equal counts are left uncorrected: the correction may not carry a difference of 0 past 0.
    """
    from statsmodels.stats.contingency_tables import mcnemar as test

    b, c = agreement.only_first, agreement.only_second
    if agreement.n == 0:
        return McNemar(None, None, None)
    if b + c == 0:
        return McNemar(None, None, 1.0)
    table = [[agreement.both, b], [c, agreement.neither]]
    corrected: Any = test(table, exact=False, correction=b != c)
    exact: Any = test(table, exact=True)
    return McNemar(float(corrected.statistic), float(corrected.pvalue), float(exact.pvalue))


def unpaired(first: tuple[int, int], second: tuple[int, int]) -> Unpaired:
    """Difference of two independent shares, each as (correct, n), with the interval of Newcombe 1998 (method 10) and Fisher's exact test.

    For results over other questions than ours, of which only counts are known. ``difference.n`` is the first's n.
    """
    from scipy.stats import fisher_exact
    from statsmodels.stats.proportion import confint_proportions_2indep

    (k, n), (k2, n2) = first, second
    if n == 0 or n2 == 0:
        return Unpaired(Estimate(0), None)
    low, high = confint_proportions_2indep(k, n, k2, n2, method="newcomb", compare="diff", alpha=1 - LEVEL)
    p: Any = fisher_exact([[k, n - k], [k2, n2 - k2]])
    return Unpaired(Estimate(n, k / n - k2 / n2, float(low), float(high)), float(p.pvalue))


def holm(ps: Sequence[float | None]) -> tuple[float | None, ...]:
    """``ps`` corrected for being several, after Holm 1979; a None is no test and stays None."""
    tested = np.array([p for p in ps if p is not None])
    order = tested.argsort(kind="stable")
    corrected = np.empty_like(tested)
    # Not by statsmodels: its multipletests collects garbage at each call, a second in a big process, and a report has hundreds.
    corrected[order] = np.maximum.accumulate(tested[order] * np.arange(tested.size, 0, -1)).clip(max=1)
    each = iter(corrected)
    return tuple(None if p is None else float(next(each)) for p in ps)


def repeats(values: Sequence[float]) -> Repeats:
    """What repeated runs of one thing say together; ``values`` has one number a run."""
    if not values:
        return Repeats(0)
    row = np.asarray(values, dtype=float)
    deviation = float(row.std(ddof=1)) if row.size > 1 else None
    return Repeats(row.size, float(row.mean()), deviation, float(row.min()), float(row.max()))


def kappa(agreement: Agreement) -> float | None:
    """Cohen's kappa 1960, (observed - chance) / (1 - chance), of two judges that say True or False of the same answers.

    None without answers, and where both judges always say the same one thing (chance is 1).
    """
    n = agreement.n
    if n == 0:
        return None
    first, second = agreement.both + agreement.only_first, agreement.both + agreement.only_second
    chance = (first * second + (n - first) * (n - second)) / n**2
    return None if chance == 1 else ((agreement.both + agreement.neither) / n - chance) / (1 - chance)


def spread(values: ArrayLike) -> Spread:
    """Mean, median and 95th percentile (linear interpolation) of ``values`` (shape [n])."""
    row = np.asarray(values, dtype=float)
    if not row.size:
        return Spread(0)
    return Spread(row.size, float(row.mean()), float(np.median(row)), float(np.percentile(row, 95)))


def _generator() -> np.random.Generator:
    return np.random.default_rng(SEED)


def _booleans(outcomes: ArrayLike) -> NDArray[np.bool_]:
    row = np.asarray(outcomes)
    if row.ndim != 1 or (row.size and row.dtype != np.bool_):
        msg = f"outcomes must be one row of booleans without gaps, got shape {row.shape} of {row.dtype}"
        raise ValueError(msg)
    return row.astype(np.bool_)


def _estimate(n: int, value: float, resampled: NDArray[np.float64]) -> Estimate:
    low, high = np.quantile(resampled, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Estimate(n, value, float(low), float(high))
