from datetime import date, timedelta

import numpy as np
import pytest
from scipy.stats import chi2_contingency

from inbedder.errors import InputError
from inbedder.grouping.crosstab import Categories, CrossTable, cross
from inbedder.grouping.over_time import find_changes, over_time
from tests.grouping.test_page import grouping


def by_periods(counts):
    """A table of groups by periods."""
    counts = np.array(counts)
    none = np.zeros(0, dtype=np.int64)
    sides = [Categories("", [str(i) for i in range(size)], none) for size in counts.shape]
    return CrossTable(*sides, counts)


def test_shares_are_of_each_periods_texts():
    days = ["2024-01-01", "2024-01-01", "2024-01-03", None, "2024-01-03", "2024-01-03", "2024-01-03"]
    (found,) = over_time(grouping([0, 1, 0, 0, 0, 0, 1]), days)
    assert found.calendar.every == "day" and found.undated == 1
    assert found.table.counts.tolist() == [[1, 0, 3], [1, 0, 1]]
    assert found.shares[:, [0, 2]].tolist() == [[0.5, 0.75], [0.5, 0.25]] and np.isnan(found.shares[:, 1]).all()
    assert [row["share"] for row in found.records()] == [0.5, None, 0.75, 0.5, None, 0.25]
    assert {row["period"] for row in found.records()} == {"2024-01-01", "2024-01-02", "2024-01-03"}


def test_with_two_periods_the_trend_is_the_chi_square_of_the_table():
    counts = np.array([[30, 50], [70, 50]])
    rates = [change.false_discovery_rate for change in find_changes(by_periods(counts))]
    assert rates == pytest.approx([chi2_contingency(counts, correction=False).pvalue] * 2)


def test_a_rising_a_falling_and_a_steady_group_are_told_apart():
    rising, falling = np.arange(10, 34, 2), np.arange(36, 12, -2)
    found = find_changes(by_periods([rising, falling, np.full(12, 30), 100 - rising - falling - 30]))
    assert [change.direction for change in found] == ["rising", "falling", "steady", "steady"]
    assert (found[0].first, found[0].last) == pytest.approx((0.10, 0.32))


def test_a_burst_in_the_last_period_is_no_trend():
    steady, burst = [100] * 11, [10] * 9 + [10, 90]
    (other, change) = find_changes(by_periods([steady, burst]))
    assert change.direction == other.direction == "steady"
    assert chi2_contingency([steady, burst]).pvalue < 1e-9  # though the shares surely differ


def test_of_many_groups_without_change_hardly_any_is_called_rising_or_falling():
    rng = np.random.default_rng(0)
    called = [
        change.direction != "steady"
        for _ in range(20)
        for change in find_changes(by_periods(rng.multinomial(200, np.full(40, 1 / 40), size=12).T))
    ]
    assert len(called) == 800 and np.mean(called) < 0.01


def test_of_groups_that_come_in_bursts_hardly_any_is_called_rising_or_falling():
    rng = np.random.default_rng(1)
    called = []
    for _ in range(40):
        chances = rng.dirichlet(np.full(20, 1.0), size=12)
        called += [
            change.direction != "steady"
            for change in find_changes(by_periods(np.stack([rng.multinomial(200, p) for p in chances]).T))
        ]
    assert np.mean(called) < 0.02


@pytest.mark.parametrize("counts", [[[5], [3]], [[5, 0], [3, 0]], [[4, 9]], [[4, 9], [0, 0]]])
def test_nothing_changes_in_one_period_or_one_group(counts):
    assert {change.direction for change in find_changes(by_periods(counts))} == {"steady"}


def test_the_groups_of_several_questions_share_their_periods():
    days = [date(2024, 1, 1) + timedelta(days=7 * i) for i in range(8)]
    first, second = over_time([grouping([0, 1] * 4), grouping([0] * 7 + [1])], days, "week", title="sent")
    assert first.calendar is second.calendar and first.table.columns.title == "sent"
    assert second.table.counts.tolist() == [[1] * 7 + [0], [0] * 7 + [1]]
    assert cross(first.table.rows, first.table.columns).counts.tolist() == first.table.counts.tolist()


def test_dates_that_do_not_fit_the_texts_are_refused():
    with pytest.raises(InputError, match="2 texts but 1 dates"):
        over_time(grouping([0, 1]), ["2024-01-01"])
