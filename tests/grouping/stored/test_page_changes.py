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

    def write(merge=(), rename=None, question="What is the topic of the text?", groups="abcdef", move=()):
        path = tmp_path / "changes.json"
        content = {"question": question, "groups": list(groups), "move": list(move), "merge": list(merge), "rename": rename or {}}
        path.write_text(json.dumps(content))
        return path

    return write


def test_groups_of_the_page_are_merged_and_renamed(grouping, write):
    assert apply_changes(grouping, write([[1, 2, 6], [5, 3]], {"4": "x", "3": "y"})) == 22 + 14 + 16
    assert grouping.names == ["a", "y", "x"]
    assert [group.size for group in grouping.groups] == [24 + 22 + 14, 20 + 16, 18]


def test_moved_texts_are_in_their_groups_before_these_are_merged(make_model, write):
    model = InBedder(make_model("bert"))
    texts = [f"{word} number {i}" for i in range(8) for word in ("cat", "parcel", "account", "song")]
    grouping = Grouping.of(cluster(texts, "What?", model, k=4, namer=lambda groups: list("abcd")), model)
    before = grouping.assign(texts).labels
    first, second, third = (texts[np.flatnonzero(before == number)[0]] for number in (0, 1, 3))
    moves = [{"text": first, "to": 3}, {"text": second, "to": 4}, {"text": third, "to": 3}]
    apply_changes(grouping, write([[3, 1]], {"4": "x", "1": "y"}, "What?", "abcd", moves))
    assert grouping.names == ["y", "b", "x"]
    assert [grouping.names[label] for label in grouping.assign([first, second, third]).labels] == ["y", "x", "y"]
    assert sum(group.size for group in grouping.groups) == len(texts)


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
        ({"move": [{"text": "a", "to": 7}]}, "group must be a whole number from 1 to 6"),
        ({"move": [{"text": "a", "to": "1"}]}, "group must be a whole number from 1 to 6"),
        ({"move": [{"text": "a", "to": 1}, {"text": "a", "to": 2}]}, "moved to two groups"),
        ({"move": [{"text": 3, "to": 1}]}, "damaged changes"),
        ({"move": [{"text": "a"}]}, "damaged changes"),
        ({"move": ["a"]}, "damaged changes"),
        ({"merge": {"a": 1}}, "damaged changes"),
        ({"groups": "abcde"}, "changed since the page was made: it shows 'a', .*, 'e', but the groups are 'a', .*, 'f'"),
        ({"groups": "abcdeg"}, "Were these changes applied before"),
        ({"groups": [1, 2, 3, 4, 5, 6]}, "changed since"),
    ],
)
def test_changes_that_do_not_fit_are_refused(grouping, write, changes, message):
    with pytest.raises(InputError, match=message):
        apply_changes(grouping, write(**changes))


def test_changes_are_applied_once(grouping, write):
    path = write([[1, 2]], {"3": "y"})
    apply_changes(grouping, path)
    with pytest.raises(InputError, match="applied before"):
        apply_changes(grouping, path)


def test_a_long_name_fits_as_the_page_clips_it(grouping, write):
    grouping.rename({0: "long " * 30})
    apply_changes(grouping, write(rename={"2": "z"}, groups=["long " * 15 + "long…", *"bcdef"]))
    assert grouping.names[1] == "z"


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"question": "a", "merge": {}, "rename": []}', "[" * 100_000])
def test_other_files_are_no_changes(grouping, tmp_path, content):
    (tmp_path / "changes.json").write_text(content)
    with pytest.raises(InputError, match="changes"):
        apply_changes(grouping, tmp_path / "changes.json")
    with pytest.raises(InputError, match="cannot be read"):
        apply_changes(grouping, tmp_path / "none.json")
