"""Callbacks and reports of training, with every method."""

import json

import pytest
from transformers import TrainerCallback

from inbedder_finetune.answering import train_answering as answering
from inbedder_finetune.conditional import train_conditional as conditional
from inbedder_finetune.contrastive import train_contrastive as contrastive

ROWS = {
    "qa.jsonl": [{"input": f"I love cats {i}", "instruction": "What do they love?", "output": "cats"} for i in range(32)],
    "pairs.jsonl": [
        {"query": ["What? ", f"I love cats {i}"], "pos": ["What? ", f"cats {i}"], "neg": [["No: ", f"dogs {i}"]], "task_id": "a"}
        for i in range(32)
    ],
    "rated.jsonl": [
        {"sentence1": f"cats {i}", "sentence2": f"dogs {i}", "condition": condition, "label": label}
        for i in range(16)
        for condition, label in (("love", 5), ("animals", 1))
    ],
}
METHODS = {
    "answering": (answering, "opt", {"data": {"sources": ["qa.jsonl"], "cache": None}, "max_length": 48}),
    "contrastive": (contrastive, "headless-bert", {"data": {"sources": ["pairs.jsonl"]}, "max_length": 48}),
    "conditional": (conditional, "bert", {"data": {"train": "rated.jsonl", "validation": None}, "encoding": {"max_length": 48}}),
}


class StopAfterThree(TrainerCallback):
    """A callback that records what it sees, and stops the run."""

    def __init__(self):
        self.events = []

    def on_train_begin(self, args, state, control, **_kwargs):
        self.events.append("begin")

    def on_log(self, args, state, control, logs=None, **_kwargs):
        self.events.append(sorted(logs)[0] if "loss" not in logs else logs["loss"])
        control.should_training_stop = state.global_step == 3

    def on_train_end(self, args, state, control, **_kwargs):
        self.events.append("end")


@pytest.fixture(params=METHODS)
def make_run(request, make_model, tmp_path):
    """A function that makes the method and the recipe of a run of six steps."""
    method, family, settings = METHODS[request.param]
    for name, rows in ROWS.items():
        (tmp_path / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    schedule = {"output": str(tmp_path / "out"), "batch_size": 4, "learning_rate": 5e-3, "max_steps": 6, "log_steps": 1}

    def make(**training):
        data = {**settings["data"], "folder": str(tmp_path)}
        changes = {"model": make_model(family), "data": data, "training": {**schedule, **training}}
        return method, method.parse_recipe({**settings, **changes})

    return make


def test_a_callback_sees_every_step_and_can_stop_the_run(make_run):
    method, recipe = make_run()
    recorder = StopAfterThree()
    folder = method.finetune(recipe, callbacks=[recorder])
    first, *losses, summary, last = recorder.events
    assert (first, summary, last) == ("begin", "epoch", "end")
    assert len(losses) == 3 and all(loss > 0 for loss in losses)
    assert (folder / "README.md").is_file()  # what is trained so far is saved


def test_tensorboard_holds_the_losses_of_the_run(make_run):
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    method, recipe = make_run(report_to=["tensorboard"])
    recorder = StopAfterThree()
    folder = method.finetune(recipe, callbacks=[recorder])
    (log,) = folder.glob("runs/*")
    accumulator = events.EventAccumulator(str(log))
    accumulator.Reload()
    written = [(event.step, event.value) for event in accumulator.Scalars("train/loss")]
    assert written == [(step, pytest.approx(loss)) for step, loss in enumerate(recorder.events[1:4], start=1)]
