import pytest

from inbedder.errors import RecipeError
from inbedder_finetune.answering.answering_recipe import parse_recipe
from inbedder_finetune.answering.plan import resolve_plan


def plan(**training):
    return resolve_plan(parse_recipe({"model": "m", "data": {"sources": ["a"]}, "training": training}))


def rows(**training):
    resolved = plan(**training)
    return resolved.micro_batch, resolved.rows_per_process // resolved.micro_batch


def test_a_step_is_shared_by_processes_and_passes(monkeypatch):
    assert rows(batch_size=64) == (64, 1)
    assert rows(batch_size=64, micro_batch=8) == (8, 8)
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert rows(batch_size=64) == (16, 1)
    assert rows(batch_size=64, micro_batch=4) == (4, 4)
    assert (plan(batch_size=64).shards, plan(batch_size=64, fsdp=True).shards) == (1, 4)
    with pytest.raises(RecipeError, match="batch_size=64 cannot be shared by 4 processes with 32 rows at once"):
        plan(batch_size=64, micro_batch=32)
