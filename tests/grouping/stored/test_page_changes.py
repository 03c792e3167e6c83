import json

import numpy as np
import pytest

from inbedder import Grouping, InBedder, cluster
from inbedder.errors import InputError
from inbedder.grouping.stored.page_changes import apply_changes
from tests.conftest import blobs

SIZES = (24, 22, 20, 18, 16, 14)
TEXTS = [f"text {i}" for i in range(sum(SIZES))]


@pytest.fixture
def grouping(make_model):
    model = InBedder(make_model("bert"))
    vectors = np.pad(blobs(SIZES), ((0, 0), (0, 24)))
    return Grouping.of(cluster(TEXTS, "@topic", model, k=6, embeddings=vectors, namer=lambda groups: list("abcdef")), model)


@pytest.fixture
def write(tmp_path):
    """Return a function that writes changes."""

    def write(merge=(), rename=None, question="What is the topic of the text?"):
        path = tmp_path / "changes.json"
        path.write_text(json.dumps({"question": question, "merge": list(merge), "rename": rename or {}}))
        return path

    return write


def test_groups_of_the_page_are_merged_and_renamed(grouping, write):
    apply_changes(grouping, write([[1, 2, 6], [5, 3]], {"4": "x", "3": "y"}))
    assert grouping.names == ["a", "y", "x"]
    assert [group.size for group in grouping.groups] == [24 + 22 + 14, 20 + 16, 18]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"question": "Who?"}, "The changes are of 'Who\\?', but the groups are of '@topic'"),
        ({"merge": [[1, 7]]}, "group must be a whole number from 1 to 6"),
        ({"merge": [[1, 2], [2, 3]]}, "merged twice"),
        ({"merge": [1]}, "damaged changes"),
        ({"rename": {"x": "y"}}, "damaged changes"),
        ({"rename": {"1": "b"}}, "Two groups would have the name 'b'"),
        ({"rename": {"1": 3}}, "not a valid name"),
    ],
)
def test_changes_that_do_not_fit_are_refused(grouping, write, changes, message):
    with pytest.raises(InputError, match=message):
        apply_changes(grouping, write(**changes))


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"question": "a", "merge": {}, "rename": []}', "[" * 100_000])
def test_other_files_are_no_changes(grouping, tmp_path, content):
    (tmp_path / "changes.json").write_text(content)
    with pytest.raises(InputError, match="changes"):
        apply_changes(grouping, tmp_path / "changes.json")
    with pytest.raises(InputError, match="cannot be read"):
        apply_changes(grouping, tmp_path / "none.json")
