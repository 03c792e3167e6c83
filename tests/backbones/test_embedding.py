import shutil

import numpy as np
import pytest
import torch
from peft import LoraConfig, get_peft_model
from sentence_transformers import SentenceTransformer
from tokenizers import processors
from transformers import AutoModel, AutoTokenizer

from inbedder import InBedder
from inbedder.backbones.embedding import EmbeddingBackbone
from inbedder.backbones.sentence_modules import SentenceModules
from inbedder.errors import InputError, ModelError
from inbedder.models.bundled import find_base_folder
from tests.backbones.checkpoints import copy_with_settings, encode_reference
from tests.conftest import TEXTS, assert_close

INSTRUCTION = "Represent the sentence for retrieving a duplicate sentence: "
PLAIN = [text for text in TEXTS if "[MASK]" not in text]  # sentence-transformers makes special tokens of those in a text


@pytest.mark.parametrize("family", ["headless-bert", "bert"])
@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("instruction", [None, "", INSTRUCTION, "Represent it:", "gibberish wug blick"])
def test_vectors_equal_sentence_transformers_without_the_prompt(make_sentence_model, family, dense, instruction):
    folder = make_sentence_model(family, dense=dense)
    model = InBedder(folder)
    assert (model.backbone.kind, model.pooling, model.dimension) == ("embedding", "text-mean", 16 if dense else 32)
    texts = ["cats", *PLAIN]
    assert np.abs(model.encode(texts, instruction) - encode_reference(folder, texts, instruction)).max() < 1e-5


@pytest.mark.parametrize("family", ["headless-bert", "roberta", "xlm-roberta", "t5", "llama"])
@pytest.mark.parametrize("mode", ["mean", "cls", "lasttoken", "weightedmean"])
def test_plain_checkpoints_equal_sentence_transformers(make_sentence_model, family, mode):
    folder = make_sentence_model(family, mode, include_prompt=True)
    model = InBedder(folder)
    assert model.pooling == mode.replace("tt", "t-t").replace("dm", "d-m")
    texts = ["cats", *PLAIN]
    for instruction in (None, INSTRUCTION):
        assert np.abs(model.encode(texts, instruction) - encode_reference(folder, texts, instruction)).max() < 1e-5


def test_long_texts_are_cut_as_sentence_transformers_does(make_sentence_model, tmp_path):
    folder = copy_with_settings(make_sentence_model(), tmp_path, "sentence_bert_config.json", max_seq_length=20)
    long = "I love cats and dogs " * 20
    with pytest.warns(UserWarning, match="1 of 2 texts were cut at their end to fit max_length=20"):
        ours = InBedder(folder).encode([long, "I love cats"], "Represent it:")
    assert np.abs(ours - encode_reference(folder, [long, "I love cats"], "Represent it:")).max() < 1e-5


def test_the_instruction_is_never_cut(make_sentence_model):
    model = InBedder(make_sentence_model(), max_length=8)
    with pytest.raises(InputError, match="Shorten the instruction or raise max_length"):
        model.encode("I love cats", INSTRUCTION)


def test_lower_case_is_as_the_checkpoint_says(make_sentence_model, tmp_path):
    folder = copy_with_settings(make_sentence_model("roberta"), tmp_path, "sentence_bert_config.json", do_lower_case=True)
    model = InBedder(folder)
    assert np.abs(model.encode("I LOVE CATS") - model.encode("i love cats")).max() < 1e-6
    assert np.abs(model.encode(PLAIN) - encode_reference(folder, PLAIN)).max() < 1e-5


def pooled_tokens(model, text, instruction):
    (prompt,) = model.tokenizer([text], [instruction])
    is_pooled = model.backbone._mark_pooled(prompt, model.pooling)
    return [
        token for token, one in zip(model.backbone.tokenizer.convert_ids_to_tokens(prompt.ids), is_pooled, strict=True) if one
    ]


@pytest.mark.parametrize("family", ["headless-bert", "roberta", "xlm-roberta", "t5"])
def test_changing_only_the_instruction_never_changes_what_is_pooled(make_sentence_model, family):
    model = InBedder(make_sentence_model(family))
    for text in ["I love cats", "Zażółć gęślą", "late, but fine."]:
        pooled = [
            pooled_tokens(model, text, f"{one}: ") for one in ("Do", "Represent the question", "wug blick", "😀 naïve", "a:b")
        ]
        assert all(tokens == pooled[0] for tokens in pooled)
        assert len(pooled[0]) > 2
    lengths = {len(pooled_tokens(model, "", f"{one}:")) for one in ("Do", "Represent the question")}
    assert lengths == {1}  # the special token at the end


@pytest.mark.parametrize("family", ["roberta", "t5", "xlm-roberta"])
def test_the_first_word_that_sentence_transformers_loses_is_pooled(make_sentence_model, family):
    folder = make_sentence_model(family)
    model = InBedder(folder)
    pooled = pooled_tokens(model, "I love cats", "Represent it: ")
    assert pooled[0].strip("Ġ▁").startswith("I")
    assert pooled == pooled_tokens(model, "I love cats", "Do it: ")
    tokens = theirs_pooled(folder, "I love cats", "Represent it: ")
    assert tokens == pooled[1:]


def theirs_pooled(folder, text, prompt):
    model = SentenceTransformer(str(folder), device="cpu")
    features = model.preprocess([text], prompt=prompt)
    return model.tokenizer.convert_ids_to_tokens(features["input_ids"][0][features["prompt_length"] :].tolist())


def test_a_token_over_the_border_counts_as_the_texts(make_sentence_model):
    model = InBedder(make_sentence_model())
    assert pooled_tokens(model, "s", "cat") == ["cats", "[SEP]"]
    assert pooled_tokens(model, "s love", "cat") == ["cats", "love", "[SEP]"]


def test_without_an_instruction_or_a_text_special_tokens_are_pooled(make_sentence_model):
    model = InBedder(make_sentence_model())
    assert pooled_tokens(model, "I love cats", "") == ["[CLS]", "i", "love", "cats", "[SEP]"]
    assert pooled_tokens(model, "", "") == ["[CLS]", "[SEP]"]
    assert pooled_tokens(model, "\x00", "cats") == pooled_tokens(model, "", "cats") == ["[SEP]"]
    assert pooled_tokens(model, "\x00", "") == ["[CLS]", "[SEP]"]


@pytest.mark.parametrize("template", ["inbedder", "Read {input} for {instruction}!"])
def test_what_a_template_puts_behind_the_text_is_not_pooled(make_sentence_model, template):
    model = InBedder(make_sentence_model(), template=template)
    assert pooled_tokens(model, "I love cats", "dogs")[-4:] == ["i", "love", "cats", "[SEP]"]
    assert "dogs" not in pooled_tokens(model, "I love cats", "dogs")


@pytest.mark.parametrize(
    ("family", "mode"), [("headless-bert", "mean"), ("roberta", "cls"), ("t5", "mean"), ("llama", "lasttoken")]
)
def test_a_batch_gives_what_single_texts_give(make_sentence_model, family, mode):
    model = InBedder(make_sentence_model(family, mode, include_prompt=mode != "mean", dense=True))
    batch = model.encode(TEXTS, INSTRUCTION)
    assert_close(batch, np.stack([model.encode(text, INSTRUCTION) for text in TEXTS]))
    assert_close(batch, model.encode(TEXTS, INSTRUCTION, batch_size=2))


@pytest.mark.parametrize("family", ["headless-bert", "roberta", "xlm-roberta", "t5", "llama", "qwen2", "opt"])
@pytest.mark.parametrize("pooling", ["text-mean", "cls", "last-token", "weighted-mean"])
def test_left_and_right_padding_give_the_same_vectors(make_sentence_model, family, pooling):
    right = InBedder(make_sentence_model(family), pooling=pooling)
    vectors = right.encode(TEXTS, INSTRUCTION)
    modules = SentenceModules()
    left_padded = InBedder.from_pipeline(
        right.pipeline.wrap(lambda backbone: EmbeddingBackbone(backbone.model, backbone.tokenizer, modules, padding_side="left"))
    )
    assert_close(left_padded.encode(TEXTS, INSTRUCTION), vectors)


def test_a_tokenizer_without_special_tokens_embeds_nothing_too(make_model, tmp_path):
    tokenizer = AutoTokenizer.from_pretrained(make_model("qwen2"))
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(single="$A", special_tokens=[])
    AutoModel.from_pretrained(make_model("qwen2")).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    vectors = InBedder(tmp_path, backbone="instructor").encode(["", "a"], None)
    assert np.isfinite(vectors).all()
    assert np.isfinite(InBedder(tmp_path, backbone="instructor").encode("", "What?")).all()


@pytest.mark.parametrize("family", ["bert", "headless-bert", "roberta", "t5"])
def test_any_encoder_folder_has_the_mean_over_the_text_and_length_one(make_model, family):
    model = InBedder(make_model(family), backbone="instructor")
    vectors = model.encode(TEXTS, INSTRUCTION)
    assert model.pooling == "text-mean" and model.template.name == "instructor"
    assert np.abs(np.linalg.norm(vectors, axis=1) - 1).max() < 1e-5
    assert not hasattr(model.backbone.model, "decoder")


@pytest.mark.parametrize("layer", [0, 1, 2])
def test_other_layers_are_transformers_states(make_model, layer):
    folder = make_model("headless-bert")
    body, tokenizer = AutoModel.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    inputs = tokenizer("I love cats", return_tensors="pt")
    with torch.inference_mode():
        states = body(**inputs, output_hidden_states=True).hidden_states[layer][0]
    expected = torch.nn.functional.normalize(states.mean(0), dim=0).numpy()
    assert np.abs(InBedder(folder, backbone="instructor", layer=layer).encode("I love cats") - expected).max() < 1e-5


@pytest.mark.parametrize("mode", ["mean", "cls", "weightedmean"])
def test_two_layers_are_the_own_pooling_of_each(make_sentence_model, mode):
    model = InBedder(make_sentence_model("headless-bert", mode, include_prompt=mode != "mean"))
    earlier = 2 * model.backbone.num_layers // 3
    expected = np.hstack([model.encode(TEXTS), model.replace(layer=earlier, normalize_embeddings=True).encode(TEXTS)])
    assert_close(model.replace(pooling="two-layers").encode(TEXTS), expected)
    assert_close(model.replace(pooling="two-layers").encode(TEXTS[0]), expected[0])


def test_dense_has_no_two_layers(make_sentence_model):
    with pytest.raises(ModelError, match="no pooling 'two-layers'"):
        InBedder(make_sentence_model(dense=True), pooling="two-layers")


def test_dense_reads_the_last_layer_alone(make_sentence_model):
    with pytest.raises(ModelError, match="Dense was trained on its last layer"):
        InBedder(make_sentence_model(dense=True), layer=1).encode("a")


def test_the_instruction_is_read_although_it_is_not_pooled(make_sentence_model):
    model = InBedder(make_sentence_model())
    assert np.abs(model.encode("I love cats", "dogs:") - model.encode("I love cats", "delivery:")).max() > 1e-3


@pytest.mark.parametrize("pooling", ["1st-gen", "avg-gen", "re-enc"])
def test_poolings_of_answers_are_refused(make_sentence_model, pooling):
    with pytest.raises(ModelError, match=f"An embedding model has no pooling '{pooling}'. Choose one of: text-mean, mean,"):
        InBedder(make_sentence_model(), pooling=pooling)
    with pytest.raises(InputError, match="an embedding model gives none"):
        InBedder(make_sentence_model()).encode("a", filter_words=["cats"])


def test_its_dtype_can_be_chosen(make_sentence_model):
    assert InBedder(make_sentence_model(), dtype="bfloat16").compute_dtype == "bfloat16"


def test_it_does_not_answer(make_sentence_model):
    model = InBedder(make_sentence_model())
    with pytest.raises(ModelError, match="it embeds and does not answer"):
        model.answer("I love cats", "What?")
    assert model.nearest_words(model.encode(TEXTS)) == [[]] * len(TEXTS)
    (prompt,) = model.tokenizer(["a"], [""])
    with pytest.raises(ModelError, match="cannot generate answers"):
        model.backbone.answer([prompt], model.options.encoding.sampling)


def test_an_adapter_over_an_encoder_is_merged(make_sentence_model, make_model, tmp_path):
    torch.manual_seed(3)
    model = get_peft_model(AutoModel.from_pretrained(make_model("headless-bert")), LoraConfig(r=4, target_modules="all-linear"))
    for name, parameter in model.named_parameters():
        if "lora_" in name:
            torch.nn.init.normal_(parameter, std=0.2)
    copy = shutil.copytree(make_sentence_model(), tmp_path / "copy")
    for file in ("model.safetensors", "config.json"):
        (copy / file).unlink()
    model.save_pretrained(copy)
    assert InBedder(copy).backbone.kind == "embedding"
    assert np.abs(InBedder(copy).encode(PLAIN, INSTRUCTION) - encode_reference(copy, PLAIN, INSTRUCTION)).max() < 1e-5


def test_kept_vectors_know_modules_poolings_and_instructions(make_sentence_model, tmp_path):
    folder = make_sentence_model(dense=True)
    model = InBedder(folder, cache=tmp_path / "kept")
    vectors = model.encode(PLAIN, INSTRUCTION)
    assert np.array_equal(InBedder(folder, cache=tmp_path / "kept").encode(PLAIN, INSTRUCTION), vectors)
    for options in ({"pooling": "mean"}, {"template": "e5-instruct"}):
        variant = InBedder(folder, cache=tmp_path / "kept", **options)
        assert np.abs(variant.encode(PLAIN, INSTRUCTION) - vectors).max() > 1e-3
    copy = copy_with_settings(folder, tmp_path, "2_Dense/config.json", activation_function="torch.nn.modules.linear.Identity")
    assert InBedder(copy).revision != model.revision


def test_the_bundled_base_equals_sentence_transformers():
    model = InBedder("all-MiniLM-L6-v2")
    assert (model.backbone.kind, model.pooling, model.tokenizer.max_length) == ("embedding", "mean", 256)
    texts = ["I love cats", "The delivery was late."]
    for instruction in (None, INSTRUCTION):
        assert np.abs(model.encode(texts, instruction) - encode_reference(find_base_folder(), texts, instruction)).max() < 1e-5
