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
from inbedder.vectors import compute_row_cosines

FIRST = ["I love cats", "The delivery was late and the box was crushed", "I love dogs"]
SECOND = ["I love dogs", "the lamp inside still works fine", "Do they love cats?"]
ASKED = ["What animals do they love", "What product is it", "love"]
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


def name_of(encoding):
    return "-".join(
        str(one) for one in (encoding.kind, encoding.input, encoding.pooler, encoding.transform, encoding.combine, encoding.reads)
    )


def encoder(make_model, encoding, family="bert"):
    torch.manual_seed(0)
    return ConditionalEncoder.of_base(make_model(family), encoding)


@pytest.mark.parametrize("encoding", SETTINGS, ids=name_of)
def test_batches_give_what_single_pairs_give(make_model, encoding):
    model = encoder(make_model, encoding)
    together = model.similarity(FIRST, SECOND, condition=ASKED)
    alone = [model.similarity(*one[:2], condition=one[2]) for one in zip(FIRST, SECOND, ASKED, strict=True)]
    assert together.shape == (3,) and together.dtype == np.float32 and isinstance(alone[0], float)
    np.testing.assert_allclose(together, alone, atol=1e-5)
    np.testing.assert_allclose(model.similarity(FIRST, SECOND, condition=ASKED, batch_size=1), together, atol=1e-5)
    columns = pd.DataFrame({"sentence1": FIRST, "sentence2": SECOND}, index=[5, 6, 7])
    np.testing.assert_array_equal(model.similarity(columns.sentence1, columns.sentence2, condition=np.array(ASKED)), together)
    assert model.similarity([], [], condition="love").shape == (0,)


@pytest.mark.parametrize("encoding", SETTINGS, ids=name_of)
def test_cosines_are_symmetric_in_the_sentences_and_the_cross_encoder_is_not(make_model, encoding):
    model = encoder(make_model, encoding)
    there, back = model.similarity(FIRST, SECOND, condition=ASKED), model.similarity(SECOND, FIRST, condition=ASKED)
    if encoding.kind == "cross" and encoding.reads != "condition":
        assert np.abs(there - back).max() > 1e-3
    else:
        np.testing.assert_allclose(there, back, atol=1e-6)
    if encoding.kind != "cross":
        assert np.abs(there).max() <= 1 + 1e-6
        np.testing.assert_allclose(model.similarity(FIRST, FIRST, condition=ASKED), 1, atol=1e-5)


@pytest.mark.parametrize("encoding", SETTINGS, ids=name_of)
def test_the_condition_counts_unless_it_is_not_read(make_model, encoding):
    model = encoder(make_model, encoding)
    scores = [model.similarity(FIRST, SECOND, condition=one) for one in ASKED[:2]]
    assert (np.abs(scores[0] - scores[1]).max() > 1e-4) == (encoding.reads != "sentences")


@pytest.mark.parametrize("encoding", SETTINGS, ids=name_of)
def test_what_is_saved_is_loaded_again_from_safetensors_and_json(make_model, encoding, tmp_path):
    model = encoder(make_model, encoding)
    model.save(tmp_path, {"base": "here"})
    again = ConditionalEncoder.load(tmp_path)
    assert again.encoding == encoding and type(again) is type(model)
    np.testing.assert_allclose(
        again.similarity(FIRST, SECOND, condition=ASKED), model.similarity(FIRST, SECOND, condition=ASKED), atol=1e-6
    )
    assert {path.suffix for path in tmp_path.rglob("*") if path.is_file()} == {".safetensors", ".json"}
    assert (tmp_path / "modules.json").exists() == (tmp_path / "config.json").exists() == encoding.is_plain


@pytest.mark.parametrize("pooler", [pooler for pooler in get_args(Pooler) if pooler not in ("spans", "masks")])
def test_poolers_equal_the_states_that_transformers_gives(make_model, pooler):
    model = encoder(make_model, Encoding(pooler=pooler)).eval()
    rows, _ = model.read(["I love cats"], ["I love dogs"], ["animals"])
    ids = torch.tensor(np.array([rows[0][0]]), dtype=torch.long)
    plain = AutoModel.from_pretrained(make_model("bert"), dtype=torch.float32).eval()
    model.backbone.pooler.load_state_dict(plain.pooler.state_dict())  # random where a checkpoint has none
    with torch.no_grad():
        out = plain(ids, output_hidden_states=True)
        expected = {
            "pooler": out.pooler_output[0],
            "cls": out.last_hidden_state[0, 0],
            "cls_before_pooler": out.last_hidden_state[0, 0],
            "avg": out.last_hidden_state[0].mean(0),
            "mean": out.last_hidden_state[0].mean(0),
            "last": out.last_hidden_state[0, -1],
            "avg_first_last": ((out.hidden_states[0] + out.hidden_states[-1]) / 2)[0].mean(0),
            "avg_top2": ((out.hidden_states[-2] + out.hidden_states[-1]) / 2)[0].mean(0),
        }[pooler]
        padded = torch.nn.functional.pad(ids, (0, 3))
        found = model._pooled(padded, torch.tensor([[True] * ids.shape[1] + [False] * 3]))
    torch.testing.assert_close(found[0], expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_the_pooler_spans_begins_as_the_cosine_of_the_two_sentences_in_one_input(make_model, family):
    model = encoder(make_model, Encoding(kind="cross", pooler="spans", max_length=64), family).eval()
    ((ids,),), _ = model.read(["I love cats"], ["I love dogs too"], ["animals"])
    ends = np.flatnonzero(ids == model.tokenizer.sep_token_id)
    with torch.no_grad():
        states = model.backbone(torch.tensor(ids[None], dtype=torch.long)).last_hidden_state[0]
    first, second = states[1 : ends[0]].mean(0), states[ends[0] + 1 : ends[1]].mean(0)
    expected = float(torch.nn.functional.cosine_similarity(first, second, dim=0))
    assert model.similarity("I love cats", "I love dogs too", condition="animals") == pytest.approx(expected, abs=1e-5)
    assert np.isfinite(model.similarity("", "", condition="animals"))


@pytest.mark.parametrize("settings", [{}, {"kind": "tri"}, {"kind": "cross", "reads": "condition"}])
def test_the_pooler_spans_is_refused_where_no_two_sentences_stand_in_one_input(make_model, settings):
    with pytest.raises(ModelError, match="The pooler spans compares two sentences in one input"):
        encoder(make_model, Encoding(pooler="spans", **settings))


def test_each_encoder_reads_its_own_inputs(make_model):
    def read(**settings):
        model = encoder(make_model, Encoding(**settings))
        (parts,), _ = model.read(["I love cats"], ["I love dogs"], ["animals"])
        return [model.tokenizer.decode(ids).lower() for ids in parts]

    assert read(kind="cross") == ["[CLS] i love cats [SEP] i love dogs [SEP] animals [SEP]".lower()]
    assert read(kind="cross", reads="condition") == ["[cls] animals [sep]"]
    assert read(kind="cross", reads="sentences") == ["[cls] i love cats [sep] i love dogs [sep]"]
    assert [one.replace(" : ", ": ") for one in read()] == [
        "[cls] animals: i love cats [sep]",
        "[cls] animals: i love dogs [sep]",
    ]
    assert read(reads="sentences") == ["[cls] i love cats [sep]", "[cls] i love dogs [sep]"]
    assert read(kind="tri") == ["[cls] i love cats [sep]", "[cls] i love dogs [sep]", "[cls] animals [sep]"]


@pytest.mark.parametrize("family", ["bert", "roberta", "xlm-roberta"])
def test_the_pair_input_has_the_ids_of_the_tokenizers_own_pairs_as_the_authors_code_reads_them(make_model, family):
    model = encoder(make_model, Encoding(input="pair", pooler="cls", max_length=64), family)
    rows, cut = model.read(FIRST, SECOND, ASKED)
    for side, sentences in enumerate((FIRST, SECOND)):
        expected = model.tokenizer(sentences, ASKED)["input_ids"]
        assert [parts[side].tolist() for parts in rows] == expected
    assert cut == 0
    ((left, _),), _ = model.read(["I love cats"], ["I love dogs"], ["animals"])
    assert (left == model.tokenizer.sep_token_id).sum() == (2 if family == "bert" else 3)


def test_a_separator_written_in_a_sentence_of_a_pair_is_plain_characters(make_model):
    model = encoder(make_model, Encoding(input="pair"))
    ((left, _),), _ = model.read(["cats [SEP] dogs"], ["dogs"], ["animals"])
    assert (left == model.tokenizer.sep_token_id).sum() == 2


def test_the_cross_encoder_of_the_paper_is_a_linear_map_of_the_mlp_of_the_first_state(make_model):
    model = encoder(make_model, Encoding(kind="cross", pooler="cls", transform=True)).eval()
    ((ids,),), _ = model.read(["I love cats"], ["I love dogs"], ["animals"])
    with torch.no_grad():
        state = model.backbone(torch.tensor(ids[None], dtype=torch.long)).last_hidden_state[0, 0]
        hidden = torch.nn.functional.gelu(model.transform[1].weight @ state + model.transform[1].bias)
        expected = model.scalar[1].weight[0] @ hidden + model.scalar[1].bias[0]
    assert model.similarity("I love cats", "I love dogs", condition="animals") == pytest.approx(expected.item(), abs=1e-5)


def test_the_tri_encoders_hadamard_product_is_the_equation(make_model):
    model = encoder(make_model, Encoding(kind="tri")).eval()
    first, second, condition = torch.randn(3, 4, 32).unbind(0)
    weighted = model.condition(condition)
    expected = torch.nn.functional.cosine_similarity(first * weighted, second * weighted)
    torch.testing.assert_close(model.score((first, second, condition)), expected)


@pytest.mark.parametrize(("kind", "how"), [("cross", "template"), ("bi", "template"), ("bi", "pair"), ("tri", "template")])
def test_sentences_are_cut_and_counted_and_conditions_never(make_model, kind, how):
    model = encoder(make_model, Encoding(kind=kind, max_length=16, input=how))
    long = "cats " * 40
    with pytest.warns(TextCutWarning, match="1 of 2 pairs were cut to 16 tokens"):
        model.similarity([long, "cats"], ["dogs", "dogs"], condition="love")
    rows, cut = model.read([long, long], ["dogs " * 40, "dogs"], ["love", "love"])
    assert cut == 2 and max(len(ids) for parts in rows for ids in parts) == 16
    love = model.tokenizer.convert_tokens_to_ids("love")
    assert all(any(love in ids for ids in parts) for parts in rows)
    with pytest.raises(InputError, match=r"(leaves no room|take \d+ tokens)"):
        model.similarity("cats", "dogs", condition=long)


@pytest.mark.parametrize("family", ["roberta", "xlm-roberta", "bert"])
def test_any_bert_like_base_will_do(make_model, family):
    for encoding in (Encoding(kind="cross", max_length=64), Encoding(max_length=64), Encoding(kind="tri", max_length=64)):
        scores = encoder(make_model, encoding, family).similarity(FIRST, SECOND, condition=ASKED)
        assert np.isfinite(scores).all()


def test_the_bundled_base_needs_no_network():
    model = ConditionalEncoder.of_base("all-MiniLM-L6-v2", Encoding(max_length=32))
    near, far = model.similarity(["A cat sleeps"] * 2, ["A kitten naps", "Taxes rose again"], condition="the animal")
    assert near > far + 0.2


def test_a_model_of_this_package_is_a_base_too(tmp_path):
    torch.manual_seed(0)
    model = ConditionalEncoder.of_base("mini", Encoding(max_length=64, template="inbedder"))
    scores = model.similarity("Two cats sleep", "Two dogs run", condition=["The number of animals", "What the animals do"])
    assert scores[0] > scores[1]
    model.save(tmp_path)
    again = ConditionalEncoder.load(tmp_path).similarity("Two cats sleep", "Two dogs run", condition="The number of animals")
    assert again == pytest.approx(scores[0], abs=1e-5)


def test_an_encoder_decoder_is_refused(make_model):
    with pytest.raises(ModelError, match="is neither a BERT-like encoder"):
        load_parts(make_model("t5"))


OF_DECODERS = Encoding(pooler="last", template="inbedder", max_length=128)


@pytest.mark.parametrize("family", ["opt", "llama"])
def test_a_decoder_is_read_where_it_is_about_to_answer(make_model, tmp_path, family):
    model = encoder(make_model, OF_DECODERS, family).eval()
    together = model.similarity(FIRST, SECOND, condition=ASKED)
    embedder = InBedder(make_model(family), pooling="1st-gen", dtype="float32", max_length=128)
    left, right = (embedder.encode(texts, ASKED) for texts in (FIRST, SECOND))
    np.testing.assert_allclose(together, compute_row_cosines(left, right), atol=1e-5)
    np.testing.assert_allclose(model.similarity(FIRST, SECOND, condition=ASKED, batch_size=1), together, atol=1e-5)
    model.save(tmp_path)
    again = ConditionalEncoder.load(tmp_path).similarity(FIRST, SECOND, condition=ASKED)
    np.testing.assert_allclose(again, together, atol=1e-5)


@pytest.mark.parametrize(
    "other", [{"pooler": "mean"}, {"kind": "cross"}, {"kind": "tri"}, {"input": "pair"}, {"reads": "sentences"}]
)
def test_a_decoder_takes_no_input_with_separators(make_model, other):
    with pytest.raises(ModelError, match=r"A decoder has no \[CLS\] and \[SEP\]"):
        encoder(make_model, replace(OF_DECODERS, **other), "opt")


def test_the_pooler_masks_reads_a_masked_model_where_it_answers(make_model, tmp_path):
    model = encoder(make_model, Encoding(pooler="masks", template="inbedder", max_length=128)).eval()
    together = model.similarity(FIRST, SECOND, condition=ASKED)
    embedder = InBedder(make_model("bert"), dtype="float32", max_length=128)
    left, right = (embedder.encode(texts, ASKED) for texts in (FIRST, SECOND))
    np.testing.assert_allclose(together, compute_row_cosines(left, right), atol=1e-5)
    model.save(tmp_path)
    again = ConditionalEncoder.load(tmp_path).similarity(FIRST, SECOND, condition=ASKED, batch_size=1)
    np.testing.assert_allclose(again, together, atol=1e-5)
    written = model.similarity("I love [MASK]", "I love dogs", condition="love")
    assert np.isfinite(written) and written != pytest.approx(model.similarity("I love", "I love dogs", condition="love"))
    with pytest.raises(ModelError, match="The pooler masks reads an answer behind a prompt"):
        encoder(make_model, Encoding(kind="tri", pooler="masks"))


def test_the_last_token_is_found_behind_padding(make_model):
    model = encoder(make_model, Encoding(pooler="last"))
    together = model.similarity(FIRST, SECOND, condition=ASKED)
    np.testing.assert_allclose(model.similarity(FIRST, SECOND, condition=ASKED, batch_size=1), together, atol=1e-5)


def test_what_does_not_fit_is_said(make_model, tmp_path):
    model = encoder(make_model, Encoding())
    with pytest.raises(InputError, match="Give condition="):
        model.similarity("a", "b")
    with pytest.raises(InputError, match="Numbers differ: 2 of sentence1, 1 of sentence2"):
        model.similarity(["a", "b"], ["c"], condition="d")
    with pytest.raises(InputError, match=r"sentence2: entry 1 is None \(NoneType\), not a string"):
        model.similarity(["a", "b"], ["c", None], condition="d")
    for wrong in (None, float("nan"), 3):
        with pytest.raises(InputError, match=r"sentence1 must be a list, not "):
            model.similarity(wrong, ["c"], condition="d")
    with pytest.raises(ModelError, match=r"takes at most 256 tokens; set encoding.max_length=256 or less"):
        encoder(make_model, Encoding(max_length=257))
    with pytest.raises(ModelError, match="holds no conditional encoder"):
        ConditionalEncoder.load(tmp_path)
    with pytest.raises(ModelError, match="Cannot load the model"):
        load_parts(str(tmp_path / "none"))


def test_a_base_without_a_pooler_of_its_own_is_told(make_model):
    backbone, tokenizer = load_parts(make_model("bert"))
    backbone.pooler = None
    kind = type(encoder(make_model, Encoding()))
    with pytest.raises(ModelError, match=r"BertModel has no pooler of its own; set encoding.pooler"):
        kind(backbone, tokenizer, Encoding(pooler="pooler"))


def test_a_head_that_does_not_fit_is_refused(make_model, tmp_path):
    encoder(make_model, Encoding(kind="tri")).save(tmp_path)
    save_file(
        {name: one[:1].clone() for name, one in load_file(tmp_path / "head.safetensors").items()}, tmp_path / "head.safetensors"
    )
    with pytest.raises(ModelError, match=r"holds no conditional encoder \((.|\n)*size mismatch"):
        ConditionalEncoder.load(tmp_path)
    (tmp_path / "head.safetensors").unlink()
    with pytest.raises(ModelError, match=r"head.safetensors does not fit: condition.1.weight"):
        ConditionalEncoder.load(tmp_path)


def test_avg_is_another_name_of_mean(make_model):
    by_name = [encoder(make_model, Encoding(pooler=name)).similarity(FIRST, SECOND, condition=ASKED) for name in ("avg", "mean")]
    np.testing.assert_array_equal(*by_name)
    assert Encoding(pooler="avg").is_plain


@pytest.mark.parametrize("template", ["{instruction}: {input}", "{instruction} {input}"])
def test_the_plain_bi_encoder_is_an_ordinary_folder_of_sentence_transformers(make_model, tmp_path, template):
    from sentence_transformers import SentenceTransformer

    model = encoder(make_model, Encoding(template=template))
    model.save(tmp_path)
    other = SentenceTransformer(str(tmp_path), device="cpu")
    prompt = template.replace("{instruction}", ASKED[0]).removesuffix("{input}")
    vectors = [other.encode(texts, prompt=prompt) for texts in (FIRST, SECOND)]
    np.testing.assert_allclose(np.linalg.norm(vectors[0], axis=1), 1, atol=1e-5)
    expected = model.similarity(FIRST, SECOND, condition=ASKED[0])
    np.testing.assert_allclose((vectors[0] * vectors[1]).sum(1), expected, atol=1e-5)
    assert json.loads((tmp_path / "inbedder.json").read_text())["template"] == template


@pytest.mark.parametrize("template", ["{instruction}: {input}", "{input} {instruction}"])
def test_the_plain_bi_encoder_is_an_inbedder_folder(make_model, tmp_path, template):
    pytest.importorskip("inbedder.backbones.embedding", reason="that backbone loads folders of sentence-transformers")
    from inbedder import InBedder

    model = encoder(make_model, Encoding(template=template))
    model.save(tmp_path)
    embedder = InBedder(tmp_path)
    vectors = [embedder.encode(texts, ASKED, normalize_embeddings=True) for texts in (FIRST, SECOND)]
    expected = model.similarity(FIRST, SECOND, condition=ASKED)
    np.testing.assert_allclose((vectors[0] * vectors[1]).sum(1), expected, atol=1e-5)
