import numpy as np
import pytest
import torch
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from inbedder import InBedder
from inbedder.errors import ModelError
from tests.conftest import TEXTS

PROMPT = "### Input:\nI love cats\n\n### Instruction:\nWhy?\n\n### Response:"


@pytest.fixture
def reference(make_model):
    """Compute encoder states, decoder states and tokens of transformers' greedy generation."""
    folder = make_model("t5")
    model = AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    inputs = tokenizer(PROMPT, return_tensors="pt", return_token_type_ids=False)
    with torch.inference_mode():
        encoded = model.encoder(**inputs, output_hidden_states=True).hidden_states
        decoder_ids = torch.tensor([[0]])
        predicted = []
        for _ in range(3):
            output = model(**inputs, decoder_input_ids=decoder_ids, output_hidden_states=True)
            predicted.append(int(output.logits[0, -1].argmax()))
            states = [one.clone() for one in output.decoder_hidden_states]
            decoder_ids = torch.cat([decoder_ids, torch.tensor([[predicted[-1]]])], 1)
    return folder, encoded, states, predicted, set(tokenizer.all_special_ids)


@pytest.mark.parametrize("layer", [0, 1, 2])
def test_the_prompt_is_pooled_in_the_encoder(reference, layer):
    folder, encoded, *_ = reference
    vector = InBedder(folder, pooling="avg-ppt", layer=layer).encode("I love cats", "Why?")
    assert np.abs(encoded[layer][0].mean(0).numpy() - vector).max() < 1e-5


@pytest.mark.parametrize("layer", [1, 2])
def test_the_answer_is_pooled_in_the_decoder(reference, layer):
    folder, _, states, predicted, special = reference
    kept_positions = [j for j, token in enumerate(predicted) if token not in special] or [0]
    first = InBedder(folder, pooling="1st-gen", layer=layer).encode("I love cats", "Why?")
    average = InBedder(folder, pooling="avg-gen", layer=layer).encode("I love cats", "Why?")
    last = InBedder(folder, pooling="last-gen", layer=layer).encode("I love cats", "Why?")
    assert np.abs(states[layer][0, 0].numpy() - first).max() < 1e-5
    assert np.abs(states[layer][0, kept_positions].mean(0).numpy() - average).max() < 1e-5
    assert np.abs(states[layer][0, kept_positions[-1]].numpy() - last).max() < 1e-5


@pytest.mark.parametrize("pooling", ["1st-gen", "avg-gen", "last-gen", "avg-ppt"])
def test_a_batch_gives_what_single_texts_give(make_model, pooling):
    model = InBedder(make_model("t5"), pooling=pooling)
    batch = model.encode(TEXTS, "What?")
    singles = np.stack([model.encode(text, "What?") for text in TEXTS])
    assert np.abs(batch - singles).max() < 1e-4


def test_there_is_no_avg_all(make_model):
    with pytest.raises(ModelError, match="seq2seq LM has no pooling 'avg-all'"):
        InBedder(make_model("t5"), pooling="avg-all")


def test_it_answers(make_model):
    model = InBedder(make_model("t5"), max_new_tokens=4)
    assert len(model.answer(TEXTS, "What?")) == len(TEXTS)
    assert len(model.nearest_words(model.encode(TEXTS[:2], "What?"))) == 2
