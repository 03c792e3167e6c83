import json
from dataclasses import replace
from typing import get_args

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModel

from inbedder.conditional.config import Encoding, Pooler, load_parts
from inbedder.conditional.encoder import ConditionalEncoder
from inbedder.embedder import InBedder
from inbedder.errors import InputError, ModelError, TextCutWarning
from inbedder.vectors.vectors import compute_row_cosines

FIRST = ["I love cats", "The delivery was late and the box was crushed", "I love dogs"]
SECOND = ["I love dogs", "the lamp inside still works fine", "Do they love cats?"]
CONDITIONS = ["What animals do they love", "What product is it", "love"]
SETTINGS = [
    Encoding(),
    Encoding(template="{input} {instruction}"),
    Encoding(pooler="avg_top2", transform=True),
    Encoding(input="pair", pooler="cls"),
    Encoding(reads="sentences"),
    Encoding(kind="tri"),
    Encoding(kind="tri", combine="mlp", pooler="cls_before_pooler"),
    Encoding(kind="cross"),
    Encoding(kind="cross", transform=True, pooler="pooler"),
    Encoding(kind="cross", transform=True, pooler="cls"),
    Encoding(kind="cross", reads="sentences"),
    Encoding(kind="cross", reads="condition"),
    Encoding(kind="cross", pooler="spans"),
    Encoding(kind="cross", pooler="spans", transform=True, reads="sentences"),
]


def make_id(encoding):
    return "-".join(
        str(value)
        for value in (encoding.kind, encoding.input, encoding.pooler, encoding.transform, encoding.combine, encoding.reads)
    )


def make_encoder(make_model, encoding, family="bert"):
    torch.manual_seed(0)
    return ConditionalEncoder.of_base(make_model(family), encoding)


@pytest.mark.parametrize("encoding", SETTINGS, ids=make_id)
def test_batches_equal_single_pairs(make_model, encoding):
    model = make_encoder(make_model, encoding)
    batched = model.similarity(FIRST, SECOND, condition=CONDITIONS)
    single = [model.similarity(*triple[:2], condition=triple[2]) for triple in zip(FIRST, SECOND, CONDITIONS, strict=True)]
    assert batched.shape == (3,) and batched.dtype == np.float32 and isinstance(single[0], float)
    np.testing.assert_allclose(batched, single, atol=1e-5)
    np.testing.assert_allclose(model.similarity(FIRST, SECOND, condition=CONDITIONS, batch_size=1), batched, atol=1e-5)
    columns = pd.DataFrame({"sentence1": FIRST, "sentence2": SECOND}, index=[5, 6, 7])
    np.testing.assert_array_equal(model.similarity(columns.sentence1, columns.sentence2, condition=np.array(CONDITIONS)), batched)
    assert model.similarity([], [], condition="love").shape == (0,)


@pytest.mark.parametrize("encoding", SETTINGS, ids=make_id)
def test_only_the_cross_encoder_depends_on_the_order_of_sentences(make_model, encoding):
    model = make_encoder(make_model, encoding)
    forward, backward = (
        model.similarity(FIRST, SECOND, condition=CONDITIONS),
        model.similarity(SECOND, FIRST, condition=CONDITIONS),
    )
    if encoding.kind == "cross" and encoding.reads != "condition":
        assert np.abs(forward - backward).max() > 1e-3
    else:
        np.testing.assert_allclose(forward, backward, atol=1e-6)
    if encoding.kind != "cross":
        assert np.abs(forward).max() <= 1 + 1e-6
        np.testing.assert_allclose(model.similarity(FIRST, FIRST, condition=CONDITIONS), 1, atol=1e-5)


@pytest.mark.parametrize("encoding", SETTINGS, ids=make_id)
def test_the_condition_matters_if_it_is_read(make_model, encoding):
    model = make_encoder(make_model, encoding)
    scores = [model.similarity(FIRST, SECOND, condition=condition) for condition in CONDITIONS[:2]]
    assert (np.abs(scores[0] - scores[1]).max() > 1e-4) == (encoding.reads != "sentences")


@pytest.mark.parametrize("encoding", SETTINGS, ids=make_id)
def test_save_and_load_round_trip_in_safetensors_and_json(make_model, encoding, tmp_path):
    model = make_encoder(make_model, encoding)
    model.save(tmp_path, {"base": "here"})
    loaded = ConditionalEncoder.load(tmp_path)
    assert loaded.encoding == encoding and type(loaded) is type(model)
    np.testing.assert_allclose(
        loaded.similarity(FIRST, SECOND, condition=CONDITIONS), model.similarity(FIRST, SECOND, condition=CONDITIONS), atol=1e-6
    )
    assert {path.suffix for path in tmp_path.rglob("*") if path.is_file()} == {".safetensors", ".json"}
    assert (tmp_path / "modules.json").exists() == (tmp_path / "config.json").exists() == encoding.is_plain


@pytest.mark.parametrize("pooler", [pooler for pooler in get_args(Pooler) if pooler not in ("spans", "masks")])
def test_poolers_equal_the_states_of_transformers(make_model, pooler):
    model = make_encoder(make_model, Encoding(pooler=pooler)).eval()
    rows, _ = model.read(["I love cats"], ["I love dogs"], ["animals"])
    ids = torch.tensor(np.array([rows[0][0]]), dtype=torch.long)
    plain = AutoModel.from_pretrained(make_model("bert"), dtype=torch.float32).eval()
    model.backbone.pooler.load_state_dict(plain.pooler.state_dict())  # random if the checkpoint has none
    with torch.no_grad():
        output = plain(ids, output_hidden_states=True)
        expected = {
            "pooler": output.pooler_output[0],
            "cls": output.last_hidden_state[0, 0],
            "cls_before_pooler": output.last_hidden_state[0, 0],
            "avg": output.last_hidden_state[0].mean(0),
            "mean": output.last_hidden_state[0].mean(0),
            "last": output.last_hidden_state[0, -1],
            "avg_first_last": ((output.hidden_states[0] + output.hidden_states[-1]) / 2)[0].mean(0),
            "avg_top2": ((output.hidden_states[-2] + output.hidden_states[-1]) / 2)[0].mean(0),
        }[pooler]
        padded = torch.nn.functional.pad(ids, (0, 3))
        pooled = model._pool(padded, torch.tensor([[True] * ids.shape[1] + [False] * 3]))
    torch.testing.assert_close(pooled[0], expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_the_pooler_spans_starts_as_the_cosine_of_two_sentences(make_model, family):
    model = make_encoder(make_model, Encoding(kind="cross", pooler="spans", max_length=64), family).eval()
    ((ids,),), _ = model.read(["I love cats"], ["I love dogs too"], ["animals"])
    ends = np.flatnonzero(ids == model.tokenizer.sep_token_id)
    with torch.no_grad():
        states = model.backbone(torch.tensor(ids[None], dtype=torch.long)).last_hidden_state[0]
    first, second = states[1 : ends[0]].mean(0), states[ends[0] + 1 : ends[1]].mean(0)
    expected = float(torch.nn.functional.cosine_similarity(first, second, dim=0))
    assert model.similarity("I love cats", "I love dogs too", condition="animals") == pytest.approx(expected, abs=1e-5)
    assert np.isfinite(model.similarity("", "", condition="animals"))


@pytest.mark.parametrize("family", ["bert", "roberta", "xlm-roberta"])
@pytest.mark.parametrize("reads", ["all", "sentences", "condition"])
def test_ids_of_the_cross_encoder_equal_those_of_the_authors_code(make_model, family, reads):
    """The authors join the texts by spaces and the separator's string, and tokenize the joined text."""
    model = make_encoder(make_model, Encoding(kind="cross", reads=reads), family)
    rows, _ = model.read(FIRST, SECOND, CONDITIONS)
    for (ids,), *texts in zip(rows, FIRST, SECOND, CONDITIONS, strict=True):
        joined = {"all": texts, "sentences": texts[:2], "condition": texts[2:]}[reads]
        assert ids.tolist() == model.tokenizer(f" {model.tokenizer.sep_token} ".join(joined)).input_ids


@pytest.mark.parametrize("settings", [{}, {"kind": "tri"}, {"kind": "cross", "reads": "condition"}])
def test_the_pooler_spans_needs_two_sentences_in_one_input(make_model, settings):
    with pytest.raises(ModelError, match="The pooler spans compares two sentences in one input"):
        make_encoder(make_model, Encoding(pooler="spans", **settings))


def test_inputs_of_each_encoder(make_model):
    def decode_inputs(**settings):
        model = make_encoder(make_model, Encoding(**settings))
        (parts,), _ = model.read(["I love cats"], ["I love dogs"], ["animals"])
        return [model.tokenizer.decode(ids).lower() for ids in parts]

    assert decode_inputs(kind="cross") == ["[CLS] i love cats [SEP] i love dogs [SEP] animals [SEP]".lower()]
    assert decode_inputs(kind="cross", reads="condition") == ["[cls] animals [sep]"]
    assert decode_inputs(kind="cross", reads="sentences") == ["[cls] i love cats [sep] i love dogs [sep]"]
    assert [text.replace(" : ", ": ") for text in decode_inputs()] == [
        "[cls] animals: i love cats [sep]",
        "[cls] animals: i love dogs [sep]",
    ]
    assert decode_inputs(reads="sentences") == ["[cls] i love cats [sep]", "[cls] i love dogs [sep]"]
    assert decode_inputs(kind="tri") == ["[cls] i love cats [sep]", "[cls] i love dogs [sep]", "[cls] animals [sep]"]


@pytest.mark.parametrize("family", ["bert", "roberta", "xlm-roberta"])
def test_pair_inputs_equal_the_tokenizers_own_pairs(make_model, family):
    model = make_encoder(make_model, Encoding(input="pair", pooler="cls", max_length=64), family)
    rows, num_cut = model.read(FIRST, SECOND, CONDITIONS)
    for side, sentences in enumerate((FIRST, SECOND)):
        expected = model.tokenizer(sentences, CONDITIONS)["input_ids"]
        assert [parts[side].tolist() for parts in rows] == expected
    assert num_cut == 0
    ((ids, _),), _ = model.read(["I love cats"], ["I love dogs"], ["animals"])
    assert (ids == model.tokenizer.sep_token_id).sum() == (2 if family == "bert" else 3)


def test_a_separator_written_in_a_sentence_is_plain_text(make_model):
    model = make_encoder(make_model, Encoding(input="pair"))
    ((ids, _),), _ = model.read(["cats [SEP] dogs"], ["dogs"], ["animals"])
    assert (ids == model.tokenizer.sep_token_id).sum() == 2


def test_the_papers_cross_encoder_is_a_linear_map_of_the_mlp(make_model):
    model = make_encoder(make_model, Encoding(kind="cross", pooler="cls", transform=True)).eval()
    ((ids,),), _ = model.read(["I love cats"], ["I love dogs"], ["animals"])
    with torch.no_grad():
        state = model.backbone(torch.tensor(ids[None], dtype=torch.long)).last_hidden_state[0, 0]
        hidden = torch.nn.functional.gelu(model.transform[1].weight @ state + model.transform[1].bias)
        expected = model.scalar[1].weight[0] @ hidden + model.scalar[1].bias[0]
    assert model.similarity("I love cats", "I love dogs", condition="animals") == pytest.approx(expected.item(), abs=1e-5)


def test_the_tri_encoders_hadamard_product_is_the_equation(make_model):
    model = make_encoder(make_model, Encoding(kind="tri")).eval()
    first, second, condition = torch.randn(3, 4, 32).unbind(0)
    weighted = model.condition(condition)
    expected = torch.nn.functional.cosine_similarity(first * weighted, second * weighted)
    torch.testing.assert_close(model.score((first, second, condition)), expected)


@pytest.mark.parametrize(("kind", "input_kind"), [("cross", "template"), ("bi", "template"), ("bi", "pair"), ("tri", "template")])
def test_sentences_are_cut_and_counted_but_conditions_are_not(make_model, kind, input_kind):
    model = make_encoder(make_model, Encoding(kind=kind, max_length=16, input=input_kind))
    long = "cats " * 40
    with pytest.warns(TextCutWarning, match="1 of 2 pairs were cut to 16 tokens"):
        model.similarity([long, "cats"], ["dogs", "dogs"], condition="love")
    rows, num_cut = model.read([long, long], ["dogs " * 40, "dogs"], ["love", "love"])
    assert num_cut == 2 and max(len(ids) for parts in rows for ids in parts) == 16
    love = model.tokenizer.convert_tokens_to_ids("love")
    assert all(any(love in ids for ids in parts) for parts in rows)
    with pytest.raises(InputError, match=r"(leaves no room|take \d+ tokens)"):
        model.similarity("cats", "dogs", condition=long)


@pytest.mark.parametrize("family", ["roberta", "xlm-roberta", "bert"])
def test_every_bert_like_base_works(make_model, family):
    for encoding in (Encoding(kind="cross", max_length=64), Encoding(max_length=64), Encoding(kind="tri", max_length=64)):
        scores = make_encoder(make_model, encoding, family).similarity(FIRST, SECOND, condition=CONDITIONS)
        assert np.isfinite(scores).all()


def test_the_bundled_base_needs_no_network():
    model = ConditionalEncoder.of_base("all-MiniLM-L6-v2", Encoding(max_length=32))
    similar, different = model.similarity(["A cat sleeps"] * 2, ["A kitten naps", "Taxes rose again"], condition="the animal")
    assert similar > different + 0.2


def test_mini_is_a_base(tmp_path):
    torch.manual_seed(0)
    model = ConditionalEncoder.of_base("mini", Encoding(max_length=64, template="inbedder"))
    scores = model.similarity("Two cats sleep", "Two dogs run", condition=["The number of animals", "What the animals do"])
    assert scores[0] > scores[1]
    model.save(tmp_path)
    score = ConditionalEncoder.load(tmp_path).similarity("Two cats sleep", "Two dogs run", condition="The number of animals")
    assert score == pytest.approx(scores[0], abs=1e-5)


def test_an_encoder_decoder_is_refused(make_model):
    with pytest.raises(ModelError, match="is neither a BERT-like encoder"):
        load_parts(make_model("t5"))


DECODER_ENCODING = Encoding(pooler="last", template="inbedder", max_length=128)


@pytest.mark.parametrize("family", ["opt", "llama"])
def test_a_decoder_equals_inbedders_first_generated_state(make_model, tmp_path, family):
    model = make_encoder(make_model, DECODER_ENCODING, family).eval()
    scores = model.similarity(FIRST, SECOND, condition=CONDITIONS)
    embedder = InBedder(make_model(family), pooling="1st-gen", dtype="float32", max_length=128)
    first, second = (embedder.encode(texts, CONDITIONS) for texts in (FIRST, SECOND))
    np.testing.assert_allclose(scores, compute_row_cosines(first, second), atol=1e-5)
    np.testing.assert_allclose(model.similarity(FIRST, SECOND, condition=CONDITIONS, batch_size=1), scores, atol=1e-5)
    model.save(tmp_path)
    loaded_scores = ConditionalEncoder.load(tmp_path).similarity(FIRST, SECOND, condition=CONDITIONS)
    np.testing.assert_allclose(loaded_scores, scores, atol=1e-5)


@pytest.mark.parametrize(
    "change", [{"pooler": "mean"}, {"kind": "cross"}, {"kind": "tri"}, {"input": "pair"}, {"reads": "sentences"}]
)
def test_a_decoder_takes_only_rendered_prompts(make_model, change):
    with pytest.raises(ModelError, match=r"A decoder has no \[CLS\] and \[SEP\]"):
        make_encoder(make_model, replace(DECODER_ENCODING, **change), "opt")


def test_the_pooler_masks_equals_inbedders_masked_lm(make_model, tmp_path):
    model = make_encoder(make_model, Encoding(pooler="masks", template="inbedder", max_length=128)).eval()
    scores = model.similarity(FIRST, SECOND, condition=CONDITIONS)
    embedder = InBedder(make_model("bert"), dtype="float32", max_length=128)
    first, second = (embedder.encode(texts, CONDITIONS) for texts in (FIRST, SECOND))
    np.testing.assert_allclose(scores, compute_row_cosines(first, second), atol=1e-5)
    model.save(tmp_path)
    loaded_scores = ConditionalEncoder.load(tmp_path).similarity(FIRST, SECOND, condition=CONDITIONS, batch_size=1)
    np.testing.assert_allclose(loaded_scores, scores, atol=1e-5)
    score = model.similarity("I love [MASK]", "I love dogs", condition="love")
    assert np.isfinite(score) and score != pytest.approx(model.similarity("I love", "I love dogs", condition="love"))
    with pytest.raises(ModelError, match="The pooler masks reads an answer after a prompt"):
        make_encoder(make_model, Encoding(kind="tri", pooler="masks"))


def test_the_last_token_is_found_before_padding(make_model):
    model = make_encoder(make_model, Encoding(pooler="last"))
    scores = model.similarity(FIRST, SECOND, condition=CONDITIONS)
    np.testing.assert_allclose(model.similarity(FIRST, SECOND, condition=CONDITIONS, batch_size=1), scores, atol=1e-5)


def test_invalid_arguments_are_reported(make_model, tmp_path):
    model = make_encoder(make_model, Encoding())
    with pytest.raises(InputError, match="Pass condition="):
        model.similarity("a", "b")
    with pytest.raises(InputError, match="Numbers differ: 2 of sentence1, 1 of sentence2"):
        model.similarity(["a", "b"], ["c"], condition="d")
    with pytest.raises(InputError, match=r"sentence2: entry 1 is None \(NoneType\), not a string"):
        model.similarity(["a", "b"], ["c", None], condition="d")
    for value in (None, float("nan"), 3):
        with pytest.raises(InputError, match=r"sentence1 must be a list, not "):
            model.similarity(value, ["c"], condition="d")
    with pytest.raises(ModelError, match=r"takes at most 256 tokens. Set encoding.max_length=256 or less"):
        make_encoder(make_model, Encoding(max_length=257))
    with pytest.raises(ModelError, match="contains no conditional encoder"):
        ConditionalEncoder.load(tmp_path)
    with pytest.raises(ModelError, match="Cannot load the model"):
        load_parts(str(tmp_path / "none"))


def test_a_base_without_its_own_pooler_is_reported(make_model):
    backbone, tokenizer = load_parts(make_model("bert"))
    backbone.pooler = None
    kind = type(make_encoder(make_model, Encoding()))
    with pytest.raises(ModelError, match=r"BertModel has no pooler of its own. Set encoding.pooler"):
        kind(backbone, tokenizer, Encoding(pooler="pooler"))


def test_a_head_that_does_not_fit_is_refused(make_model, tmp_path):
    make_encoder(make_model, Encoding(kind="tri")).save(tmp_path)
    save_file(
        {name: tensor[:1].clone() for name, tensor in load_file(tmp_path / "head.safetensors").items()},
        tmp_path / "head.safetensors",
    )
    with pytest.raises(ModelError, match=r"contains no conditional encoder \((.|\n)*size mismatch"):
        ConditionalEncoder.load(tmp_path)
    (tmp_path / "head.safetensors").unlink()
    with pytest.raises(ModelError, match=r"head.safetensors does not fit: condition.1.weight"):
        ConditionalEncoder.load(tmp_path)


def test_avg_and_mean_are_the_same(make_model):
    by_name = [
        make_encoder(make_model, Encoding(pooler=name)).similarity(FIRST, SECOND, condition=CONDITIONS)
        for name in ("avg", "mean")
    ]
    np.testing.assert_array_equal(*by_name)
    assert Encoding(pooler="avg").is_plain


@pytest.mark.parametrize("template", ["{instruction}: {input}", "{instruction} {input}"])
def test_sentence_transformers_loads_the_plain_bi_encoder(make_model, tmp_path, template):
    from sentence_transformers import SentenceTransformer

    model = make_encoder(make_model, Encoding(template=template))
    model.save(tmp_path)
    loaded = SentenceTransformer(str(tmp_path), device="cpu")
    prompt = template.replace("{instruction}", CONDITIONS[0]).removesuffix("{input}")
    vectors = [loaded.encode(texts, prompt=prompt) for texts in (FIRST, SECOND)]
    np.testing.assert_allclose(np.linalg.norm(vectors[0], axis=1), 1, atol=1e-5)
    expected = model.similarity(FIRST, SECOND, condition=CONDITIONS[0])
    np.testing.assert_allclose((vectors[0] * vectors[1]).sum(1), expected, atol=1e-5)
    assert json.loads((tmp_path / "inbedder.json").read_text())["template"] == template


@pytest.mark.parametrize("template", ["{instruction}: {input}", "{input} {instruction}"])
def test_inbedder_loads_the_plain_bi_encoder(make_model, tmp_path, template):
    pytest.importorskip("inbedder.backbones.embedding", reason="that backbone loads folders of sentence-transformers")
    from inbedder import InBedder

    model = make_encoder(make_model, Encoding(template=template))
    model.save(tmp_path)
    embedder = InBedder(tmp_path)
    vectors = [embedder.encode(texts, CONDITIONS, normalize_embeddings=True) for texts in (FIRST, SECOND)]
    expected = model.similarity(FIRST, SECOND, condition=CONDITIONS)
    np.testing.assert_allclose((vectors[0] * vectors[1]).sum(1), expected, atol=1e-5)
