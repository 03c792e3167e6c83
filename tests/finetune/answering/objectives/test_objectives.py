"""Registry and sum of the objectives."""

from collections import Counter
from dataclasses import fields

import pytest
import torch

from inbedder_finetune.answering.objectives import OBJECTIVES, ObjectiveSettings, compute_vector_loss, make_objectives
from inbedder_finetune.answering.objectives.amortized_reencoding import AmortizedReencoding
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
    assert list_active(token_weight=0, reencode_weight=1) == ["AmortizedReencoding"]
    assert list_active(cosine_weight=1) == ["AmortizedReencoding", "AnswerTokens"]


def test_a_steps_loss_is_the_sum_of_its_objectives():
    v, e, numbers = torch.eye(3), torch.eye(3)[[1, 2, 0]], torch.arange(3)
    objectives = [AmortizedReencoding(**weights) for weights in ({"reencode_weight": 0.5}, {"cosine_weight": 2.0})]
    batch = {"AmortizedReencoding": e, "AmortizedReencoding_index": numbers}
    total = compute_vector_loss(objectives, v, batch).item()
    assert total == pytest.approx(sum(one.compute_loss(v, e, numbers).item() for one in objectives))
    assert compute_vector_loss([], v, {}).item() == 0
