import re

import pytest

from inbedder.runtime import timings
from inbedder.runtime.timings import TIMINGS, Timings, time_items, time_stage


@pytest.fixture
def clock(monkeypatch):
    """A clock that the test moves."""

    class Clock:
        seconds = 0.0

        def perf_counter(self):
            return self.seconds

    manual_clock = Clock()
    monkeypatch.setattr(timings, "time", manual_clock)
    return manual_clock


@pytest.fixture
def collected(clock):
    token = TIMINGS.set(Timings())
    yield TIMINGS.get()
    TIMINGS.reset(token)


def test_an_inner_stage_stops_the_clock_of_the_outer_one(clock, collected):
    clock.seconds = 1.0
    with time_stage("groups"):
        clock.seconds = 3.0
        with time_stage("model"):
            clock.seconds = 7.0
        clock.seconds = 8.0
    assert dict(collected.seconds) == {"other": 1.0, "groups": 3.0, "model": 4.0}
    assert collected.describe() == "Seconds: groups 3.0, model 4.0, other 1.0; 8.0 in all."


def test_only_the_time_until_each_item_counts(clock, collected):
    def generate():
        for number in range(3):
            clock.seconds += 2
            yield number

    for _ in time_items(generate(), "model"):
        clock.seconds += 5
    assert collected.seconds["model"] == 6.0
    assert collected.seconds["other"] == 15.0


def test_a_stage_ends_with_an_error(clock, collected):
    with pytest.raises(ValueError, match="bad"), time_stage("model"):
        clock.seconds = 2.0
        raise ValueError("bad")
    with time_stage("page"):
        clock.seconds = 3.0
    assert (collected.seconds["model"], collected.seconds["page"]) == (2.0, 1.0)


def test_nothing_is_timed_unless_it_is_wanted():
    with time_stage("model"):
        assert list(time_items([1, 2], "model")) == [1, 2]
    assert TIMINGS.get() is None


def test_a_model_tells_tokenizing_from_computing(make_model):
    from inbedder import InBedder

    model = InBedder(make_model("bert"))
    token = TIMINGS.set(collected := Timings())
    model.encode([f"text {number}" for number in range(80)], "What is it?")
    TIMINGS.reset(token)
    assert collected.seconds["model"] > 0
    assert collected.seconds["tokenizing"] > 0
    assert re.fullmatch(r"Seconds: .*other \d+\.\d; \d+\.\d in all\.", collected.describe())
