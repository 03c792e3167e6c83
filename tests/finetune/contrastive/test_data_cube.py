import json
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from inbedder import InBedder
from inbedder.errors import RecipeError
from inbedder_finetune.contrastive.contrastive_recipe import Curriculum
from inbedder_finetune.contrastive.data_cube import make_data_cube_batches, measure_margins
from inbedder_finetune.contrastive.train_contrastive import finetune, load_training_pairs, parse_recipe
from tests.conftest import assert_close


@pytest.fixture
def folder(tmp_path):
    rows = [
        {
            "query": ["Say it: ", f"{task} {i}"],
            "pos": ["Say it: ", f"the {task}"],
            "neg": ["Say it: ", wrong_word * i],
            "task_id": task,
        }
        for task, wrong_word in (("cats", "lamp "), ("box", "dogs "), ("voucher", "green "))
        for i in range(1, 6)
    ]
    (tmp_path / "medi.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    questions = [{"instruction": f"What number {i}?", "input": f"Number {i} came"} for i in range(3)]
    (tmp_path / "qa.jsonl").write_text("".join(json.dumps(row) + "\n" for row in questions))
    return tmp_path


def make_recipe(model, folder, output="out", **settings):
    sources = ["medi.jsonl", {"path": "qa.jsonl", "format": "qa"}]
    training = {"output": str(output), "batch_size": 2, "learning_rate": 1e-3, "log_steps": 1}
    return parse_recipe(
        {"model": model, "data": {"folder": str(folder), "sources": sources}, "training": training, "max_length": 48, **settings}
    )


def test_the_margin_is_the_difference_of_the_cosines(make_model, folder):
    model = InBedder(make_model("headless-bert"), backbone="instructor")
    pairs, _ = load_training_pairs(make_recipe(make_model("headless-bert"), folder))
    margins = measure_margins(pairs, model)
    for row, margin in zip(pairs[:15], margins, strict=False):
        vectors = [model.encode(one.text, one.instruction) for one in (row.query, row.positive, row.negatives[0])]
        assert_close(margin, vectors[0] @ vectors[1] - vectors[0] @ vectors[2])


def test_a_row_without_a_negative_gets_another_positive_of_its_task(make_model, folder):
    model = InBedder(make_model("headless-bert"), backbone="instructor")
    pairs = load_training_pairs(make_recipe(make_model("headless-bert"), folder))[0][15:]
    query, positives = model.encode(pairs[0].query.text, ""), model.encode([row.positive.text for row in pairs], "")
    possible = query @ positives[0] - positives[1:] @ query
    assert np.abs(possible - measure_margins(pairs, model)[0]).min() < 1e-5
    assert_close(measure_margins(pairs[:1], model), [0.0])


def test_task_vectors_pool_the_query_and_not_its_instruction(make_model, folder, monkeypatch):
    name = make_model("headless-bert")
    pairs, _ = load_training_pairs(make_recipe(name, folder))
    task_vectors = []
    monkeypatch.setattr(
        "inbedder_finetune.contrastive.data_cube.arrange", lambda _tasks, _order, vectors, *_, **__: task_vectors.append(vectors)
    )
    make_data_cube_batches(pairs, Curriculum(model=name, instances=False), 2, seed=0)
    model = InBedder(name, backbone="instructor")
    tasks = sorted({row.task for row in pairs})
    queries = [[row.query for row in pairs if row.task == task] for task in tasks]
    vectors = [np.mean([model.encode(one.text, one.instruction) for one in query], axis=0) for query in queries]
    assert_close(task_vectors[0], np.stack(vectors))
    in_one_text = [np.mean([model.encode(one.instruction + one.text, "") for one in query], axis=0) for query in queries]
    assert np.abs(task_vectors[0] - np.stack(in_one_text))[[bool(query[0].instruction) for query in queries]].max() > 1e-2


def test_batches_are_of_one_task_and_go_from_easy_to_difficult(make_model, folder):
    name = make_model("headless-bert")
    pairs, _ = load_training_pairs(make_recipe(name, folder))
    batches, anchors = make_data_cube_batches(pairs, Curriculum(model=name, tour="2-opt"), 2, seed=0)
    assert all(anchors)
    assert sorted(row for batch in batches for row in batch) == list(range(len(pairs)))
    margins = measure_margins(pairs, InBedder(name, backbone="instructor"))
    for task in {row.task for row in pairs}:
        order = [row for batch in batches for row in batch if pairs[row].task == task]
        assert all(margins[first] >= margins[second] for first, second in pairwise(order))
    assert all(len({pairs[row].task for row in batch}) == 1 for batch in batches)


def test_masked_rows_stay_in_batches_that_hold_an_anchor(make_model, folder):
    name = make_model("headless-bert")
    pairs, _ = load_training_pairs(make_recipe(name, folder))
    middle = float(np.median(measure_margins(pairs, InBedder(name, backbone="instructor"))))
    all_batches, _ = make_data_cube_batches(pairs, Curriculum(model=name, tour="2-opt"), 3, seed=0)
    masks = []
    for direction in ("text", "equation"):
        batches, anchors = make_data_cube_batches(
            pairs, Curriculum(model=name, tour="2-opt", threshold=middle, direction=direction), 3, 0
        )
        assert batches == [batch for batch in all_batches if any(anchors[row] for row in batch)]
        assert {row for row, is_anchor in enumerate(anchors) if is_anchor} <= {row for batch in batches for row in batch}
        assert any(not anchors[row] for batch in batches for row in batch)
        masks.append(anchors)
    assert masks[0] == [not is_anchor for is_anchor in masks[1]]


def test_masked_rows_reach_the_loss_as_negatives(make_model, folder, tmp_path, monkeypatch):
    name = make_model("headless-bert")
    masks = []

    def record(embeddings, labels, temperature, denominator):
        masks.append(labels[:, 0].tolist())
        return sum(column.sum() for column in embeddings)

    monkeypatch.setattr("inbedder_finetune.contrastive.contrastive_losses.compute_loss", record)
    pairs, _ = load_training_pairs(make_recipe(name, folder))
    middle = float(np.median(measure_margins(pairs, InBedder(name, backbone="instructor"))))
    settings = {"model": name, "threshold": middle, "tour": "2-opt"}
    finetune(make_recipe(name, folder, tmp_path / "out", curriculum=settings))
    batches, anchors = make_data_cube_batches(pairs, Curriculum(**settings), 2, seed=0)
    assert masks == [[int(anchors[row]) for row in batch] for batch in batches]


def test_a_recipe_with_a_curriculum_records_underfitted_rows(make_model, folder, tmp_path):
    name = make_model("headless-bert")
    output = finetune(make_recipe(name, folder, tmp_path / "out", curriculum={"model": name, "steps": 1000}))
    shares = json.loads((output / "underfitting.json").read_text())
    assert list(shares) == ["before", "after"]
    assert len(shares["after"]["tasks"]) == 4
    assert InBedder(output).encode("I love cats", "Say it: ").shape == (InBedder(output).dimension,)


def test_a_run_with_a_curriculum_that_diverges_saves_nothing(make_model, folder, tmp_path):
    name = make_model("headless-bert")
    recipe = make_recipe(name, folder, tmp_path / "out", curriculum={"model": name, "steps": 0})
    recipe = replace(recipe, training=replace(recipe.training, learning_rate=1e30))
    with pytest.raises(RecipeError, match=r"is (nan|inf) at step [234] of \d+, where the learning rate"):
        finetune(recipe)
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["run.json"]


@pytest.mark.parametrize(("threshold", "direction"), [(3, "text"), (-3, "equation")])
def test_a_threshold_that_leaves_no_anchor_is_refused(make_model, folder, threshold, direction):
    name = make_model("headless-bert")
    pairs, _ = load_training_pairs(make_recipe(name, folder))
    with pytest.raises(RecipeError, match=rf"curriculum.threshold={threshold} leaves no row .* The margins are from -?\d"):
        make_data_cube_batches(pairs, Curriculum(model=name, tour="2-opt", threshold=threshold, direction=direction), 2, seed=0)


def test_an_unknown_direction_is_refused(make_model, folder):
    with pytest.raises(RecipeError, match="'up'; choose one of: text or equation"):
        make_recipe(make_model("headless-bert"), folder, curriculum={"direction": "up"})
