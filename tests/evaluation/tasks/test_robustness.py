import json
from statistics import mean

import pytest

from inbedder.errors import InputError
from inbedder_evaluation.tasks import Data, build_tasks
from inbedder_evaluation.tasks.robustness import (
    KINDS,
    InstructionRobustness,
    LabelledTexts,
    compute_deltas,
    read_authors_instructions,
    read_original_instruction,
    read_robustness_instructions,
)
from tests.evaluation.tasks.test_tasks import ignorant, one_hot

DELTAS = ("delta_ci_means", "delta_ii_means", "delta_ci_min_max", "delta_ii_min_max")
TEXTS = [f"{kind} {i}" for kind in "abc" for i in range(8)]
DATA = LabelledTexts("toy", TEXTS, [text[0] for text in TEXTS], "toy", "none")
ASKED = {"correct": ["Kind?", "Which kind?"], "implicit": ["Shelf?", "Sort?"], "incorrect": ["Long?", "Loud?"]}


def obedient(texts, instruction):
    """Groups by the label when asked for it, half of the time when it is implied, never when not."""
    if instruction in ASKED["correct"] or instruction == "Shelf?":
        return one_hot([text[0] for text in texts])
    return ignorant(texts, instruction)


def test_deltas_are_differences_of_means():
    scores = InstructionRobustness(DATA, ASKED).evaluate(obedient, seed=0)
    correct, implicit, incorrect = (
        mean(scores[f"{kind}_{i}"] for i in range(2)) for kind in ("correct", "implicit", "incorrect")
    )
    assert correct == pytest.approx(100)
    assert scores["delta_ci_means"] == pytest.approx(correct - incorrect)
    assert scores["delta_ii_means"] == pytest.approx(implicit - incorrect)
    worst_incorrect = max(scores["incorrect_0"], scores["incorrect_1"])
    assert scores["delta_ci_min_max"] == pytest.approx(100 - worst_incorrect)
    assert scores["delta_ii_min_max"] == pytest.approx(scores["implicit_1"] - worst_incorrect)
    assert (scores["correct_min"], scores["correct_mean"], scores["correct_max"]) == pytest.approx((100, 100, 100))
    assert 0 < scores["delta_ii_means"] < scores["delta_ci_means"]


def test_a_model_that_ignores_instructions_has_no_delta():
    scores = InstructionRobustness(DATA, ASKED).evaluate(ignorant, seed=0)
    assert [scores[name] for name in DELTAS] == [0, 0, 0, 0]


def test_delta_is_a_difference_of_means_or_of_extremes():
    values = {"correct": [50.0, 70.0], "implicit": [40.0, 60.0], "incorrect": [10.0, 45.0]}
    assert compute_deltas(values) == dict(zip(DELTAS, (32.5, 22.5, 5.0, -5.0), strict=True))


def write_instructions(tmp_path):
    instructions = {f"{kind}_instructions": [f"{kind} {i}?" for i in range(2)] for kind in KINDS}
    content = {
        "FewRel": {"instruction": "Why?", **instructions},
        "NYTTopic": instructions,
        "NYTLocation": {"instruction": "Where?"},
    }
    (tmp_path / "i.json").write_text(json.dumps(content))
    return tmp_path / "i.json"


def test_the_authors_sets_need_the_hub_and_a_file_of_instructions(monkeypatch, tmp_path):
    asked_for = []

    def load(path, config, **options):
        asked_for.append((path, config, options["revision"][:8]))
        return [{"text": f"{label} {i}", "cluster": label} for label in "ab" for i in range(5)]

    monkeypatch.setattr("datasets.load_dataset", load)
    tasks = build_tasks(Data(hub=True, instructions=write_instructions(tmp_path)), ["NYTTopic robustness", "FewRel robustness"])
    assert [task.info.name for task in tasks] == ["NYTTopic robustness", "FewRel robustness"]
    assert asked_for == [("BrandonZYW/NYTClustering", "topic", "462fb544"), ("BrandonZYW/FewRelClustering", None, "d951bf6c")]
    assert tasks[1].get_first_input() == ("a 0", "correct 0?")
    scores = tasks[1].evaluate(lambda texts, _instruction: one_hot([text[0] for text in texts]), seed=0)
    assert scores["correct_mean"] == pytest.approx(100) and scores["delta_ci_min_max"] == 0


def test_the_original_instruction_of_a_set_is_read(tmp_path):
    path = write_instructions(tmp_path)
    assert read_original_instruction(path, "NYTLocation") == "Where?"
    for name in ("NYTTopic", "Feedbacks"):
        with pytest.raises(InputError, match=f"has no instruction of {name}"):
            read_original_instruction(path, name)


def test_robustness_sets_need_a_file_of_instructions(tmp_path):
    with pytest.raises(InputError, match="No task is called FewRel robustness"):
        build_tasks(Data(hub=True), ["FewRel robustness"])
    with pytest.raises(InputError, match="add --hub"):
        build_tasks(Data(instructions=write_instructions(tmp_path)))


@pytest.mark.parametrize("content", ["{", "[]", '{"FewRel": []}', '{"FewRel": {"correct_instructions": ["a"]}}'])
def test_a_file_without_instructions_is_named(tmp_path, content):
    (tmp_path / "bad.json").write_text(content)
    with pytest.raises(InputError, match=r"bad\.json"):
        read_authors_instructions(tmp_path / "bad.json")
    with pytest.raises(InputError, match="Cannot read instructions"):
        read_authors_instructions(tmp_path / "none.json")


@pytest.mark.parametrize(
    ("data", "instructions", "message"),
    [
        (DATA, {**ASKED, "implicit": []}, "has no implicit instructions"),
        (LabelledTexts("toy", TEXTS, ["a"] * 24, "toy", "none"), ASKED, "1 classes in 24 texts"),
        (LabelledTexts("toy", TEXTS, TEXTS, "toy", "none"), ASKED, "24 classes in 24 texts"),
    ],
)
def test_what_cannot_be_measured_is_refused(data, instructions, message):
    with pytest.raises(InputError, match=message):
        InstructionRobustness(data, instructions)


def test_every_shipped_criterion_has_ten_of_each_kind():
    for criteria in read_robustness_instructions().values():
        for instructions in criteria.values():
            assert [len(instructions[kind]) for kind in ("correct", "implicit", "incorrect")] == [10, 10, 10]
            every = [one for kind in ("correct", "implicit", "incorrect") for one in instructions[kind]]
            assert len(set(every)) == 30
