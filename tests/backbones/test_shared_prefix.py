import numpy as np
import pytest

from inbedder import InBedder
from inbedder.backbones.shared_prefix import embed_shared, explain_not_shared
from inbedder.options import Sampling
from tests.conftest import INSTRUCTIONS, TEXTS

CAUSAL = ["opt", "gpt2", "llama", "qwen2"]
MANY_INSTRUCTIONS = [f"{one} {i}" for i in range(3) for one in INSTRUCTIONS]


@pytest.mark.parametrize("family", CAUSAL)
@pytest.mark.parametrize("layer", [-1, 1])
def test_shared_passes_equal_separate_ones(make_model, family, layer):
    model = InBedder(make_model(family), layer=layer)
    assert explain_not_shared(model.backbone, model.pooling, model.template) is None
    shared = model.encode_many(TEXTS, INSTRUCTIONS, batch_size=3)
    separate = np.stack([model.encode(TEXTS, one, batch_size=3) for one in INSTRUCTIONS])
    assert np.abs(shared - separate).max() < 1e-4


def test_instructions_go_in_groups_under_the_budget(make_model):
    model = InBedder(make_model("llama"))
    prompts = [model.tokenizer([text] * len(MANY_INSTRUCTIONS), MANY_INSTRUCTIONS) for text in TEXTS[:3]]
    unlimited = embed_shared(model.backbone, prompts, "1st-gen", -1, Sampling())
    for budget in (1, 500):
        assert (embed_shared(model.backbone, prompts, "1st-gen", -1, Sampling(), budget) - unlimited).abs().max() < 1e-4


def test_a_text_that_is_cut_shares_what_is_left(make_model):
    model = InBedder(make_model("opt"), max_length=60)
    texts = ["many words " * 30, "few"]
    with pytest.warns(UserWarning, match="1 of 2 texts were cut"):
        shared = model.encode_many(texts, MANY_INSTRUCTIONS)
    with pytest.warns(UserWarning, match="1 of 2 texts were cut"):
        separate = np.stack([model.encode(texts, one) for one in MANY_INSTRUCTIONS])
    assert np.abs(shared - separate).max() < 1e-4


@pytest.mark.parametrize(
    ("family", "options", "reason"),
    [
        ("bert", {}, "depend on the instruction"),
        ("t5", {}, "depend on the instruction"),
        ("opt", {"pooling": "avg-gen"}, "more than the prompt's last state"),
        ("opt", {"template": "{instruction}\n{input}\n"}, "instruction first"),
        ("mistral", {}, "window"),
    ],
)
def test_where_nothing_can_be_shared_the_reason_is_said(make_model, family, options, reason, caplog):
    model = InBedder(make_model(family), **options)
    if family == "mistral":
        model.backbone.model.config.sliding_window = 8
    with caplog.at_level("INFO"):
        vectors = model.encode_many(TEXTS[:2], INSTRUCTIONS[:2])
    assert reason in caplog.text
    assert np.abs(vectors[1] - model.encode(TEXTS[:2], INSTRUCTIONS[1])).max() < 1e-5


def test_shared_vectors_are_kept_and_found_by_encode(make_model, tmp_path, monkeypatch):
    model = InBedder(make_model("opt"), cache=tmp_path)
    vectors = model.encode_many(TEXTS, INSTRUCTIONS)
    monkeypatch.setattr(model.backbone, "embed", None)
    monkeypatch.setattr(model.backbone, "body", None)
    assert (model.encode_many(TEXTS, INSTRUCTIONS) == vectors).all()
    assert (model.encode(TEXTS, INSTRUCTIONS[2]) == vectors[2]).all()


def test_one_text_gives_a_vector_an_instruction(make_model):
    model = InBedder(make_model("opt"))
    vectors = model.encode_many("a", INSTRUCTIONS, normalize_embeddings=True)
    assert vectors.shape == (len(INSTRUCTIONS), model.dimension)
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    assert model.encode_many([], INSTRUCTIONS).shape == (len(INSTRUCTIONS), 0, model.dimension)
