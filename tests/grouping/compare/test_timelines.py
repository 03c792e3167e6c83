from datetime import date, timedelta

import numpy as np
import pytest
from scipy.stats import chi2_contingency

from inbedder.errors import InputError
from inbedder.grouping.compare.crosstab import count_pairs
from inbedder.grouping.compare.timelines import find_changes, make_timelines
from tests.grouping.report.test_page import grouping


def find_changes_of(counts):
    """Find the changes of counts in stretches of equal length."""
    counts = np.array(counts)
    return find_changes(counts, np.arange(counts.shape[1]), (0, counts.shape[1] - 1))


def test_shares_are_of_each_periods_texts():
    days = ["2024-01-01", "2024-01-01", "2024-01-03", None, "2024-01-03", "2024-01-03", "2024-01-03"]
    (timeline,) = make_timelines(grouping([0, 1, 0, 0, 0, 0, 1]), days)
    assert timeline.calendar.every == "day" and timeline.undated_count == 1
    assert timeline.table.counts.tolist() == [[1, 0, 3], [1, 0, 1]]
    assert timeline.shares[:, [0, 2]].tolist() == [[0.5, 0.75], [0.5, 0.25]] and np.isnan(timeline.shares[:, 1]).all()
    assert [row["share"] for row in timeline.records()] == [0.5, None, 0.75, 0.5, None, 0.25]
    assert {row["period"] for row in timeline.records()} == {"2024-01-01", "2024-01-02", "2024-01-03"}


def test_with_two_periods_the_trend_is_the_chi_square_of_the_table():
    counts = np.array([[30, 50], [70, 50]])
    rates = [change.false_discovery_rate for change in find_changes_of(counts)]
    assert rates == pytest.approx([chi2_contingency(counts, correction=False).pvalue] * 2)


def test_a_rising_a_falling_and_a_steady_group_are_told_apart():
    rising, falling = np.arange(10, 34, 2), np.arange(36, 12, -2)
    changes = find_changes_of([rising, falling, np.full(12, 30), 100 - rising - falling - 30])
    assert [change.direction for change in changes] == ["rising", "falling", "no clear change", "no clear change"]
    assert (changes[0].first, changes[0].last) == pytest.approx((0.10, 0.32))


def test_a_burst_in_the_last_period_is_not_a_trend():
    steady, burst = [100] * 11, [10] * 9 + [10, 90]
    (steady_change, change) = find_changes_of([steady, burst])
    assert change.direction == steady_change.direction == "no clear change"
    assert chi2_contingency([steady, burst]).pvalue < 1e-9  # though the shares surely differ


def test_few_of_many_constant_groups_are_called_rising_or_falling():
    rng = np.random.default_rng(0)
    is_changing = [
        change.direction != "no clear change"
        for _ in range(20)
        for change in find_changes_of(rng.multinomial(200, np.full(40, 1 / 40), size=12).T)
    ]
    assert len(is_changing) == 800 and np.mean(is_changing) < 0.01


def test_few_of_many_bursty_groups_are_called_rising_or_falling():
    rng = np.random.default_rng(1)
    is_changing = []
    for _ in range(40):
        chances = rng.dirichlet(np.full(20, 1.0), size=12)
        is_changing += [
            change.direction != "no clear change"
            for change in find_changes_of(np.stack([rng.multinomial(200, p) for p in chances]).T)
        ]
    assert np.mean(is_changing) < 0.02


@pytest.mark.parametrize("counts", [[[5], [3]], [[5, 0], [3, 0]], [[4, 9]], [[4, 9], [0, 0]]])
def test_nothing_changes_in_one_period_or_one_group(counts):
    assert {change.direction for change in find_changes_of(counts)} == {"no clear change"}


def test_a_rise_is_found_whatever_the_period():
    """A share of 5% rises to 30% after two thirds of half a year; months are few, but the texts are not."""
    rng = np.random.default_rng(0)
    offsets = np.sort(rng.integers(0, 180, 400))
    labels = (rng.random(400) < np.where(offsets < 120, 0.05, 0.3)).astype(int).tolist()
    days = [date(2026, 1, 1) + timedelta(days=int(offset)) for offset in offsets]
    timelines = [make_timelines(grouping(labels), days, every)[0] for every in ("day", "week", "month")]
    assert [len(timeline.calendar.starts) for timeline in timelines] == [180, 27, 6]
    assert timelines[0].changes == timelines[1].changes == timelines[2].changes
    change = timelines[0].changes[1]
    assert change.direction == "rising" and change.first < 0.05 and 0.2 < change.last < 0.4


def test_the_groups_of_several_questions_share_their_periods():
    days = [date(2024, 1, 1) + timedelta(days=7 * i) for i in range(8)]
    first, second = make_timelines([grouping([0, 1] * 4), grouping([0] * 7 + [1])], days, "week", title="sent")
    assert first.calendar is second.calendar and first.table.columns.title == "week of sent"
    assert second.table.counts.tolist() == [[1] * 7 + [0], [0] * 7 + [1]]
    assert count_pairs(first.table.rows, first.table.columns).counts.tolist() == first.table.counts.tolist()


def test_dates_that_do_not_fit_the_texts_are_refused():
    with pytest.raises(InputError, match="2 texts but 1 dates"):
        make_timelines(grouping([0, 1]), ["2024-01-01"])
