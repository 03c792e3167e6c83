from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from inbedder import InBedder
from inbedder.backbones.kv_cache import KVCache
from inbedder.errors import InputError
from tests.conftest import INSTRUCTIONS, TEXTS


@pytest.mark.parametrize("family", ["opt", "gpt2", "llama", "qwen2"])
@pytest.mark.parametrize("layer", [-1, 1])
def test_remembered_texts_give_the_vectors_of_whole_prompts(make_model, family, layer):
    plain, caching = (InBedder(make_model(family), layer=layer, text_memory=size) for size in (None, "100M"))
    for instruction in [*INSTRUCTIONS, INSTRUCTIONS[0]]:
        assert np.abs(caching.encode(TEXTS, instruction, batch_size=3) - plain.encode(TEXTS, instruction)).max() < 1e-4
    texts, instructions = [TEXTS[0], "a new text", TEXTS[1]], INSTRUCTIONS[:3]
    assert np.abs(caching.encode(texts, instructions) - plain.encode(texts, instructions)).max() < 1e-4


def test_a_second_question_reads_no_text_again(make_model):
    model = InBedder(make_model("llama"), text_memory="100M")
    read_counts = []
    model.backbone.body.register_forward_hook(
        lambda _module, _args, kwargs, _output: read_counts.append(kwargs["input_ids"].numel()), with_kwargs=True
    )
    model.encode(TEXTS, "What is it about?")
    first = sum(read_counts)
    read_counts.clear()
    model.encode(TEXTS, "Where is it?")
    longest = max(len(prompt.ids) - prompt.instruction[0] for prompt in model.tokenizer(TEXTS, ["Where is it?"] * len(TEXTS)))
    assert sum(read_counts) == longest * len(set(TEXTS)) < first


def test_what_was_used_least_recently_goes_when_there_is_no_room():
    states = torch.zeros(2, 2, 1, 5, 10)  # 800 bytes
    memory = KVCache(2000)
    memory.keep(b"a", states)
    memory.keep(b"b", states)
    assert memory.find(b"a") is not None
    memory.keep(b"c", states)
    assert memory.find(b"b") is None
    assert memory.find(b"a") is not None
    memory.keep(b"large", torch.zeros(3000))
    assert (memory.size, memory.find(b"large")) == (1600, None)


def test_eight_threads_with_little_memory_get_the_right_vectors(make_model):
    plain, caching = (InBedder(make_model("llama"), text_memory=size) for size in (None, "1M"))
    requests = [(TEXTS[start:] + TEXTS[:start], instruction) for start in range(4) for instruction in INSTRUCTIONS]
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda one: caching.encode(*one), requests))
    for vectors, one in zip(results, requests, strict=True):
        assert np.abs(vectors - plain.encode(*one)).max() < 1e-4
    assert caching.pipeline.runner.kv_cache.size <= 10**6


def test_another_pooling_of_the_same_model_does_not_read_from_the_memory(make_model):
    plain, caching = (
        InBedder(make_model("llama"), text_memory=size).replace(pooling="avg-gen", text_memory=None) for size in (None, "1M")
    )
    with pytest.raises(InputError, match="text_memory is for causal LMs, 1st-gen and soft-gen"):
        InBedder(make_model("llama"), text_memory="1M").replace(pooling="avg-gen")
    assert np.abs(caching.encode(TEXTS, INSTRUCTIONS[0]) - plain.encode(TEXTS, INSTRUCTIONS[0])).max() < 1e-4


def test_an_empty_text_before_which_nothing_stands_is_read_plainly(make_model):
    options = {"template": "{input}{instruction}"}
    plain, caching = (InBedder(make_model("llama"), text_memory=size, **options) for size in (None, "1M"))
    assert np.abs(caching.encode(["", "cats"], "Who?") - plain.encode(["", "cats"], "Who?")).max() < 1e-4


@pytest.mark.parametrize(
    ("family", "options", "reason"),
    [
        ("bert", {"text_memory": "1G"}, "text's states depend on the instruction"),
        ("llama", {"text_memory": "1G", "pooling": "avg-gen"}, "more than the prompt's last state"),
        ("llama", {"text_memory": "much"}, "not a valid cache size"),
        ("llama", {"text_memory": "unlimited"}, "needs a limit"),
    ],
)
def test_a_memory_that_cannot_help_is_refused(make_model, family, options, reason):
    with pytest.raises(InputError, match=reason):
        InBedder(make_model(family), **options)
