"""vLLM's engine if it is installed (``scripts/test-vllm``), and tests that run without it."""

import os
import subprocess
import sys
from importlib.util import find_spec
from types import SimpleNamespace

import numpy as np
import pytest

from inbedder import InBedder
from inbedder.backbones import vllm as backend
from inbedder.backbones.protocol import check_pooling
from inbedder.errors import InputError, MissingExtraError, ModelError
from inbedder.models.install import find_installed_folder, get_base_name
from inbedder.options import Reencoding, Sampling
from tests.conftest import INSTRUCTIONS, TEXTS, assert_close

engine = [pytest.mark.vllm, pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not installed: scripts/test-vllm")]
OPTIONS = "vllm: {enforce_eager: true, kv_cache_memory_bytes: 67108864, disable_log_stats: false}"
ROOMY = "vllm: {enforce_eager: true, max_model_len: 512, kv_cache_memory_bytes: 134217728}"
REVIEWS = ["I love cats", "The delivery was late and the box was crushed", "Terrible film. I want my money back."]
QUESTIONS = [INSTRUCTIONS[i % len(INSTRUCTIONS)] for i in range(len(TEXTS))]
LONG = "The delivery was late and the box was crushed, but the lamp inside still works fine. " * 6


@pytest.fixture(scope="module", params=["wide-llama", "wide-opt"])
def pair(request, make_model):
    """Load a model in transformers and in vLLM."""
    folder = make_model(request.param)
    model = InBedder(folder, backbone=OPTIONS, max_new_tokens=4)
    yield InBedder(folder, max_new_tokens=4), model
    model.backbone.close()


def hits(model):
    """Count the prompt tokens read from the prefix cache; in one process, vLLM counts for the engine that started last."""
    return sum(one.value for one in model.backbone.engines["embed"].get_metrics() if one.name == "vllm:prefix_cache_hits")


class TestEngine:
    pytestmark = engine

    @pytest.mark.parametrize("pooling", ["1st-gen", "avg-gen", "last-gen", "avg-ppt", "avg-all"])
    def test_vectors_are_those_of_transformers(self, pair, pooling):
        ours, engine_model = (model.replace(pooling=pooling).encode(TEXTS, QUESTIONS) for model in pair)
        assert engine_model.dtype == np.float32
        assert_close(engine_model, ours, 1e-4)

    @pytest.mark.parametrize("ends", [True, False])
    def test_an_answer_that_ends_at_once_is_pooled_as_transformers_does(self, pair, monkeypatch, ends):
        ours, engine_model = (model.replace(pooling="avg-gen") for model in pair)
        first = {
            one[0]
            for answers in engine_model.backbone._generate(
                [p.ids.tolist() for p in engine_model.tokenizer(TEXTS, QUESTIONS)], engine_model.options.encoding.sampling
            )
            for one in answers
        }
        stops = sorted(first) if ends else [0]
        monkeypatch.setattr(ours.backbone, "_list_stop_ids", lambda: stops)
        monkeypatch.setattr(engine_model.backbone, "stops", stops)
        assert_close(engine_model.encode(TEXTS, QUESTIONS, batch_size=1), ours.encode(TEXTS, QUESTIONS, batch_size=1), 1e-4)

    def test_greedy_answers_are_those_of_transformers(self, pair):
        ours, engine_model = (model.answer(TEXTS, QUESTIONS) for model in pair)
        assert engine_model == ours
        assert pair[1].answer(TEXTS[:1], "What?", n=2) == [[one, one] for one in pair[0].answer(TEXTS[:1], "What?")]

    def test_sampled_answers_follow_their_seed(self, pair):
        sampled_answers = [pair[1].answer(TEXTS, QUESTIONS, n=3, temperature=1.0, top_p=0.9, seed=seed) for seed in (1, 1, 2)]
        assert [len(row) for row in sampled_answers[0]] == [3] * len(TEXTS)
        assert sampled_answers[0] == sampled_answers[1] != sampled_answers[2]
        assert any(len(set(row)) > 1 for row in sampled_answers[0])
        prompts, sampling = pair[1].tokenizer(TEXTS, QUESTIONS), Sampling(4, 3, 1.0, 0.9, 1)
        batch, single = (pair[1].backbone.answer(answers, sampling) for answers in (prompts, prompts[2:3]))
        assert [answer.text for answer in batch[2]] == [answer.text for answer in single[0]]
        assert [answer.confidence for answer in batch[2]] == pytest.approx([answer.confidence for answer in single[0]], rel=1e-3)

    def test_confidences_are_those_of_transformers(self, pair):
        ours, engine_answers = (
            [row[0].confidence for row in model.backbone.answer(model.tokenizer(TEXTS, QUESTIONS), Sampling(4))] for model in pair
        )
        assert engine_answers == pytest.approx(ours, rel=1e-3)

    def test_sampled_answers_are_re_encoded(self, pair):
        ours, engine_model = (
            model.replace(pooling="re-enc", reencoding=Reencoding(1, 0)).encode(TEXTS, QUESTIONS) for model in pair
        )
        assert np.abs(ours - engine_model).max() < 1e-6
        drawing = pair[1].replace(pooling="re-enc", reencoding=Reencoding(3, 1.0))
        sampled_answers = drawing.encode(TEXTS, QUESTIONS)
        assert (drawing.encode(TEXTS, QUESTIONS) == sampled_answers).all()
        assert np.abs(sampled_answers - engine_model).max() > 1e-2

    @pytest.mark.parametrize("family", ["wide-llama", "wide-opt"])
    def test_further_instructions_over_a_text_read_it_from_the_prefix_cache(self, make_model, family):
        ours, engine_model = InBedder(make_model(family)), InBedder(make_model(family), backbone=OPTIONS)
        engine_model.encode(LONG, INSTRUCTIONS[0])
        assert hits(engine_model) == 0
        vector = engine_model.encode(LONG, INSTRUCTIONS[1])
        assert hits(engine_model) == 128
        assert_close(vector, ours.encode(LONG, INSTRUCTIONS[1]), 1e-4)
        texts = [f"{i} {LONG}" for i in range(3)]
        assert_close(engine_model.encode_many(texts, INSTRUCTIONS), ours.encode_many(texts, INSTRUCTIONS), 1e-4)
        assert hits(engine_model) == 128 + 128 * len(texts) * (len(INSTRUCTIONS) - 1)
        engine_model.backbone.close()

    def test_other_layers_are_refused_and_no_words_are_read(self, pair):
        with pytest.raises(ModelError, match="only the last layer's states, not layer 1"):
            pair[1].replace(pooling="1st-gen", layer=1).encode("a", "What?")
        assert pair[1].nearest_words(pair[1].encode(["a"], "What?")) == [[]]

    def test_an_adapter_changes_the_vectors_as_peft_does(self, make_model, tmp_path):
        from peft import LoraConfig, get_peft_model
        from transformers import AutoModelForCausalLM

        base = make_model("wide-llama")
        lora = LoraConfig(r=4, lora_alpha=16, init_lora_weights=False, target_modules=["q_proj", "v_proj", "down_proj"])
        get_peft_model(AutoModelForCausalLM.from_pretrained(base), lora).save_pretrained(tmp_path)
        engine_model = InBedder(tmp_path, backbone=OPTIONS)
        vectors = engine_model.encode(TEXTS, QUESTIONS)
        engine_model.backbone.close()
        assert_close(vectors, InBedder(tmp_path).encode(TEXTS, QUESTIONS), 1e-4)
        assert np.abs(vectors - InBedder(base).encode(TEXTS, QUESTIONS)).max() > 1e-2

    @pytest.mark.skipif(find_installed_folder(get_base_name("small")) is None, reason="needs: inbedder models install small")
    def test_the_bundled_decoder_is_read_as_by_transformers(self):
        base = str(find_installed_folder(get_base_name("small")))  # vLLM refuses the adapter, which is one of the question
        engine_model = InBedder(base, dtype="float32", backbone=ROOMY)
        vectors, answers = engine_model.encode(REVIEWS, QUESTIONS[:3]), engine_model.answer(REVIEWS, QUESTIONS[:3])
        engine_model.backbone.close()
        ours = InBedder(base, dtype="float32")
        assert_close(vectors, ours.encode(REVIEWS, QUESTIONS[:3]), 1e-3)
        assert answers == ours.answer(REVIEWS, QUESTIONS[:3])

    def test_kept_results_of_transformers_are_not_taken_for_vllms(self, pair, tmp_path):
        folder = pair[0].name
        InBedder(folder, cache=tmp_path).answer("a", "What?")
        model = InBedder(folder, backbone=OPTIONS, cache=tmp_path)
        model.backbone.engines = pair[1].backbone.engines
        model.answer("a", "What?")
        assert len(model.pipeline.store.info()) == 2
        assert "in vLLM" in model.compute_dtype

    def test_an_engine_that_does_not_start_says_what_to_change(self, make_model):
        model = InBedder(make_model("wide-llama"), backbone="vllm: {no_such_option: 1}")
        with pytest.raises(ModelError, match=r"vLLM did not start .*no_such_option"):
            model.encode("a", "What?")

    def test_the_command_line_prints_only_answers_and_runs_its_own_engine(self, make_model, tmp_path):
        (tmp_path / "texts.txt").write_text("I love cats\nI love dogs\n")
        folder = make_model("wide-llama")
        command = [sys.executable, "-m", "inbedder", "answer", tmp_path / "texts.txt", "-i", "What?", "--model", folder]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("VLLM_")}
        completed = subprocess.run([*command, "--backbone", OPTIONS], env=environment, capture_output=True, text=True)
        assert completed.returncode == 0, completed.stderr
        expected_lines = [" ".join(one.split()) for one in InBedder(folder).answer(["I love cats", "I love dogs"], "What?")]
        assert completed.stdout.splitlines() == expected_lines


@pytest.mark.skipif(find_spec("vllm") is not None, reason="vLLM is installed")
def test_without_vllm_the_install_line_is_named(make_model):
    with pytest.raises(MissingExtraError, match=r"This needs vLLM. Install it with: pip install '\.\[vllm\]' in the clone"):
        InBedder(make_model("opt"), backbone="vllm")


@pytest.fixture
def installed(monkeypatch):
    monkeypatch.setattr(backend, "_find_version", lambda: "0.0")


def test_options_are_passed_on_as_they_are(installed, make_model):
    text = "vllm: {tensor_parallel_size: 2, distributed_executor_backend: ray, gpu_memory_utilization: 0.8, max_model_len: 100}"
    model = InBedder(make_model("opt"), backbone=text, quantization="nf4", dtype="float32")
    engine_options = {"tensor_parallel_size": 2, "distributed_executor_backend": "ray", "gpu_memory_utilization": 0.8}
    assert model.backbone.arguments.items() >= {**engine_options, "quantization": "bitsandbytes", "dtype": "float32"}.items()
    assert model.backbone.arguments["enable_prefix_caching"] is True
    assert model.backbone.engines == {}
    assert model.tokenizer.max_length == 97
    assert '"tensor_parallel_size": 2' in model.compute_dtype
    assert InBedder(make_model("opt"), backbone="vllm", quantization="fp8").backbone.arguments["quantization"] == "fp8"


@pytest.mark.parametrize("bad", ["vllm: 3", "vllm: [1]", "vllm: {", "vllm2", "vllm {a: 1}"])
def test_options_that_cannot_be_read_are_refused(installed, make_model, bad):
    with pytest.raises(InputError, match=r"cannot be read\. Write 'vllm' or"):
        InBedder(make_model("opt"), backbone=bad)


def test_options_that_vllm_does_not_support_are_refused(installed, make_model):
    with pytest.raises(InputError, match="sets vLLM's runner itself"):
        InBedder(make_model("opt"), backbone="vllm: {runner: pooling}")
    with pytest.raises(ModelError, match="is a masked LM; inbedder uses vLLM for causal LMs only"):
        InBedder(make_model("bert"), backbone="vllm")
    with pytest.raises(ModelError, match="Set CUDA_VISIBLE_DEVICES"):
        InBedder(make_model("opt"), backbone="vllm", device="cuda:1")
    with pytest.raises(ModelError, match="already quantized"):
        InBedder(make_model("opt"), backbone="vllm", quantization="int8")


def test_an_engine_that_fails_says_what_to_change(installed, make_model):
    model = InBedder(make_model("opt"), backbone="vllm")
    model.backbone.engines["embed"] = None
    with pytest.raises(ModelError, match=r"could not read this batch .*gpu_memory_utilization"):
        model.encode("a", "What?")


def test_formats_that_may_hold_pickles_are_refused(make_model, monkeypatch):
    monkeypatch.setattr(backend, "_find_version", lambda: "0")
    for engine_options in ("auto", "pt", "npcache"):
        with pytest.raises(InputError, match=f"load_format='{engine_options}' may read pickles"):
            InBedder(make_model("opt"), backbone=f"vllm: {{load_format: {engine_options}}}")


def test_an_adapter_that_is_no_lora_is_refused(tmp_path):
    (tmp_path / "adapter_config.json").write_text('{"peft_type": "IA3"}')
    with pytest.raises(ModelError, match="is of kind IA3, but vLLM takes LoRA only"):
        backend._choose_rank(tmp_path)


def test_room_for_an_adapter_is_the_next_rank(tmp_path):
    (tmp_path / "adapter_config.json").write_text(
        '{"peft_type": "LORA", "lora_alpha": 8, "r": 12, "rank_pattern": {"q_proj": 40}}'
    )
    assert backend._choose_rank(tmp_path) == 64
    (tmp_path / "adapter_config.json").write_text('{"peft_type": "LORA", "lora_alpha": 8, "r": 1024}')
    with pytest.raises(ModelError, match="has rank 1024; vLLM takes at most 512"):
        backend._choose_rank(tmp_path)


def test_the_confidence_of_a_completion_is_that_of_its_tokens(installed, make_model):
    backbone = InBedder(make_model("opt"), backbone="vllm").backbone
    entries = [{7: SimpleNamespace(logprob=-1.0)}, {backbone.stops[0]: SimpleNamespace(logprob=-3.0)}]
    answer = backbone._score(SimpleNamespace(token_ids=[7, backbone.stops[0]], logprobs=entries))
    assert answer == (backbone.tokenizer.decode([7]), pytest.approx(np.exp(-2)))


def test_an_engine_refuses_soft_tokens():
    backbone = object.__new__(backend.VllmBackbone)
    backbone.answers = True
    with pytest.raises(ModelError, match="A causal LM in vLLM has no pooling 'soft-gen'"):
        check_pooling(backbone, "soft-gen", -1)
