"""Attention relay against a plain computation: eager attention of the whole reader, and loops over characters."""

import json
import shutil

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoModelForCausalLM, AutoTokenizer

from inbedder import InBedder
from inbedder.backbones.transformer import find_blocks
from inbedder.encoding.attention_relay import AttentionRelay
from inbedder.errors import InputError, ModelError, TemplateError
from tests.conftest import CAUSAL, TEXTS, assert_close

QUESTION = "What product is it?"
CHAT_TEMPLATE = "{% for message in messages %}<{{ message.role }}>{{ message.content }}{% endfor %}<answer>"


@pytest.fixture
def make_reader(make_model, tmp_path):
    def make(family):
        folder = shutil.copytree(make_model(family), tmp_path / family)
        path = folder / "tokenizer_config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), "chat_template": CHAT_TEMPLATE}))
        return folder

    return make


def relay_plainly(reader, embedder, text, question, block, beta):
    tokenizer, target_tokenizer = AutoTokenizer.from_pretrained(reader), AutoTokenizer.from_pretrained(embedder)
    model = AutoModelForCausalLM.from_pretrained(reader, attn_implementation="eager").eval()
    parts = ["<user>Text:\n", text, f"\n\n{question}", "\n\nAnswer in one word.<answer>"]
    ids = [tokenizer(part, add_special_tokens=False, split_special_tokens=True)["input_ids"] for part in parts]
    with torch.no_grad():
        attentions = model(torch.tensor([[token for part in ids for token in part]]), output_attentions=True).attentions
        target = target_tokenizer(text, return_offsets_mapping=True, return_special_tokens_mask=True)
        states = AutoModel.from_pretrained(embedder).eval()(torch.tensor([target["input_ids"]])).last_hidden_state[0].numpy()
    weights = attentions[block][0].sum(0)[-1, len(ids[0]) : len(ids[0]) + len(ids[1])].double().numpy()
    weights /= weights.sum()
    spans = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
    carried = np.zeros(len(target["input_ids"]))
    owners = {place: j for j, span in enumerate(spans) for place in range(*span) if not text[place].isspace()}
    for i, ((start, end), special) in enumerate(zip(target["offset_mapping"], target["special_tokens_mask"], strict=True)):
        for place in range(start, end) if not special else ():
            if place in owners:
                carried[i] += weights[owners[place]] / list(owners.values()).count(owners[place])
    carried = np.where(np.array(target["special_tokens_mask"]) == 0, carried**beta, 0)
    vector = carried @ states
    return vector / np.linalg.norm(vector)


@pytest.mark.parametrize("family", CAUSAL)
def test_vectors_are_means_weighed_by_the_attention_of_the_reader(make_reader, make_sentence_model, make_model, family):
    folder, embedder = make_reader(family), InBedder(make_sentence_model())
    for block, beta in ((0, 1.0), (1, 0.5)):
        relay = AttentionRelay(InBedder(folder), embedder, block=block, beta=beta)
        expected = [relay_plainly(folder, make_model("headless-bert"), text, QUESTION, block, beta) for text in TEXTS[:4]]
        assert_close(relay.encode(TEXTS[:4], QUESTION), np.stack(expected), 1e-4)


def test_the_question_changes_the_vectors_and_the_models_stay_as_they_were(make_reader, make_sentence_model):
    reader, embedder = InBedder(make_reader("llama")), InBedder(make_sentence_model())
    before = reader.encode(TEXTS, QUESTION), embedder.encode(TEXTS)
    relay = AttentionRelay(reader, embedder)
    assert np.abs(relay.encode(TEXTS[:4], QUESTION) - relay.encode(TEXTS[:4], "Why?")).max() > 1e-4
    vectors = relay.encode(TEXTS, QUESTION)  # one text is empty
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    assert_close(vectors[4], embedder.encode("", normalize_embeddings=True), 1e-4)
    assert np.array_equal(reader.encode(TEXTS, QUESTION), before[0])
    assert np.array_equal(embedder.encode(TEXTS), before[1])


def test_pairs_that_do_not_fit_are_refused(make_reader, make_model, make_sentence_model):
    reader, embedder = InBedder(make_reader("llama")), InBedder(make_sentence_model())
    with pytest.raises(ModelError, match="needs a causal LM as its reader"):
        AttentionRelay(embedder, embedder)
    with pytest.raises(ModelError, match="needs an embedding model that averages its tokens"):
        AttentionRelay(reader, InBedder(make_sentence_model(mode="cls", include_prompt=True)))
    with pytest.raises(InputError, match=r"block=2: .* has the blocks 0 to 1"):
        AttentionRelay(reader, embedder, block=2)
    relay = AttentionRelay(reader, embedder)
    find_blocks(reader.backbone.body, 2)[1].self_attn.sliding_window = 8
    with pytest.raises(InputError, match="Block 1 reads the last 8 tokens only"):
        relay.encode(TEXTS, QUESTION)
    with pytest.raises(TemplateError, match="has no chat template"):
        AttentionRelay(InBedder(make_model("llama")), embedder)
