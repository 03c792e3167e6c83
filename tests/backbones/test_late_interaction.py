import json
import shutil

import numpy as np
import pytest
import torch

from inbedder import InBedder
from inbedder.backbones.late_interaction import LateInteractionBackbone
from inbedder.backbones.masked import MaskedBackbone
from inbedder.backbones.packed_row import PromptParts, pack
from inbedder.backbones.shared_prefix import explain_not_shared
from inbedder.errors import ModelError
from inbedder.options import Sampling
from tests.conftest import INSTRUCTIONS, TEXTS, assert_close

QUESTIONS = [INSTRUCTIONS[i % len(INSTRUCTIONS)] for i in range(len(TEXTS))]


def settings_in(folder, **settings):
    (folder / "inbedder.json").write_text(json.dumps({"template": "compact", "late_interaction": True, **settings}))
    return folder


@pytest.fixture
def folder(make_model, tmp_path):
    return settings_in(shutil.copytree(make_model("bert"), tmp_path / "apart"))


@pytest.fixture
def model(folder):
    return InBedder(folder)


def test_a_folder_says_that_its_model_reads_text_and_question_apart(model):
    assert isinstance(model.backbone, LateInteractionBackbone)
    assert model.template.name == "compact"


def test_a_packed_batch_gives_what_a_row_per_prompt_gives(model):
    prompts = model.tokenizer(TEXTS, QUESTIONS)
    packed = model.backbone.embed(prompts, "avg-gen", -1, Sampling())
    assert_close(packed.numpy(), MaskedBackbone.embed(model.backbone, prompts, "avg-gen", -1, Sampling()).numpy())


@pytest.mark.parametrize("scores", [1, 300, 1000, 10**6])
def test_attention_in_parts_of_any_size_is_the_same(model, monkeypatch, scores):
    expected = model.encode_many(TEXTS, INSTRUCTIONS)
    monkeypatch.setattr("inbedder.backbones.packed_attention.MAX_SCORES", scores)
    assert_close(model.encode_many(TEXTS, INSTRUCTIONS), expected)


@pytest.mark.parametrize("words", [20, 60, 61, 62])
def test_long_texts_give_what_a_row_per_prompt_gives(model, words):
    prompts = model.tokenizer(["cat " * words, "dog " * (words - 9)] * 2, [*INSTRUCTIONS[:2], *INSTRUCTIONS[:2]])
    packed = model.backbone.embed(prompts, "avg-gen", -1, Sampling())
    assert_close(packed.numpy(), MaskedBackbone.embed(model.backbone, prompts, "avg-gen", -1, Sampling()).numpy())


def test_a_device_without_attention_in_parts_gives_the_same(model, monkeypatch):
    parts = model.encode_many(TEXTS, INSTRUCTIONS)
    monkeypatch.setattr("inbedder.backbones.late_interaction.Scratch", lambda: None)
    assert_close(model.encode_many(TEXTS, INSTRUCTIONS), parts)


def test_texts_with_different_numbers_of_questions_are_packed(model):
    texts, questions = [TEXTS[0]] * 3 + [TEXTS[1]] + [TEXTS[2]] * 2, [*INSTRUCTIONS[:3], INSTRUCTIONS[0], *INSTRUCTIONS[2:]]
    prompts = model.tokenizer(texts, questions)
    packed = model.backbone.embed(prompts, "avg-gen", -1, Sampling())
    assert_close(packed.numpy(), MaskedBackbone.embed(model.backbone, prompts, "avg-gen", -1, Sampling()).numpy())


@pytest.mark.parametrize("pooling", ["avg-gen", "avg-ppt", "avg-all"])
@pytest.mark.parametrize("layer", [0, 1, -1])
def test_a_batch_gives_what_single_texts_give(folder, pooling, layer):
    model = InBedder(folder, pooling=pooling, layer=layer)
    singles = np.stack([model.encode(text, questions) for text, questions in zip(TEXTS, QUESTIONS, strict=True)])
    assert_close(model.encode(TEXTS, QUESTIONS), singles)


def test_avg_gen_is_the_mean_of_masks_that_attend_to_text_and_question(model):
    (prompt,) = model.tokenizer(["I love cats"], ["Why?"])
    ids = prompt.ids.tolist()
    separator = ids[-1]
    text, question = [*ids[: prompt.instruction[0]], separator], [*ids[prompt.instruction[0] : prompt.response], separator]
    masks = [model.backbone.tokenizer.mask_token_id] * 3
    kinds = np.array([0] * len(text) + [1] * len(question) + [2] * 3)
    attends = (kinds[:, None] == 2) | (kinds[:, None] == kinds)
    from transformers import AutoModelForMaskedLM

    plain = AutoModelForMaskedLM.from_pretrained(model.name, attn_implementation="eager").eval()
    mask = torch.zeros(1, 1, *attends.shape).masked_fill(~torch.from_numpy(attends), torch.finfo(torch.float32).min)
    with torch.inference_mode():
        states = plain.base_model(
            input_ids=torch.tensor([text + question + masks]),
            token_type_ids=torch.tensor([[0] * len(text) + [1] * (len(question) + 3)]),
            position_ids=torch.tensor([[*range(len(text)), *range(len(question) + 3)]]),
            attention_mask=mask,
        ).last_hidden_state
    assert np.abs(states[0, -3:].mean(0).numpy() - model.encode("I love cats", "Why?")).max() < 1e-5


def test_many_instructions_read_each_text_and_each_question_once(model, monkeypatch):
    assert explain_not_shared(model.backbone, model.pooling, model.template) is None
    separate = np.stack([model.encode(TEXTS, question) for question in INSTRUCTIONS])
    tokens = []
    monkeypatch.setattr(
        "inbedder.backbones.late_interaction.pack",
        lambda *arguments: tokens.append((packed := pack(*arguments)).is_mask.numel()) or packed,
    )
    assert_close(model.encode_many(TEXTS, INSTRUCTIONS), separate)
    prompts = [model.tokenizer(TEXTS, [question] * len(TEXTS)) for question in INSTRUCTIONS]
    texts = {prompt.ids[: prompt.instruction[0]].tobytes(): prompt.instruction[0] + 1 for prompt in prompts[0]}
    questions = {of_all[0].ids[of_all[0].instruction[0] : of_all[0].response].tobytes(): of_all[0] for of_all in prompts}
    of_questions = sum(prompt.response - prompt.instruction[0] + 1 for prompt in questions.values())
    masks = 3 * len(TEXTS) * len(INSTRUCTIONS)
    assert sum(tokens) == sum(texts.values()) + of_questions + masks


def test_a_packed_row_holds_each_text_and_question_once():
    first, second, question = (np.array(ids, dtype=np.int32) for ids in ([1, 7, 8, 2], [1, 2], [9, 2]))
    packed = pack(
        [PromptParts(first, question), PromptParts(second, question), PromptParts(first, first)], 2, 5, torch.device("cpu")
    )
    assert packed.inputs["input_ids"][0].tolist() == [1, 7, 8, 2, 1, 2, 5, 5, 5, 5, 5, 5, 9, 2, 1, 7, 8, 2]
    assert packed.inputs["position_ids"][0].tolist() == [0, 1, 2, 3, 0, 1, 2, 3, 2, 3, 4, 5, 0, 1, 0, 1, 2, 3]
    assert packed.inputs["token_type_ids"][0].tolist() == [0] * 6 + [1] * 12
    assert packed.is_mask[0].nonzero().flatten().tolist() == list(range(6, 12))


def test_a_text_states_do_not_depend_on_the_question(model):
    base = model.with_pooling("avg-gen")
    (short,), (long,) = (base.tokenizer(["I love cats"], [question]) for question in ("Why?", "What animals do they love most?"))
    states = []
    for prompt in (short, long):
        inputs, _ = base.backbone._make_inputs([prompt])
        states.append(base.backbone.body(**inputs).last_hidden_state[0, : prompt.instruction[0] + 1].detach())
    assert_close(states[0].numpy(), states[1].numpy())


def test_answers_are_those_of_single_texts(model):
    assert model.answer(TEXTS, "Why?") == [model.answer([text], "Why?")[0] for text in TEXTS]


def test_what_cannot_read_so_is_refused(make_model, folder, tmp_path):
    with pytest.raises(ModelError, match="two token types"):
        InBedder(settings_in(shutil.copytree(make_model("roberta"), tmp_path / "roberta")))
    with pytest.raises(ModelError, match=r"\{input\} before \{instruction\}"):
        InBedder(folder, template="alpaca").encode("a", "Why?")


def test_an_exported_folder_reads_apart_too(model, tmp_path):
    from sentence_transformers import SentenceTransformer

    model.save_sentence_transformer(tmp_path / "out")
    exported = SentenceTransformer(str(tmp_path / "out"), device="cpu", trust_remote_code=True)
    assert_close(exported.encode(["I love cats"], prompt="Why?"), model.encode(["I love cats"], "Why?"))


@pytest.mark.slow
def test_int8_vectors_are_near_those_of_float32(folder, tmp_path, monkeypatch):
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    int8, exact = (
        InBedder(folder, backbone="onnx").encode(TEXTS, QUESTIONS),
        InBedder(folder).encode(TEXTS, QUESTIONS),
    )
    assert ((int8 * exact).sum(1) / np.linalg.norm(int8, axis=1) / np.linalg.norm(exact, axis=1)).min() > 0.95
