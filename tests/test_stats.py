"""Statistics against closed forms, against the paper's figures, and where there is nothing to estimate from."""

import math
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dualtrace_local.stats import (
    Agreement,
    Estimate,
    Repeats,
    Spread,
    accuracy,
    agree,
    compare,
    holm,
    kappa,
    macro,
    mcnemar,
    repeats,
    spread,
    unpaired,
    wilson,
)

PAPER = Agreement(both=51, neither=24, only_first=22, only_second=2)


def outcomes(correct, n):
    return np.arange(n) < correct


def test_paper_comparison_comes_out():
    """51 both, 24 neither, 22 and 2 discordant: chi-squared 15.04, +20.2 points, [+12.1, +29.3] within 1.1 points."""
    found = compare(PAPER)

    assert f"{found.mcnemar.chi_squared:.2f}" == "15.04"
    assert f"{100 * found.difference.value:+.1f}" == "+20.2"
    assert 100 * found.difference.low == pytest.approx(12.1, abs=1.1)
    assert 100 * found.difference.high == pytest.approx(29.3, abs=1.1)
    assert found.p_one_sided < 0.001
    assert found.difference.n == 99


def test_mcnemar_matches_its_formulas():
    """(|b - c| - 1)^2 / (b + c), its chi-squared tail, and twice the binomial tail of the smaller count."""
    found = mcnemar(PAPER)

    chi = (22 - 2 - 1) ** 2 / 24
    assert found.chi_squared == pytest.approx(chi)
    assert found.p_chi_squared == pytest.approx(math.erfc(math.sqrt(chi / 2)))
    assert found.p_exact == pytest.approx(2 * sum(math.comb(24, k) for k in range(3)) / 2**24)


def test_mcnemar_without_discordant_pairs():
    """No discordant pair: no chi-squared (not 0 / 0), exact p 1; no pair at all: nothing."""
    none = mcnemar(Agreement(5, 5, 0, 0))

    assert (none.chi_squared, none.p_chi_squared, none.p_exact) == (None, None, 1.0)
    assert mcnemar(Agreement(0, 0, 0, 0)).p_exact is None


def test_mcnemar_equal_counts_is_no_difference():
    """Three against three is no difference at all: the correction does not make one."""
    found = mcnemar(Agreement(1, 1, 3, 3))

    assert (found.chi_squared, found.p_chi_squared, found.p_exact) == (0.0, 1.0, 1.0)


def test_swapped_pair_is_the_mirror_image():
    """Second minus first has the opposite sign and a p near 1."""
    swapped = compare(Agreement(51, 24, 2, 22))

    assert swapped.difference.value == -compare(PAPER).difference.value
    assert swapped.p_one_sided > 0.99
    assert swapped.difference.high < 0


def test_one_sided_p_counts_ties_and_is_never_zero():
    """Resamples with a difference of exactly 0 count against the first; the smallest p is 1 / 10,001."""
    assert compare(Agreement(3, 3, 0, 0)).p_one_sided == 1.0
    assert compare(Agreement(0, 0, 40, 0)).p_one_sided == 1 / 10_001


def test_accuracy_interval_is_the_binomial_one():
    """The percentile bootstrap of a share is the binomial's quantiles: 73 of 99 gives 64.6 to 81.8 %."""
    from scipy.stats import binom

    found = accuracy(outcomes(73, 99))

    assert found.value == pytest.approx(73 / 99)
    low, high = binom.ppf([0.025, 0.975], 99, 73 / 99) / 99
    assert found.low == pytest.approx(low, abs=1 / 99)
    assert found.high == pytest.approx(high, abs=1 / 99)


def test_accuracy_agrees_with_the_ordinary_bootstrap():
    """Drawing counts is the same as drawing positions, as scipy does."""
    from scipy.stats import bootstrap

    data = outcomes(30, 80)
    usual = bootstrap((data,), np.mean, n_resamples=10_000, method="percentile", rng=7).confidence_interval

    found = accuracy(data)
    assert found.low == pytest.approx(usual.low, abs=1.5 / 80)
    assert found.high == pytest.approx(usual.high, abs=1.5 / 80)


def test_bootstrap_repeats_and_ignores_order():
    """The same outcomes give the same interval, in whatever order and however often."""
    data = outcomes(7, 20)

    assert accuracy(data) == accuracy(data[::-1]) == accuracy(data)
    assert compare(PAPER) == compare(PAPER)


def test_wilson_closed_form():
    """Centre and half width of the score interval, with z of the two-sided 95 %."""
    n, k, z = 50, 45, 1.959963984540054
    p = k / n
    centre = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n)) / (1 + z * z / n)

    found = wilson(k, n)
    assert (found.low, found.high) == (pytest.approx(centre - half), pytest.approx(centre + half))


@pytest.mark.parametrize("k", [0, 5])
def test_wilson_keeps_a_width_where_the_bootstrap_has_none(k):
    """0 of 5 and 5 of 5 are not certainties."""
    boot, score = accuracy(outcomes(k, 5)), wilson(k, 5)

    assert boot.high - boot.low == 0
    assert score.high - score.low > 0.3


def test_nothing_gives_none():
    """n = 0: None everywhere, no NaN, no 0."""
    nothing = Estimate(0, None, None, None)

    assert accuracy([]) == wilson(0, 0) == macro([]) == macro([[], []]) == nothing
    assert spread([]) == Spread(0, None, None, None)
    paired = compare(agree([], []))
    assert (paired.difference, paired.p_one_sided, paired.mcnemar.p_exact) == (nothing, None, None)
    assert kappa(Agreement(0, 0, 0, 0)) is None


def test_agree_counts_the_four_cells():
    """both, neither, only first, only second."""
    found = agree([True, True, False, False, True], [True, False, True, False, True])

    assert found == Agreement(both=2, neither=1, only_first=1, only_second=1)
    assert found.n == 5


def test_unscored_and_unequal_rows_are_refused():
    """A gap among the outcomes, numbers, or rows of two lengths are bugs of the caller and say so."""
    with pytest.raises(ValueError, match="without gaps"):
        accuracy([True, None, False])
    with pytest.raises(ValueError, match="booleans"):
        accuracy([1.0, float("nan")])
    with pytest.raises(ValueError, match="got 2 and 1"):
        agree([True, False], [True])
    with pytest.raises(ValueError, match="got 4 of 3"):
        wilson(4, 3)


def test_macro_counts_each_group_the_same():
    """9 of 10 and 0 of 2: 45 %, whatever the groups' sizes; a group without outcomes is left out."""
    found = macro([outcomes(9, 10), outcomes(0, 2), []])

    assert found.value == pytest.approx(0.45)
    assert found.n == 12
    assert found.low < 0.45 < found.high


def test_unpaired_difference_has_newcombes_interval():
    """Newcombe's formula from the two Wilson intervals: 56 of 70 against 48 of 80, an example of his paper."""
    found = unpaired((56, 70), (48, 80))
    first, second = wilson(56, 70), wilson(48, 80)
    low = 0.2 - math.hypot(0.8 - first.low, second.high - 0.6)
    high = 0.2 + math.hypot(first.high - 0.8, 0.6 - second.low)

    assert found.difference.value == pytest.approx(0.2)
    assert (found.difference.low, found.difference.high) == (pytest.approx(low), pytest.approx(high))
    assert (round(low, 4), round(high, 4)) == (0.0524, 0.3339)
    assert found.p_exact < 0.05


def test_unpaired_keeps_a_width_and_mirrors():
    """All against all is a difference of 0 with a width; swapped, the sign turns; nothing gives nothing."""
    same = unpaired((5, 5), (9, 9)).difference
    assert same.value == 0
    assert same.low < 0 < same.high
    assert unpaired((3, 9), (8, 9)).difference.low == pytest.approx(-unpaired((8, 9), (3, 9)).difference.high)
    assert unpaired((0, 0), (73, 99)).difference == Estimate(0)
    assert unpaired((0, 0), (73, 99)).p_exact is None


def test_holm_steps_down():
    """0.01, 0.04, 0.03 of three tests: 0.03, 0.06, 0.06; what was not tested stays so and counts for nothing."""
    assert holm([0.01, 0.04, None, 0.03]) == (pytest.approx(0.03), pytest.approx(0.06), None, pytest.approx(0.06))
    assert holm([0.6, 0.9]) == (1.0, 1.0)
    assert holm([]) == ()
    assert holm([None]) == (None,)


def test_repeats_of_known_numbers():
    """Standard deviation over runs with n - 1; a single run has none."""
    found = repeats([0.5, 0.7, 0.6])

    assert (found.n, found.lowest, found.highest) == (3, 0.5, 0.7)
    assert (found.mean, found.deviation) == (pytest.approx(0.6), pytest.approx(0.1))
    assert repeats([0.5]) == Repeats(1, 0.5, None, 0.5, 0.5)
    assert repeats([]) == Repeats(0)


def test_kappa_textbook_example():
    """20 yes-yes, 15 no-no, 5 and 10 split: observed 0.7, chance 0.5, kappa 0.4."""
    assert kappa(Agreement(both=20, neither=15, only_first=5, only_second=10)) == pytest.approx(0.4)
    assert kappa(Agreement(both=9, neither=0, only_first=0, only_second=0)) is None


def test_spread_of_known_numbers():
    """1 to 101: mean and median 51, 95th percentile 96."""
    assert spread(range(1, 102)) == Spread(101, 51.0, 51.0, 96.0)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.booleans()), max_size=40))
def test_any_pairing_adds_up_and_stays_finite(pairs):
    """Cells add up to n, the difference is that of the two accuracies, and every number is finite or None."""
    first, second = [a for a, _ in pairs], [b for _, b in pairs]
    found = compare(agree(first, second))

    assert found.agreement.n == len(pairs)
    if pairs:
        assert found.difference.value == pytest.approx(accuracy(first).value - accuracy(second).value)
        assert found.difference.low <= found.difference.value <= found.difference.high
        assert 0 < found.p_one_sided <= 1
    tests = (found.mcnemar.chi_squared, found.mcnemar.p_chi_squared, found.mcnemar.p_exact)
    assert all(x is None or math.isfinite(x) for x in tests)


def test_importing_loads_no_statistics_library():
    """statsmodels takes a second to load, so it waits for its first use."""
    code = "import sys, dualtrace_local.stats; sys.exit('statsmodels' in sys.modules or 'scipy' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
