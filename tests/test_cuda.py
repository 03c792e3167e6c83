"""A GPU gives the vectors and answers of the CPU. INBEDDER_TEST_DEVICE=cpu tries these tests without one."""

import json
import shutil
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from inbedder import InBedder
from inbedder.backbones.late_interaction import LateInteractionBackbone
from inbedder.errors import OUT_OF_MEMORY, describe_error
from inbedder.options import Reencoding
from tests.conftest import CAUSAL, GOLDEN, INSTRUCTIONS, MASKED, TEXTS, assert_close

pytestmark = pytest.mark.cuda
QUESTIONS = [INSTRUCTIONS[i % len(INSTRUCTIONS)] for i in range(len(TEXTS))]
FAMILIES = [*CAUSAL, *MASKED, "t5", "headless-bert"]


@pytest.fixture(autouse=True)
def exact_products():
    """Multiply float32 matrices in float32, not in TensorFloat-32."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    yield
    torch.set_float32_matmul_precision(before)


@pytest.fixture
def late_interaction(make_model, tmp_path):
    folder = shutil.copytree(make_model("bert"), tmp_path / "late")
    (folder / "inbedder.json").write_text(json.dumps({"template": "compact", "late_interaction": True}))
    return str(folder)


def load(folder, device, dtype="float32", **options):
    options |= {"backbone": "embedding"} if "headless-bert" in str(folder) else {}
    return InBedder(folder, device=device, dtype=dtype, **options)


def cosines(vectors, expected_vectors):
    pair = (torch.from_numpy(np.array(array)) for array in (vectors, expected_vectors))
    return torch.cosine_similarity(*pair, dim=-1)


@pytest.mark.parametrize("family", FAMILIES)
def test_families_give_the_vectors_of_the_cpu_in_every_pooling(gpu, make_model, family):
    model, exact = (load(make_model(family), device, layer=1) for device in (gpu, "cpu"))
    assert model.device.type == gpu
    for pooling in exact.backbone.poolings:
        pair = (each.replace(pooling=pooling).encode(TEXTS, QUESTIONS) for each in (model, exact))
        assert_close(*pair, relative=1e-4)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_batch_in_bfloat16_gives_nearly_what_single_texts_give(gpu, make_model, family):
    model = load(make_model(family), gpu, "bfloat16")
    singles = np.stack([model.encode(text, question) for text, question in zip(TEXTS, QUESTIONS, strict=True)])
    assert cosines(model.encode(TEXTS, QUESTIONS), singles).min() > 0.99


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("family", ["opt", "llama", "bert"])
def test_half_precision_is_near_float32(gpu, make_model, family, dtype):
    exact = load(make_model(family), "cpu").replace(pooling="avg-ppt").encode(TEXTS, QUESTIONS)
    assert cosines(load(make_model(family), gpu, dtype).replace(pooling="avg-ppt").encode(TEXTS, QUESTIONS), exact).min() > 0.98


def test_a_gpu_computes_in_half_precision_by_default(gpu, make_model):
    model = InBedder(make_model("opt"), device=gpu)
    assert model.compute_dtype == ("float32" if gpu == "cpu" else "bfloat16" if torch.cuda.is_bf16_supported() else "float16")


@pytest.mark.parametrize("family", ["opt", "llama", "qwen2"])
def test_questions_that_share_a_prefix_get_the_vectors_of_each(gpu, make_model, family):
    model, exact = (load(make_model(family), device) for device in (gpu, "cpu"))
    shared_vectors = model.encode_many(TEXTS, INSTRUCTIONS)
    assert_close(shared_vectors, np.stack([model.encode(TEXTS, question) for question in INSTRUCTIONS]), relative=1e-4)
    assert_close(shared_vectors, exact.encode_many(TEXTS, INSTRUCTIONS), relative=1e-4)


@pytest.mark.parametrize("family", ["opt", "llama"])
def test_a_key_value_cache_on_the_gpu_gives_the_vectors_of_whole_prompts(gpu, make_model, family):
    model, exact = load(make_model(family), gpu, text_memory="100M"), load(make_model(family), "cpu")
    for question in [*INSTRUCTIONS, INSTRUCTIONS[0]]:
        assert_close(model.encode(TEXTS, question, batch_size=3), exact.encode(TEXTS, question), relative=1e-4)


def test_packed_attention_on_the_gpu_gives_the_vectors_of_the_cpu(gpu, late_interaction):
    model, exact = (load(late_interaction, device) for device in (gpu, "cpu"))
    assert isinstance(model.backbone, LateInteractionBackbone)
    texts = [*TEXTS, "cat " * 60]
    assert_close(model.encode_many(texts, INSTRUCTIONS), exact.encode_many(texts, INSTRUCTIONS), relative=1e-4)
    assert_close(model.encode(TEXTS, QUESTIONS), exact.encode(TEXTS, QUESTIONS), relative=1e-4)


@pytest.mark.parametrize("family", ["opt", "llama", "bert", "t5"])
def test_greedy_and_sampled_answers_are_those_of_the_cpu(gpu, make_model, family):
    model, exact = (load(make_model(family), device) for device in (gpu, "cpu"))
    assert model.answer(TEXTS, QUESTIONS) == exact.answer(TEXTS, QUESTIONS)
    sampling = {"n": 3, "temperature": 0.8, "top_p": 0.9}
    answers, expected_answers = (each.answer(TEXTS, QUESTIONS, **sampling) for each in (model, exact))
    assert np.mean([row == expected for row, expected in zip(answers, expected_answers, strict=True)]) > 0.8


def test_the_head_reads_the_words_of_the_cpu(gpu, make_model):
    model, exact = (load(make_model("opt"), device) for device in (gpu, "cpu"))
    vectors = exact.encode(TEXTS, QUESTIONS)
    assert model.nearest_words(vectors, top=3) == exact.nearest_words(vectors, top=3)


def test_reencoding_runs_answers_and_encoder_on_the_gpu(gpu, make_model, make_sentence_model):
    reencoding = Reencoding(n=2, temperature=0.0, encoder=str(make_sentence_model()))
    model, exact = (load(make_model("opt"), device, pooling="re-enc", reencoding=reencoding) for device in (gpu, "cpu"))
    assert_close(model.encode(TEXTS, QUESTIONS), exact.encode(TEXTS, QUESTIONS), relative=1e-4)


@pytest.mark.parametrize("family", ["opt", "bert"])
def test_a_model_moved_to_the_gpu_and_back_keeps_its_vectors(gpu, make_model, family):
    model = load(make_model(family), "cpu")
    expected_vectors = model.encode(TEXTS, QUESTIONS)
    assert_close(model.to(gpu).encode(TEXTS, QUESTIONS), expected_vectors, relative=1e-4)
    np.testing.assert_array_equal(model.to("cpu").encode(TEXTS, QUESTIONS), expected_vectors)


@pytest.mark.parametrize("family", ["opt", "bert"])
def test_eight_threads_on_one_gpu_get_the_vectors_of_one(gpu, make_model, family):
    model = load(make_model(family), gpu)
    calls = [(text, QUESTIONS[number % len(QUESTIONS)]) for number in range(8) for text in TEXTS]
    expected_vectors = np.stack([model.encode(*call) for call in calls])
    with ThreadPoolExecutor(8) as pool:
        vectors = np.stack(list(pool.map(lambda call: model.encode(*call), calls)))
    assert_close(vectors, expected_vectors, relative=1e-5)


@pytest.mark.parametrize(("quantization", "floor"), [("nf4", 0.8), ("int8", 0.97)])
def test_quantized_weights_give_vectors_near_the_exact_ones(gpu, quantization, floor):
    pytest.importorskip("bitsandbytes")
    model = load(GOLDEN / "llama", gpu, quantization=quantization)
    exact = load(GOLDEN / "llama", "cpu").replace(pooling="avg-ppt").encode(TEXTS, QUESTIONS)
    vectors = model.replace(pooling="avg-ppt").encode(TEXTS, QUESTIONS)
    assert np.isfinite(vectors).all()
    assert cosines(vectors, exact).mean() > floor


def test_a_gpu_without_memory_says_what_to_do_and_recovers(gpu, make_model):
    if gpu == "cpu":
        pytest.skip("limits the memory of a GPU")
    model = load(make_model("opt"), gpu)
    expected_vectors = model.encode(TEXTS, QUESTIONS)
    torch.cuda.empty_cache()
    limit = torch.cuda.memory_reserved() + 2**20
    torch.cuda.set_per_process_memory_fraction(limit / torch.cuda.get_device_properties(0).total_memory)
    try:
        with pytest.raises(torch.OutOfMemoryError) as raised:
            model.encode([f"{number} " + "cat " * 60 for number in range(256)], QUESTIONS[0], batch_size=256)
        assert describe_error(raised.value) == OUT_OF_MEMORY
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert_close(model.encode(TEXTS, QUESTIONS), expected_vectors)
