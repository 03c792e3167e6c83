"""Checkpoints laid out as their authors published them are read as their authors read them, without naming a backbone."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from transformers import AutoModel, AutoTokenizer, T5EncoderModel

from inbedder import InBedder
from inbedder.backbones.safetensors_conversion import convert_to_safetensors
from inbedder.errors import ModelError
from tests.backbones.checkpoints import encode_reference, pickle_weights
from tests.conftest import make_encoder

TEXTS = ["the cat sat on the mat", "How do I get my money back? I paid twice.", "late"]
INSTRUCTION = "Represent the sentence for retrieval:"
OLD_MODES = ("cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens")
"""The pooling modes that sentence-transformers wrote before 2.3."""
INSTRUCTOR_MODES = (*OLD_MODES, "weightedmean_tokens", "lasttoken")
"""Those that INSTRUCTOR's code writes."""


@pytest.fixture
def publish(make_model, tmp_path):
    """Return a function that lays out a checkpoint of sentence-transformers 2.2 with pickled weights."""

    def lay_out(family, mode="mean_tokens", modes=OLD_MODES, dense=False):
        folder = Path(shutil.copytree(make_encoder(family, make_model, tmp_path / "encoder"), tmp_path / "model"))
        pickle_weights(folder)
        names = ["Transformer", "Pooling", *(["Dense"] if dense else []), "Normalize"]
        modules = [
            {"idx": i, "name": str(i), "path": f"{i}_{name}" if i else "", "type": f"sentence_transformers.models.{name}"}
            for i, name in enumerate(names)
        ]
        (folder / "modules.json").write_text(json.dumps(modules))
        (folder / "1_Pooling").mkdir()
        pooling = {"word_embedding_dimension": 32, **{f"pooling_mode_{name}": name == mode for name in modes}}
        (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
        (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 512, "do_lower_case": false}')
        (folder / "config_sentence_transformers.json").write_text('{"__version__": {"sentence_transformers": "2.2.0"}}')
        if dense:
            (folder / "2_Dense").mkdir()
            activation = "torch.nn.modules.linear.Identity"
            settings = {"in_features": 32, "out_features": 24, "bias": False, "activation_function": activation}
            (folder / "2_Dense" / "config.json").write_text(json.dumps(settings))
            torch.manual_seed(5)
            torch.save({"linear.weight": torch.randn(24, 32)}, folder / "2_Dense" / "pytorch_model.bin")
        return folder

    return lay_out


def encode_as_instructor(folder, texts, instruction):
    """Restate the authors' forward pass: states of the joined string, without as many positions as the instruction has tokens."""
    tokenizer, model = AutoTokenizer.from_pretrained(folder), T5EncoderModel.from_pretrained(folder)
    instruction_ids = tokenizer(instruction.strip())["input_ids"][:-1]  # without the end token
    weight = torch.load(folder / "2_Dense" / "pytorch_model.bin", weights_only=True)["linear.weight"]
    vectors = []
    for text in texts:
        ids = tokenizer(instruction.strip() + text.strip())["input_ids"]
        assert ids[: len(instruction_ids)] == instruction_ids, "the texts must not merge with the instruction"
        with torch.no_grad():
            states = model(torch.tensor([ids])).last_hidden_state[0]
        vectors.append(nn.functional.normalize(states[len(instruction_ids) :].mean(0) @ weight.T, dim=0))
    return torch.stack(vectors).numpy()


def test_instructor_is_read_as_its_authors_read_it(publish):
    folder = publish("t5", modes=INSTRUCTOR_MODES, dense=True)
    model = InBedder(folder)
    assert (model.backbone.kind, model.pooling, model.template.name) == ("embedding", "text-mean", "instructor")
    for instruction in (INSTRUCTION, ""):
        assert np.abs(model.encode(TEXTS, instruction) - encode_as_instructor(folder, TEXTS, instruction)).max() < 1e-5
    assert np.array_equal(model.encode(TEXTS, INSTRUCTION), InBedder(folder, backbone="instructor").encode(TEXTS, INSTRUCTION))
    query = "Represent the question for retrieving supporting documents:"
    assert np.array_equal(model.encode_query(TEXTS), model.encode(TEXTS, query))


def test_instructor_is_asked_a_question_in_its_own_words(publish):
    model = InBedder(publish("t5", modes=INSTRUCTOR_MODES, dense=True))
    prompt = "Represent the text for answering the question Who is late, and why: "
    assert model.prompt("a cat", "Who is late, and why?") == f"{prompt}a cat"
    assert np.array_equal(model.encode(TEXTS, "Who is late, and why?"), model.encode(TEXTS, prompt))
    assert model.prompt("a cat", INSTRUCTION) == f"{INSTRUCTION}a cat"


def test_a_converted_instructor_gives_the_same_vectors(publish, tmp_path):
    folder = publish("t5", modes=INSTRUCTOR_MODES, dense=True)
    converted = InBedder(convert_to_safetensors(str(folder), tmp_path / "converted"))
    assert converted.template.name == "instructor"
    assert np.array_equal(converted.encode(TEXTS, INSTRUCTION), InBedder(folder).encode(TEXTS, INSTRUCTION))


def test_what_the_user_sets_wins_over_the_published_reading(publish):
    folder = publish("t5", modes=INSTRUCTOR_MODES, dense=True)
    model = InBedder(folder, pooling="mean", template="prefix")
    assert (model.pooling, model.template.name) == ("mean", "prefix")
    assert model.prompt("a cat", "Who?") == "Who?a cat"
    assert np.abs(model.encode(TEXTS, INSTRUCTION) - encode_reference(folder, TEXTS, INSTRUCTION)).max() < 1e-5


def test_gtr_and_sentence_t5_are_read_without_prompts(publish):
    folder = publish("t5", dense=True)
    model = InBedder(folder)
    assert (model.pooling, model.template.name) == ("text-mean", "instructor")
    expected = encode_reference(folder, TEXTS)
    for vectors in (model.encode(TEXTS), model.encode_query(TEXTS), model.encode_document(TEXTS)):
        assert np.abs(vectors - expected).max() < 1e-5


def test_gtr_has_the_same_query_prompt_if_its_backbone_is_named(publish):
    folder = publish("t5", dense=True)
    named_vectors, default_vectors = (InBedder(folder, backbone=backbone).encode_query(TEXTS) for backbone in ("embedding", None))
    assert np.array_equal(named_vectors, default_vectors)


@pytest.mark.parametrize(
    ("family", "mode", "pooling", "prompt"),
    [
        ("headless-bert", "mean_tokens", "mean", "query: "),  # E5
        ("xlm-roberta", "mean_tokens", "mean", "passage: "),  # multilingual E5
        ("headless-bert", "cls_token", "cls", "Represent this sentence for searching relevant passages: "),  # BGE
        ("headless-bert", "mean_tokens", "mean", ""),  # GTE
    ],
)
def test_e5_bge_and_gte_pool_their_prompts(publish, family, mode, pooling, prompt):
    folder = publish(family, mode)
    model = InBedder(folder)
    assert (model.backbone.kind, model.pooling, model.template.name) == ("embedding", pooling, "prefix")
    assert np.abs(model.encode(TEXTS, prompt) - encode_reference(folder, TEXTS, prompt)).max() < 1e-5
    assert np.array_equal(model.encode_query(TEXTS), model.encode(TEXTS))


def test_nomic_and_others_with_their_own_code_say_so(publish):
    folder = publish("headless-bert")
    config = json.loads((folder / "config.json").read_text())
    own_code = {"AutoConfig": "configuration_x.XConfig", "AutoModel": "modeling_x.XModel"}
    (folder / "config.json").write_text(json.dumps({**config, "model_type": "x_bert", "auto_map": own_code}))
    with pytest.raises(ModelError, match=r"contains its own code, which inbedder does not run. Review it, then set trust_remote"):
        InBedder(folder)


def test_simcse_says_how_to_load_it_and_is_then_read_by_its_first_token(make_model, tmp_path):
    folder = Path(shutil.copytree(make_model("headless-bert"), tmp_path / "model"))
    pickle_weights(folder)
    with pytest.raises(ModelError, match=r"is an encoder without a language-model head.*backbone='embedding', pooling='cls'"):
        InBedder(folder)
    tokenizer, encoder = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder)
    with torch.no_grad():
        states = [encoder(**tokenizer(text, return_tensors="pt")).last_hidden_state[0, 0] for text in TEXTS]
    expected = nn.functional.normalize(torch.stack(states), dim=1).numpy()
    assert np.abs(InBedder(folder, backbone="embedding", pooling="cls").encode(TEXTS) - expected).max() < 1e-5
