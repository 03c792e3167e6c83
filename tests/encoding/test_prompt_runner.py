import multiprocessing
import random
import time
from dataclasses import replace

import numpy as np
import pytest
import torch

from inbedder import InBedder
from inbedder.encoding import prompt_runner
from inbedder.errors import InputError, TextCutWarning
from inbedder.options import Reencoding
from tests.conftest import INSTRUCTIONS, TEXTS

CHANGES = [
    {"layer": 1},
    {"pooling": "avg-gen"},
    {"max_length": 100},
    {"max_new_tokens": 2},
    {"template": "{instruction}\n{input}\nAnswer:"},
    {"dtype": "bfloat16"},
]


@pytest.fixture
def counted(monkeypatch):
    """Count the prompts of each call of a model's embed and answer."""
    counts = []

    def count_calls(model):
        for name in ("embed", "answer"):
            function = getattr(model.backbone, name)

            def count(prompts, *arguments, _function=function):
                counts.append(len(prompts))
                return _function(prompts, *arguments)

            monkeypatch.setattr(model.backbone, name, count)
        return counts

    return count_calls


def test_each_text_and_instruction_is_computed_once(make_model, counted):
    model = InBedder(make_model("opt"))
    counts = counted(model)
    vectors = model.encode(["a", "b", "a", "a"], ["What?", "What?", "What?", "Why?"])
    assert sum(counts) == 3
    assert (vectors[0] == vectors[2]).all()
    assert np.abs(vectors[0] - vectors[3]).max() > 1e-3


@pytest.mark.parametrize("kind", ["opt", "bert", "t5"])
def test_cached_results_are_not_computed_again_and_are_bit_equal(make_model, tmp_path, counted, kind):
    first = InBedder(make_model(kind), cache=tmp_path / "kept")
    vectors, answers = first.encode(TEXTS, "What?"), first.answer(TEXTS, "What?")
    second = InBedder(make_model(kind), cache=tmp_path / "kept")
    counts = counted(second)
    assert (second.encode(TEXTS[::-1], "What?")[::-1] == vectors).all()
    assert second.answer(TEXTS, "What?") == answers
    assert second.encode(TEXTS[0], "What?").shape == (first.dimension,)
    assert counts == []
    second.encode([*TEXTS, "new"], "What?")
    assert counts == [1]


@pytest.mark.parametrize("change", CHANGES, ids=str)
def test_other_settings_find_nothing_in_the_cache(make_model, tmp_path, counted, change):
    InBedder(make_model("opt"), cache=tmp_path).encode(["a"], "What?")
    model = InBedder(make_model("opt"), cache=tmp_path, **change)
    counts = counted(model)
    model.encode(["a"], "What?")
    assert counts == [1]


@pytest.mark.parametrize("call", [("b", "What?", {}), ("a", "Why?", {}), ("a", "What?", {"filter_words": ["a"]})])
def test_another_text_instruction_or_filter_finds_nothing_in_the_cache(make_model, tmp_path, counted, call):
    model = InBedder(make_model("opt"), cache=tmp_path)
    model.encode(["a"], "What?")
    counts = counted(model)
    text, instruction, options = call
    model.encode([text], instruction, **options)
    assert counts == [1]


@pytest.mark.parametrize("sampling", [{"n": 2}, {"temperature": 0.5}, {"temperature": 0.5, "top_p": 0.5}])
def test_other_sampling_finds_no_cached_answers(make_model, tmp_path, counted, sampling):
    model = InBedder(make_model("opt"), cache=tmp_path)
    model.answer(["a"], "What?")
    counts = counted(model)
    model.answer(["a"], "What?", **sampling)
    assert counts == [1]
    model.answer(["a"], "What?", **sampling, seed=1)
    assert len(counts) == (2 if "temperature" in sampling else 1)


@pytest.mark.parametrize("kind", ["opt", "bert", "t5"])
def test_cached_answers_serve_every_minimum_confidence(make_model, tmp_path, counted, kind):
    plain, model = InBedder(make_model(kind)), InBedder(make_model(kind), cache=tmp_path, min_confidence=1.0)
    assert set(model.answer(TEXTS, "What?")) == {""}
    counts = counted(model)
    prompts = model.tokenizer(TEXTS, ["What?"] * len(TEXTS))
    scored = [row[0] for row in plain.backbone.answer(prompts, plain.options.encoding.sampling)]
    median = sorted(answer.confidence for answer in scored)[len(TEXTS) // 2] * (1 + 1e-4)
    for threshold in (0, median, 1.0):
        expected = plain.answer(TEXTS, "What?", min_confidence=threshold)
        assert model.answer(TEXTS, "What?", min_confidence=threshold) == expected
        assert model.replace(min_confidence=threshold).answer(TEXTS, "What?") == expected
        assert expected == [answer.text.strip() if answer.confidence >= threshold else "" for answer in scored]
    assert counts == []


def test_vectors_are_cached_for_every_minimum_confidence(make_model, tmp_path, counted):
    for options in ({}, {"pooling": "re-enc", "reencoding": Reencoding(n=1, temperature=0)}):
        vectors = InBedder(make_model("opt"), cache=tmp_path, **options).encode(TEXTS, "What?")
        model = InBedder(make_model("opt"), cache=tmp_path, min_confidence=1.0, **options)
        counts = counted(model)
        assert (model.encode(TEXTS, "What?") == vectors).all()
        assert counts == []


def test_other_weights_or_another_adapter_scale_find_nothing(make_model, tmp_path, counted):
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    base = make_model("llama")
    adapted = get_peft_model(
        AutoModelForCausalLM.from_pretrained(base), LoraConfig(r=2, init_lora_weights=False, target_modules=["q_proj"])
    )
    folder = tmp_path / "adapter"
    adapted.save_pretrained(folder)
    InBedder(folder, cache=tmp_path / "kept").encode(["a"], "What?")
    settings = folder / "adapter_config.json"
    settings.write_text(settings.read_text().replace('"lora_alpha": 8', '"lora_alpha": 16'))
    for name in (folder, base):
        model = InBedder(name, cache=tmp_path / "kept")
        counts = counted(model)
        model.encode(["a"], "What?")
        assert len(counts) == 1
        counts.clear()


def test_vectors_of_unknown_weights_are_not_cached(make_model, tmp_path):
    model = InBedder(make_model("opt"), cache=tmp_path)
    model.pipeline.runner._make_spec = lambda: replace(model.spec, weights="unknown")
    with pytest.raises(InputError, match="have no revision"):
        model.encode(["a"], "What?")


def test_a_damaged_entry_is_reported_and_computed_again(make_model, tmp_path, counted, caplog):
    import sqlite3

    model = InBedder(make_model("opt"), cache=tmp_path)
    vectors = model.encode(["a"], "What?")
    with sqlite3.connect(model.pipeline.store.path) as raw:
        raw.execute("UPDATE entries SET data = zeroblob(length(data))")
    counts = counted(model)
    assert np.abs(model.encode(["a"], "What?") - vectors).max() < 1e-6
    assert counts == [1]
    assert "damaged" in caplog.text


@pytest.mark.parametrize("table", ["entries", "uses", "sqlite_autoindex_spaces_1"])
def test_an_unreadable_cache_warns_and_vectors_are_computed_again(make_model, tmp_path, counted, caplog, table):
    import sqlite3

    vectors = InBedder(make_model("opt"), cache=tmp_path).encode(TEXTS, "What?")
    with sqlite3.connect(tmp_path / "inbedder.sqlite") as raw:
        (page,) = raw.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (table,)).fetchone()
    raw.close()
    with (tmp_path / "inbedder.sqlite").open("r+b") as file:
        file.seek((page - 1) * 4096)
        file.write(bytes(4096))
    model = InBedder(make_model("opt"), cache=tmp_path)
    counts = counted(model)
    assert np.abs(model.encode(TEXTS, "What?") - vectors).max() < 1e-6
    assert sum(counts) == len(set(TEXTS))
    assert caplog.text.count("Results are computed again") == 1
    assert "inbedder cache verify --repair" in caplog.text


def test_logs_contain_no_text_no_instruction_and_no_key(make_model, tmp_path, caplog, recwarn, monkeypatch):
    import logging
    import sqlite3

    from inbedder.cache.store import hash_entry

    monkeypatch.setenv("HF_TOKEN", "hf_theKeyOfAnAccount")
    text, instruction = "The sultana keeps marigolds " * 100, "Which flowerpot is it?"
    caplog.set_level(logging.DEBUG)
    for damaged in (False, True):
        model = InBedder(make_model("llama"), cache=tmp_path, max_length=128)
        if damaged:
            with sqlite3.connect(model.pipeline.store.path) as raw:
                raw.execute("UPDATE entries SET data = zeroblob(length(data))")
        model.encode([text, text[:30]], instruction)
        model.encode_many([text, text[:30]], [instruction, f"{instruction} Why?"])
        model.answer([text], instruction)
        model.answer([text], instruction, n=2, temperature=0.7)
    logged = caplog.text + "".join(str(warning.message) for warning in recwarn)
    assert "damaged entries are computed again" in logged
    assert "were cut at their end" in logged
    keys = [
        hash_entry(key_text, key_instruction).hex()
        for key_text in (text, text[:30])
        for key_instruction in (instruction, f"{instruction} Why?")
    ]
    for secret in ("sultana", "marigolds", "flowerpot", "theKeyOfAnAccount", *keys):
        assert secret not in logged


def test_vectors_that_are_not_finite_are_never_cached(make_model, tmp_path, monkeypatch):
    from inbedder.errors import ModelError

    model = InBedder(make_model("opt"), cache=tmp_path)
    embed = model.backbone.embed
    monkeypatch.setattr(model.backbone, "embed", lambda *args: embed(*args) * float("nan"))
    with pytest.raises(ModelError, match="NaN"):
        model.encode(["a", "b"], "What?")
    assert model.pipeline.store.info()[0]["entries"] == 0


def test_a_cached_text_that_was_cut_still_warns(make_model, tmp_path):
    model = InBedder(make_model("opt"), cache=tmp_path)
    for _ in range(2):
        with pytest.warns(TextCutWarning, match="1 of 2 texts were cut"):
            model.encode(["long " * 1000, "short"], "What?")


def test_several_windows_equal_one(make_model, monkeypatch):
    model = InBedder(make_model("opt"))
    texts = [" ".join(TEXTS[i % len(TEXTS)].split()[: i % 9 + 1]) + str(i) for i in range(60)]
    expected = model.encode(texts, "What?", batch_size=4)
    monkeypatch.setattr(prompt_runner, "PROMPTS_PER_WINDOW", 7)
    assert np.abs(model.encode(texts, "What?", batch_size=4) - expected).max() < 1e-5


def test_batch_size_must_be_positive(make_model):
    with pytest.raises(InputError, match="batch_size must be a whole number of at least 1, not 0"):
        InBedder(make_model("opt")).encode(["a"], "What?", batch_size=0)


@pytest.fixture
def one_thread():
    """One thread, as in the killed processes: the number of threads changes the last bits."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
def test_a_killed_run_resumes_and_its_vectors_are_bit_equal(make_model, tmp_path):
    """Kill a run with SIGKILL at random moments, fifty times."""
    folder, texts = make_model("opt"), [f"{TEXTS[i % len(TEXTS)]} {i}" for i in range(240)]
    expected = InBedder(folder).encode(texts, INSTRUCTIONS[0], batch_size=4)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["inbedder.embedder", "transformers.models.opt.modeling_opt"])
    rng, counts = random.Random(0), []
    for _ in range(50):
        batches = context.Value("i", 0)
        process = context.Process(target=_encode, args=(folder, texts, tmp_path / "kept", batches))
        process.start()
        last_batch = rng.randint(1, 70)  # there are 60
        while batches.value < last_batch and process.is_alive():
            time.sleep(0.001)
        process.join(rng.uniform(0, 0.02))
        process.kill()
        process.join()
        model = InBedder(folder, cache=tmp_path / "kept")
        assert model.pipeline.store.verify() == []
        counts.append(sum(space["entries"] for space in model.pipeline.store.info()))
        if counts[-1] == len(texts):
            assert (model.encode(texts, INSTRUCTIONS[0], batch_size=4) == expected).all()
            model.pipeline.store.clear()
    assert all(count % 4 == 0 for count in counts)
    assert sum(0 < count < len(texts) for count in counts) >= 10
    assert (InBedder(folder, cache=tmp_path / "kept").encode(texts, INSTRUCTIONS[0], batch_size=4) == expected).all()


def _encode(folder, texts, cache, batches):
    torch.set_num_threads(1)
    model = InBedder(folder, cache=cache)
    embed = model.backbone.embed

    def embed_slowly(*arguments):
        batches.value += 1
        time.sleep(0.01)
        return embed(*arguments)

    model.backbone.embed = embed_slowly
    model.encode(texts, INSTRUCTIONS[0], batch_size=4)
