import json
import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForMaskedLM

from inbedder import InBedder
from inbedder.backbones.late_interaction import (
    LanguageFilter,
    LateInteractionBackbone,
    find_language_directions,
    read_texts,
)
from inbedder.backbones.shared_prefix import explain_not_shared
from inbedder.encoding.sentence_transformers_export import MODEL_FOLDER
from inbedder.errors import ModelError
from inbedder.vectors.vectors import normalize_vectors
from tests.conftest import INSTRUCTIONS, TEXTS, assert_close

QUESTIONS = [INSTRUCTIONS[i % len(INSTRUCTIONS)] for i in range(len(TEXTS))]


@pytest.fixture(scope="module")
def model(late_adapter):
    return InBedder(late_adapter)


@pytest.fixture(scope="module")
def base(make_model):
    """The base, which reads texts as it was before training."""
    return AutoModelForMaskedLM.from_pretrained(make_model("bert"), attn_implementation="eager").eval()


def set_gate(model, bias):
    gate = model.backbone.model.gate
    gate.weight.data.zero_()
    gate.bias.data.fill_(bias)


def test_a_folder_says_that_its_model_reads_text_and_question_separately(model):
    assert isinstance(model.backbone, LateInteractionBackbone)
    assert model.template.name == "compact"


def test_an_open_gate_gives_the_bases_mean_state(late_adapter, base):
    model = InBedder(late_adapter)
    set_gate(model, 100.0)
    ids = torch.tensor([model.backbone.tokenizer("I love cats")["input_ids"]])
    states = base.base_model(input_ids=ids).last_hidden_state[0].mean(0).detach().numpy()
    assert_close(model.encode("I love cats", "Why?"), normalize_vectors(states[None])[0])


@pytest.fixture
def filtering_adapter(late_adapter, tmp_path):
    """An adapter with a filter of two directions; its folder, mean and directions."""
    folder = shutil.copytree(late_adapter, tmp_path / "filtering")
    weights = load_file(folder / "adapter_model.safetensors")
    torch.manual_seed(7)
    mean, directions = torch.randn(32) / 10, torch.linalg.qr(torch.randn(32, 2))[0].T.contiguous()
    prefix = "base_model.model.language_filter."
    save_file({**weights, f"{prefix}mean": mean, f"{prefix}directions": directions}, folder / "adapter_model.safetensors")
    settings = json.loads((folder / "inbedder.json").read_text()) | {"language_directions": 2}
    (folder / "inbedder.json").write_text(json.dumps(settings))
    return folder, mean, directions


def test_a_filter_takes_languages_out_of_the_texts_own_vector(filtering_adapter, base):
    folder, mean, directions = filtering_adapter
    model = InBedder(folder, dtype="float32")
    set_gate(model, 100.0)
    ids = torch.tensor([model.backbone.tokenizer("I love cats")["input_ids"]])
    vector = torch.nn.functional.normalize(base.base_model(input_ids=ids).last_hidden_state[0].mean(0).detach(), dim=0) - mean
    expected = (vector - directions.T @ (directions @ vector)).numpy()
    assert_close(model.encode("I love cats", "Why?"), normalize_vectors(expected[None])[0])
    assert np.abs(model.encode(TEXTS, "Why?") @ directions.T.numpy()).max() < 1e-5


def test_a_filter_leaves_the_answers_masks_as_they_are(filtering_adapter, late_adapter):
    filtering, plain = InBedder(filtering_adapter[0], dtype="float32"), InBedder(late_adapter, dtype="float32")
    for model in (filtering, plain):
        set_gate(model, -100.0)
    assert_close(filtering.encode(TEXTS, "Why?"), plain.encode(TEXTS, "Why?"))


def test_an_exported_model_keeps_its_filter(filtering_adapter, tmp_path):
    model = InBedder(filtering_adapter[0], dtype="float32")
    model.save_sentence_transformer(tmp_path / "saved")
    assert_close(InBedder(tmp_path / "saved" / MODEL_FOLDER, dtype="float32").encode(TEXTS, "Why?"), model.encode(TEXTS, "Why?"))


def test_languages_of_parallel_texts_have_one_mean_after_the_filter():
    torch.manual_seed(0)
    contents, offsets = torch.randn(2, 20, 16), torch.randn(4, 16)
    vectors, languages, corpora = [], [], []
    for corpus, corpus_languages in enumerate(((0, 1, 2), (0, 3))):
        for language in corpus_languages:
            vectors.append(contents[corpus] + offsets[language])
            languages += [f"language {language}"] * 20
            corpora += [f"corpus {corpus}"] * 20
    mean, directions = find_language_directions(torch.cat(vectors), languages, corpora, 3)
    language_filter = LanguageFilter(16, 3)
    language_filter.mean.copy_(mean)
    language_filter.directions.copy_(directions)
    means = [language_filter(each).mean(0) for each in vectors]
    assert torch.allclose(means[0], means[1], atol=1e-5)
    assert torch.allclose(means[3], means[4], atol=1e-5)
    assert torch.allclose(directions @ directions.T, torch.eye(3), atol=1e-5)


def test_a_closed_gate_gives_the_masks_which_attend_to_the_bases_text(late_adapter, base):
    model = InBedder(late_adapter)
    set_gate(model, -100.0)
    tokenizer, trained = model.backbone.tokenizer, model.backbone.model
    text = tokenizer("I love cats")["input_ids"]
    pair = [*tokenizer("Why?")["input_ids"][1:], *[tokenizer.mask_token_id] * 3]
    with torch.inference_mode():
        of_text = base.base_model(input_ids=torch.tensor([text]), output_hidden_states=True).hidden_states
        states = trained.bert.embeddings(
            input_ids=torch.tensor([pair]),
            token_type_ids=torch.ones(1, len(pair), dtype=torch.long),
            position_ids=torch.arange(len(pair))[None],
        )[0]
        is_mask = torch.arange(len(pair)) >= len(pair) - 3
        visible = torch.cat([is_mask[:, None] | ~is_mask[None], is_mask[:, None].expand(-1, len(text))], 1)
        for block, base_block, text_states in zip(trained.bert.encoder.layer, base.bert.encoder.layer, of_text, strict=False):
            mixing, base_mixing = block.attention.self, base_block.attention.self
            key, value = (
                torch.cat([getattr(mixing, name)(states), getattr(base_mixing, name)(text_states[0])])
                for name in ("key", "value")
            )
            query, key, value = (part.view(len(part), 4, -1).transpose(0, 1) for part in (mixing.query(states), key, value))
            scores = (query @ key.transpose(1, 2) * mixing.scaling).masked_fill(~visible, float("-inf"))
            mixed = (scores.softmax(-1) @ value).transpose(0, 1).flatten(1)
            states = block.feed_forward_chunk(block.attention.output(mixed, states))
    assert_close(model.encode("I love cats", "Why?"), normalize_vectors(states[-3:].mean(0, keepdim=True).numpy())[0])


def test_the_gate_depends_on_the_question_alone(late_adapter):
    vectors = {}
    for bias in (-100.0, 100.0, None):
        model = InBedder(late_adapter)
        if bias is not None:
            set_gate(model, bias)
        vectors[bias] = model.encode_many(TEXTS, INSTRUCTIONS)
    answers, base_vectors, mixed = (vectors[bias] for bias in (-100.0, 100.0, None))
    shares = ((mixed - answers) * (base_vectors - answers)).sum(-1) / ((base_vectors - answers) ** 2).sum(-1)
    assert_close(shares, np.tile(shares[:, :1], len(TEXTS)), 1e-4)
    assert shares[:, 0].std() > 0.05
    assert ((shares > 0) & (shares < 1)).all()


@pytest.mark.parametrize("scores", [1, 300, 1000, 10**6])
def test_attention_in_parts_of_any_size_is_the_same(model, monkeypatch, scores):
    expected = model.encode_many(TEXTS, INSTRUCTIONS)
    monkeypatch.setattr("inbedder.backbones.packed_attention.MAX_SCORES", scores)
    assert_close(model.encode_many(TEXTS, INSTRUCTIONS), expected)


def test_a_device_without_attention_in_parts_gives_the_same(model, monkeypatch):
    parts = model.encode_many(TEXTS, INSTRUCTIONS)
    monkeypatch.setattr("inbedder.backbones.late_interaction.Scratch", lambda: None)
    assert_close(model.encode_many(TEXTS, INSTRUCTIONS), parts)


@pytest.mark.parametrize("words", [20, 60, 61, 62])
def test_long_texts_beside_short_ones_give_what_they_give_alone(model, words):
    texts = ["cat " * words, "dog " * (words - 9), "cat"]
    assert_close(model.encode(texts, INSTRUCTIONS[:3]), np.stack(list(map(model.encode, texts, INSTRUCTIONS[:3]))))


def test_texts_with_different_numbers_of_questions_are_packed(model):
    texts, questions = [TEXTS[0]] * 3 + [TEXTS[1]] + [TEXTS[2]] * 2, [*INSTRUCTIONS[:3], INSTRUCTIONS[0], *INSTRUCTIONS[2:]]
    assert_close(model.encode(texts, questions), np.stack(list(map(model.encode, texts, questions))))


@pytest.mark.parametrize("pooling", ["avg-gen", "avg-ppt", "avg-all"])
@pytest.mark.parametrize("layer", [0, 1, -1])
def test_a_batch_gives_what_single_texts_give(late_adapter, pooling, layer):
    model = InBedder(late_adapter, pooling=pooling, layer=layer)
    assert_close(model.encode(TEXTS, QUESTIONS), np.stack(list(map(model.encode, TEXTS, QUESTIONS))))


def test_avg_all_is_the_mean_of_all_tokens(late_adapter, base):
    model = InBedder(late_adapter, pooling="avg-all", layer=0)
    text, question = (model.backbone.tokenizer(part)["input_ids"] for part in ("I love cats", "Why?"))
    pair = [*question[1:], *[model.backbone.tokenizer.mask_token_id] * 3]
    of_text = base.bert.embeddings(input_ids=torch.tensor([text]))[0]
    of_pair = model.backbone.body.embeddings(
        input_ids=torch.tensor([pair]), token_type_ids=torch.ones(1, len(pair), dtype=torch.long)
    )[0]
    assert_close(model.encode("I love cats", "Why?"), torch.cat([of_text, of_pair]).mean(0).detach().numpy())


def test_many_instructions_read_each_text_and_each_question_once(model, monkeypatch):
    assert explain_not_shared(model.backbone, model.pooling, model.template) is None
    separate = np.stack([model.encode(TEXTS, question) for question in INSTRUCTIONS])
    tokens = []
    monkeypatch.setattr(
        "inbedder.backbones.late_interaction.read_texts",
        lambda body, packed, scratch: (
            tokens.append((packed.texts["input_ids"].numel(), packed.pairs["input_ids"].numel() - packed.num_masks))
            or read_texts(body, packed, scratch)
        ),
    )
    assert_close(model.encode_many(TEXTS, INSTRUCTIONS), separate)
    tokenize = model.backbone.tokenizer
    texts, questions = (sum(map(len, tokenize(parts, split_special_tokens=True)["input_ids"])) for parts in (TEXTS, INSTRUCTIONS))
    assert np.sum(tokens, axis=0).tolist() == [texts, questions - len(INSTRUCTIONS)]


def test_answers_are_those_of_single_texts(model):
    assert model.answer(TEXTS, "Why?") == [model.answer([text], "Why?")[0] for text in TEXTS]


def test_what_cannot_read_so_is_refused(make_model, late_adapter, tmp_path):
    with pytest.raises(ModelError, match=r"\{input\} before \{instruction\}"):
        InBedder(late_adapter, template="alpaca").encode("a", "Why?")
    with pytest.raises(ModelError, match="no int8 graph"):
        InBedder(late_adapter, backbone="onnx")
    for family, message in (("bert", "is for adapters"), ("roberta", "is for adapters")):
        folder = shutil.copytree(make_model(family), tmp_path / family)
        (folder / "inbedder.json").write_text(json.dumps({"template": "compact", "late_interaction": True}))
        with pytest.raises(ModelError, match=message):
            InBedder(folder)


def test_an_exported_folder_reads_separately_too(model, tmp_path):
    from sentence_transformers import SentenceTransformer

    model.save_sentence_transformer(tmp_path / "out")
    exported = SentenceTransformer(str(tmp_path / "out"), device="cpu", trust_remote_code=True)
    assert_close(exported.encode(["I love cats"], prompt="Why?"), model.encode(["I love cats"], "Why?"))
