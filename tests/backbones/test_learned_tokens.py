"""LLM2Vec-Gen in the layout that its authors save, against a plain computation of its formula."""

import json

import numpy as np
import pytest
import torch
from peft import LoraConfig, TrainableTokensConfig, get_peft_model
from transformers import AutoModel, AutoTokenizer

from inbedder import InBedder
from inbedder.backbones.revision import get_files_revision, get_weights_revision
from inbedder.errors import ModelError
from tests.backbones.checkpoints import COMMIT, needs_pickles
from tests.conftest import TEXTS, assert_close

pytestmark = needs_pickles
LEARNED = [f"<question{i}>" for i in range(1, 6)]
NUM_POOLED = 3
INSTRUCTION = "Summarize the following passage:"


def save_projection(path, size, **table):
    linear = torch.nn.Linear(32, size)
    state = {f"projection.{name}": tensor.bfloat16() for name, tensor in linear.state_dict().items()}
    torch.save({"state_dict": state, "config": {"input_dim": 32, "size": 1, "pooling_mode": "linear"}, **table}, path)


@pytest.fixture(params=["qwen2", "llama", "opt"])
def published(request, make_model, tmp_path):
    """Save a tiny LLM2Vec-Gen: the vocabulary ends with the learned tokens, or has room for them (Qwen) or not (Llama)."""
    base, folder = make_model(request.param), tmp_path / "published"
    torch.manual_seed(11)
    tokenizer = AutoTokenizer.from_pretrained(base, padding_side="left")
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    tokenizer.add_special_tokens({"additional_special_tokens": LEARNED})
    tokenizer.save_pretrained(folder)
    model = AutoModel.from_pretrained(base)
    model.resize_token_embeddings(len(tokenizer))
    config = TrainableTokensConfig(token_indices=tokenizer.convert_tokens_to_ids(LEARNED))
    encoder = get_peft_model(model, config)
    for name, parameter in encoder.named_parameters():
        if "trainable_tokens_delta" in name:
            torch.nn.init.normal_(parameter)
    encoder.save_pretrained(folder / "encoder")
    encoder.config.save_pretrained(folder / "encoder")
    save_projection(folder / "reconstruction_mlp", 32)
    save_projection(folder / "alignment_mlp", 24)
    settings = {"encoding_mode": f"last_{NUM_POOLED}_tokens", "save_decoder": False}
    (folder / "encoder_decoder_config.json").write_text(json.dumps(settings))
    return folder, encoder.eval()


def compute_vector(folder, encoder, text, instruction, max_length=512):
    """Compute A(R(h)) of each of the last tokens, and then the mean, for one text without padding."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    prompt = f"{instruction} {text}" if instruction else text
    learned_ids = tokenizer.convert_tokens_to_ids(LEARNED)
    ids = [*tokenizer(prompt, split_special_tokens=True)["input_ids"][: max_length - len(LEARNED)], *learned_ids]
    with torch.no_grad():
        vectors = encoder(input_ids=torch.tensor([ids])).last_hidden_state[0, -NUM_POOLED:]
    for file in ("reconstruction_mlp", "alignment_mlp"):
        state = torch.load(folder / file, weights_only=True)["state_dict"]
        vectors = vectors @ state["projection.weight"].float().T + state["projection.bias"].float()
    return vectors.mean(0).numpy()


def test_vectors_are_projected_means_of_the_last_learned_tokens(published):
    folder, encoder = published
    model = InBedder(folder)
    assert (model.backbone.kind, model.pooling, model.dimension) == ("embedding", "last-token", 24)
    texts = TEXTS[:4]
    for instruction in (INSTRUCTION, ""):
        expected = np.stack([compute_vector(folder, encoder, text, instruction) for text in texts])
        assert_close(model.encode(texts, instruction), expected)
    assert np.array_equal(model.encode_document(texts), model.encode(texts, INSTRUCTION))
    assert model.prompt("a cat", "Generate a passage that best answers this question:") == (
        "Generate a passage that best answers this question: a cat"
    )
    with pytest.raises(ModelError, match="embeds and does not answer"):
        model.answer(texts, "What?")


def test_a_long_text_keeps_all_learned_tokens(published):
    folder, encoder = published
    text = "the box was late " * 20
    assert_close(InBedder(folder, max_length=40).encode(text, ""), compute_vector(folder, encoder, text, "", max_length=40))


def test_a_missing_projection_is_the_identity(published):
    folder, _ = published
    (folder / "alignment_mlp").unlink()
    assert InBedder(folder).dimension == 32


def read_revisions(folder):
    return get_weights_revision(InBedder(folder).backbone), get_files_revision(str(folder))


def test_a_hub_id_gives_the_vectors_of_its_folder(published, fill_cache):
    fill_cache(published[0])
    model = InBedder("someone/model")
    assert np.array_equal(model.encode(TEXTS, INSTRUCTION), InBedder(published[0]).encode(TEXTS, INSTRUCTION))
    assert get_files_revision("someone/model") == COMMIT


def test_every_file_counts_in_the_revision(published):
    folder, _ = published
    revisions = [read_revisions(folder)]
    torch.manual_seed(0)
    save_projection(folder / "alignment_mlp", 24)
    revisions.append(read_revisions(folder))
    (folder / "encoder_decoder_config.json").write_text('{"encoding_mode": "last_2_tokens"}')
    revisions.append(read_revisions(folder))
    assert [len(set(column)) for column in zip(*revisions, strict=True)] == [3, 3]


@pytest.mark.parametrize("published", ["llama"], indirect=True)
class TestWhatIsRefused:
    def test_other_modes(self, published):
        for mode in ("mean", "last_6_tokens", "last_0_tokens"):
            (published[0] / "encoder_decoder_config.json").write_text(json.dumps({"encoding_mode": mode}))
            with pytest.raises(ModelError, match=rf"is '{mode}'; it must be 'last_N_tokens' with N from 1 to 5"):
                InBedder(published[0])

    def test_another_backbone(self, published):
        for backbone in ("causal", "vllm"):
            with pytest.raises(ModelError, match=r"is an LLM2Vec-Gen, .* Leave out backbone"):
                InBedder(published[0], backbone=backbone)

    def test_projections_of_each_token(self, published):
        state = {"projection.0.weight": torch.zeros(3, 3), "projection.1.weight": torch.zeros(3, 3)}
        save_projection(published[0] / "alignment_mlp", 24, state_dict=state)
        with pytest.raises(ModelError, match=r"alignment_mlp holds projection.0.weight, projection.1.weight, not one linear"):
            InBedder(published[0])

    def test_a_projection_without_its_table(self, published):
        torch.save({"weight": torch.zeros(3)}, published[0] / "alignment_mlp")
        with pytest.raises(ModelError, match=r"torch does not read .*alignment_mlp"):
            InBedder(published[0])

    def test_an_adapter_that_changes_the_model(self, published, make_model):
        config = LoraConfig(r=2, target_modules=["q_proj"])
        get_peft_model(AutoModel.from_pretrained(make_model("llama")), config).save_pretrained(published[0] / "encoder")
        with pytest.raises(ModelError, match="is not an LLM2Vec-Gen of a frozen model: peft_type is 'LORA'"):
            InBedder(published[0])

    def test_tokens_of_another_tokenizer(self, published):
        path = published[0] / "encoder" / "adapter_config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), "token_indices": [9000, 9001, 9002, 9003, 9004]}))
        with pytest.raises(ModelError, match="lacks learned tokens of its encoder"):
            InBedder(published[0])
