"""Registry and sum of the objectives."""

from collections import Counter
from dataclasses import fields

import pytest
import torch

from inbedder_finetune.answering.objectives import OBJECTIVES, QUESTION, ObjectiveSettings, compute_vector_loss, make_objectives
from inbedder_finetune.answering.objectives.base import VectorSettings


def test_settings_of_objectives_have_unique_names():
    shared = {field.name for field in fields(VectorSettings)}
    names = Counter(field.name for kind in OBJECTIVES for field in fields(kind) if field.name not in shared)
    assert set(names.values()) == {1}
    assert {field.name for field in fields(ObjectiveSettings)} == shared | names.keys()


def test_objectives_are_active_where_a_recipe_gives_them_weight():
    def list_active(**settings):
        return [type(one).__name__ for one in make_objectives(ObjectiveSettings(**settings)) if one.is_active]

    assert list_active() == ["AnswerTokens"]
    assert list_active(token_weight=0, reencode_weight=1) == ["AmortisedReencoding"]
    assert list_active(token_weight=0, teacher="t") == ["Distillation"]
    assert list_active(teacher="t", teacher_weight=0) == ["AnswerTokens"]


def test_a_steps_loss_is_the_sum_of_its_objectives():
    v, e, t = torch.eye(3), torch.eye(3)[[1, 2, 0]], torch.eye(3)[[2, 0, 1]]
    settings = ObjectiveSettings(reencode_weight=0.5, teacher="t", teacher_weight=2.0, temperature=1.0)
    objectives = [one for one in make_objectives(settings) if type(one).__name__ in ("AmortisedReencoding", "Distillation")]
    numbers = torch.arange(3)
    batch = {"AmortisedReencoding": e, "AmortisedReencoding_index": numbers, "Distillation": t, "Distillation_index": numbers}
    both = compute_vector_loss(objectives, v, batch).item()
    assert both == pytest.approx(sum(one.compute_loss(v, batch[one.name], numbers).item() for one in objectives))
    assert compute_vector_loss([], v, {}).item() == 0
    question = torch.tensor([[0.5, -1.0, 2.0]] * 3)
    assert compute_vector_loss(objectives, v + question, {**batch, QUESTION: question}).item() == pytest.approx(both)
