import numpy as np
import pytest

from inbedder.grouping.partition.outline import find_branches


def make_nine_groups():
    """Make nine groups, three near each of three points; the groups have 10 to 18 rows, and a row in no group follows."""
    draw = np.random.default_rng(0)
    centres = np.repeat(np.eye(3, 16), 3, axis=0) + 0.3 * np.eye(16)[3:12]
    rows = [centre + 0.01 * draw.normal(size=(18 - i, 16)) for i, centre in enumerate(centres)]
    labels = np.repeat(np.arange(9), [len(each) for each in rows])
    return np.concatenate([*rows, np.ones((1, 16))]).astype(np.float32), np.append(labels, -1)


def test_a_branch_holds_groups_with_close_centres():
    assert find_branches(*make_nine_groups()) == [0, 0, 0, 1, 1, 1, 2, 2, 2]


@pytest.mark.parametrize("count", [1, 3, 9])
def test_as_many_branches_as_asked_are_found(count):
    assert len(set(find_branches(*make_nine_groups(), count))) == count


def test_few_groups_have_branches_only_if_asked():
    vectors, labels = make_nine_groups()
    few = labels < 6
    assert find_branches(vectors[few], labels[few]) is None
    assert find_branches(vectors[few], labels[few], 2) == [0, 0, 0, 1, 1, 1]
