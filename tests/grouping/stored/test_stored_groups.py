import pytest

from inbedder.errors import InputError
from inbedder.grouping.stored.stored_groups import Route, StoredGroup, count_answers, merge_stored_groups, name_parts


def test_a_merged_group_has_the_answers_and_examples_of_all():
    first = StoredGroup("late", 3, ["late", "slow"], ["a", "b"], {"late": 2, "slow": 1})
    second = StoredGroup("rude", 5, ["rude"], ["c"], {"rude": 4, "late": 1}, by_hand=True)
    merged = merge_stored_groups([first, second], None)
    assert (merged.name, merged.size, merged.by_hand) == ("rude", 8, True)
    assert merged.keywords == ["late", "rude", "slow"] and merged.examples == ["a", "c", "b"]
    assert merged.answers == {"rude": 4, "late": 3, "slow": 1}
    assert merge_stored_groups([first, second], "bad").name == "bad"


def test_answers_are_counted_without_empty_ones():
    assert count_answers(["a", "", "b", "a"]) == {"a": 2, "b": 1}


@pytest.mark.parametrize("values", [[[0, -1]], [[1, 0]], [[0, -2]], [[-1, 0]], [["0", 0]], [[0, 0.5]]])
def test_routes_that_lead_nowhere_are_refused(values):
    with pytest.raises(InputError):
        Route.parse(values, 1)


def test_a_route_leads_to_a_group_or_to_a_later_level():
    assert Route.parse([[0, 3], [0, -1], [1, 2]], 2) == [Route(0, 3), Route(0, -1), Route(1, 2)]
    with pytest.raises(InputError, match="leads to no later level"):
        Route.parse([[1, -1]], 2)


def test_parts_of_a_split_group_do_not_repeat_its_name():
    assert name_parts("late flight", ["flight, crew", "Late", "price"]) == [
        "late flight: crew", "late flight: Late", "late flight: price"
    ]  # fmt: skip
    assert name_parts("a, b", ["a, c", "b, c"]) == ["a, b: a, c", "a, b: b, c"]


def test_a_merged_group_is_loose_if_one_of_its_groups_was():
    groups = [StoredGroup("a", 2, [], [], {}, loose=True), StoredGroup("b", 1, [], [], {})]
    assert merge_stored_groups(groups, None).loose and not merge_stored_groups(groups[1:] * 2, None).loose
