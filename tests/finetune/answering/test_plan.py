import pytest

from inbedder.errors import RecipeError
from inbedder_finetune.answering.answering_recipe import parse_recipe
from inbedder_finetune.answering.plan import resolve_plan


def plan(**training):
    return resolve_plan(parse_recipe({"model": "m", "data": {"sources": ["a"]}, "training": training}))


def split_rows(**training):
    resolved = plan(**training)
    return resolved.micro_batch, resolved.rows_per_process // resolved.micro_batch


def test_a_step_is_split_over_processes_and_micro_batches(monkeypatch):
    assert split_rows(batch_size=64) == (64, 1)
    assert split_rows(batch_size=64, micro_batch=8) == (8, 8)
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert split_rows(batch_size=64) == (16, 1)
    assert split_rows(batch_size=64, micro_batch=4) == (4, 4)
    assert (plan(batch_size=64).shards, plan(batch_size=64, fsdp=True).shards) == (1, 4)
    with pytest.raises(RecipeError, match="batch_size=64 is not a multiple of 4 processes times 32 rows"):
        plan(batch_size=64, micro_batch=32)
