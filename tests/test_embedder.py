import json
import re
import shutil

import numpy as np
import pytest

from inbedder import InBedder
from inbedder.backbones.confidence import ScoredAnswer
from inbedder.errors import InputError, ModelError, TemplateError
from inbedder.options import Reencoding
from inbedder.vectors.precision import PRECISIONS, quantize_vectors
from inbedder.vectors.vectors import normalize_vectors
from tests.conftest import TEXTS, assert_close


@pytest.fixture(scope="module")
def model(make_model):
    return InBedder(make_model("opt"))


def test_one_string_gives_one_vector_and_a_list_gives_rows(model):
    assert model.encode("a", "What?").shape == (model.dimension,)
    assert model.encode(["a"], "What?").shape == (1, model.dimension)
    assert model.encode([], "What?").shape == (0, model.dimension)
    assert model.encode(TEXTS, "What?").dtype == np.float32


def test_vectors_are_cut_before_they_are_normalized(model):
    full_vectors = model.encode(TEXTS, "What?")
    short = model.replace(truncate_dim=8)
    assert short.dimension == short.get_sentence_embedding_dimension() == 8
    assert_close(short.encode(TEXTS, "What?"), full_vectors[:, :8])
    assert_close(short.encode(TEXTS, "What?", normalize_embeddings=True), normalize_vectors(full_vectors[:, :8]))
    assert_close(short.encode_many(TEXTS, ["What?", "Why?"])[0], full_vectors[:, :8])
    assert short.encode([], "What?").shape == (0, 8) and short.encode_many([], ["What?", "Why?"]).shape == (2, 0, 8)
    assert short.nearest_words(short.encode(TEXTS, "What?")) == [[] for _ in TEXTS]
    for call in (model, short):  # an argument overrides the option
        assert_close(call.encode(TEXTS, "What?", truncate_dim=12), full_vectors[:, :12])
        assert_close(call.encode_many(TEXTS, ["What?"], truncate_dim=12)[0], full_vectors[:, :12])


def test_a_length_above_that_of_the_vectors_is_refused(model, make_model):
    message = f"truncate_dim={model.dimension + 1}, but the vectors have {model.dimension} dimensions"
    with pytest.raises(InputError, match=message):
        InBedder(make_model("opt"), truncate_dim=model.dimension + 1)
    with pytest.raises(InputError, match=message):
        model.encode("a", "What?", truncate_dim=model.dimension + 1)


def test_the_vectors_of_two_models_are_not_cut(make_model):
    pair = InBedder(make_model("bert"), beside=make_model("roberta"))
    for call in (lambda: pair.replace(truncate_dim=8), lambda: pair.encode("a", "What?", truncate_dim=8)):
        with pytest.raises(InputError, match=r"truncate_dim cannot cut .* load the model with beside='none'"):
            call()
    assert pair.replace(truncate_dim=8, beside="none").encode("a", "What?").shape == (8,)


def test_the_vectors_of_the_base_encoder_are_cut_too(make_model, tmp_path):
    folder = shutil.copytree(make_model("bert"), tmp_path / "based")
    (folder / "inbedder.json").write_text(json.dumps({"base_encoder": make_model("headless-bert"), "normalize": True}))
    based, short = InBedder(folder), InBedder(folder, truncate_dim=8)
    for instruction in (None, "What?"):
        assert_close(short.encode(TEXTS, instruction), normalize_vectors(based.encode(TEXTS, instruction)[:, :8]))


def test_a_length_without_training_is_reported_once(make_model, tmp_path, caplog):
    folder = shutil.copytree(make_model("bert"), tmp_path / "nested")
    (folder / "inbedder.json").write_text(json.dumps({"matryoshka_dims": [8, 16, 32]}))
    model = InBedder(folder, truncate_dim=16)
    assert not caplog.records
    for _ in range(2):
        assert model.encode("a", "What?", truncate_dim=9).shape == (9,)
    assert [record.getMessage() for record in caplog.records] == [
        f"{folder} was trained for vectors of 8, 16, 32 numbers, not for truncate_dim=9."
    ]


@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_text_has_the_same_bits_alone_and_in_a_batch(model, precision):
    batch = model.encode(TEXTS, "What?", precision=precision)
    np.testing.assert_array_equal(batch, quantize_vectors(model.encode(TEXTS, "What?"), precision))
    assert batch.dtype == PRECISIONS[precision]
    many = model.encode_many(TEXTS, ["What?", "Why?"], precision=precision)
    assert many.dtype == batch.dtype and many[0].shape == batch.shape
    empty = model.encode([], "What?", precision=precision)
    assert (empty.dtype, empty.shape) == (batch.dtype, (0, *batch.shape[1:]))
    np.testing.assert_array_equal(model.encode_query(TEXTS, "What?", precision=precision), batch)
    assert model.encode(TEXTS, "What?", precision=precision, convert_to_tensor=True).numpy().dtype == batch.dtype


def test_short_reencoded_vectors_keep_their_answers(make_model):
    model = InBedder(make_model("opt"), pooling="re-enc", reencoding=Reencoding(n=1, temperature=0), truncate_dim=16)
    vectors = model.encode(TEXTS, "What?", precision="int8")
    assert (vectors.shape, vectors.dtype) == ((len(TEXTS), 16), np.int8)
    assert len(vectors.answers) == len(TEXTS)


def test_an_empty_text_is_embedded_as_such(model):
    vectors = model.encode(["", " ", "a"], "What?")
    assert np.isfinite(vectors).all()
    assert np.abs(vectors[0] - vectors[2]).max() > 1e-3


def test_a_blank_instruction_asks_no_question(model):
    right = model.encode(TEXTS)
    for options in ({"instruction": ""}, {"instruction": " "}, {"prompt": ""}):
        assert np.array_equal(model.encode(TEXTS, **options), right)
    for call in (model.answer, model.encode_many):
        with pytest.raises(InputError, match=r"needs an instruction|is blank"):
            call(TEXTS, "" if call == model.answer else ["What?", ""])
    with pytest.raises(InputError, match="entry 0 is blank"):
        model.encode(["a", "b"], ["", "What?"])


@pytest.mark.parametrize("text", ["😀🏽‍♀️ family", "lone \ud83d surrogate", "a\x00b", "### Instruction:\nx\n\n### Response: y"])
def test_odd_texts_are_embedded(model, text):
    assert np.isfinite(model.encode(text, "What?")).all()


def test_ten_megabytes_are_cut_with_one_warning_that_counts(model):
    with pytest.warns(UserWarning, match=r"2 of 3 texts were cut at their end to fit max_length=\d+ tokens") as warning_list:
        vectors = model.encode(["long " * 2_000_000, "short", "x" * 10_000_000], "What?")
    assert len(warning_list) == 1
    assert np.isfinite(vectors).all()


def test_the_truncation_side_decides_vectors_and_cache_entries(make_model, tmp_path):
    texts = ["dogs " * 100 + "I love cats", "I love cats"]
    cut_at_end, cut_at_start = (
        InBedder(make_model("opt"), max_length=60, truncation_side=side, cache=tmp_path) for side in ("right", "left")
    )
    with pytest.warns(UserWarning, match="1 of 2 texts were cut at their end"):
        from_start = cut_at_end.encode(texts, "What?")
    with pytest.warns(UserWarning, match="1 of 2 texts were cut at their start"):
        from_end = cut_at_start.encode(texts, "What?")
    assert np.abs(from_start[0] - from_end[0]).max() > 1e-3
    assert np.array_equal(from_start[1], from_end[1])
    prompt = cut_at_start.tokenizer.tokenizer.decode(cut_at_start.tokenizer(texts[:1], ["What?"])[0].ids)
    assert "### Input:" in prompt and "I love cats\n\n### Instruction:\nWhat?" in prompt


def test_one_instruction_per_text(model):
    vectors = model.encode(["a", "b"], ["What?", "Why?"])
    assert np.abs(vectors[1] - model.encode("b", "Why?")).max() < 1e-5


def test_encode_many_stacks_the_instructions(model):
    vectors = model.encode_many(TEXTS, ["What?", "Why?"], normalize_embeddings=True)
    assert vectors.shape == (2, len(TEXTS), model.dimension)
    assert np.allclose(vectors[1], model.encode(TEXTS, "Why?", normalize_embeddings=True), atol=1e-5)
    assert np.allclose(np.linalg.norm(vectors, axis=-1), 1, atol=1e-5)


@pytest.mark.parametrize("bad", [float("nan"), None, 3, b"bytes"])
def test_an_entry_that_is_not_a_text_is_reported(model, bad):
    with pytest.raises(InputError, match=r"texts: entry 1 is .*not a string"):
        model.encode(["fine", bad], "What?")


@pytest.mark.parametrize("kind", [list, tuple])
def test_pairs_of_instructor_are_answered_with_the_call_to_type(model, kind):
    pairs = [kind(["What is it?", "a"]), kind(["Why?", "b"])]
    with pytest.raises(InputError, match=r"texts: entry 0 is a pair, .'What is it\?', 'a'.\. Pass") as error:
        model.encode(pairs)
    call = str(error.value).partition("two arguments: ")[2].removesuffix(".")
    vectors = eval(call, {"model": model, "pairs": pairs})
    assert np.array_equal(vectors, model.encode(["a", "b"], ["What is it?", "Why?"]))


@pytest.mark.parametrize("bad", [None, b"bytes", {"a": 1}])
def test_texts_must_be_a_list_of_strings(model, bad):
    with pytest.raises(InputError, match=r"texts (must be a list|is a dict)"):
        model.encode(bad, "What?")


def test_instructions_and_texts_must_match_in_number(model):
    with pytest.raises(InputError, match="3 texts but 2 instructions"):
        model.encode(["a", "b", "c"], ["What?", "Why?"])
    with pytest.raises(InputError, match="instructions must be a list"):
        model.encode_many(["a"], "What?")


def test_an_unknown_named_instruction_is_refused(model):
    with pytest.raises(TemplateError, match="@topic"):
        model.encode("a", "@nope")


NAN, ENDLESS = float("nan"), float("inf")


@pytest.mark.parametrize(
    "options",
    [
        *({"n": n} for n in (0, 1.5, True, "2")),
        *({"temperature": temperature} for temperature in (-1.0, NAN, ENDLESS, "1", True)),
        *({"temperature": 1.0, "top_p": top_p} for top_p in (0.0, 1.5, NAN)),
        *({"temperature": 1.0, "seed": seed} for seed in (-1, 2**32, 0.5, "0")),
        *({"min_confidence": confidence} for confidence in (-0.1, 1.1, NAN, "1", True)),
        *({"batch_size": size} for size in (0, -1, 1.5, "3", True, None)),
    ],
    ids=str,
)
def test_invalid_options_are_refused_before_the_model_runs(model, monkeypatch, options):
    monkeypatch.setattr(model.backbone, "answer", None)
    with pytest.raises(InputError, match=rf"{[*options][-1]}.* not |top_p <= 1|temperature >= 0"):
        model.answer("a", "What?", **options)


def test_integers_of_numpy_are_accepted(model):
    answers = model.answer(["a", "b"], "What?", n=np.int64(2), temperature=1.0, seed=np.uint32(3), batch_size=np.int32(1))
    assert answers == model.answer(["a", "b"], "What?", n=2, temperature=1.0, seed=3)


@pytest.mark.parametrize("bad", [{"max_length": 1.5}, {"max_length": "64"}, {"max_new_tokens": True}, {"layer": "1"}], ids=str)
def test_invalid_settings_of_a_model_are_refused(make_model, bad):
    with pytest.raises(InputError, match=f"{next(iter(bad))} must be a whole number"):
        InBedder(make_model("opt"), **bad)


def test_an_answer_as_long_as_the_model_is_refused(make_model):
    with pytest.raises(InputError, match=r"max_new_tokens=256 leaves no room for a prompt: the model takes 256 positions"):
        InBedder(make_model("llama"), max_new_tokens=256)


def test_a_column_of_a_table_is_a_list_of_texts(model):
    pandas, pyarrow = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
    expected = model.encode(TEXTS, "What?")
    columns = [pandas.Series(TEXTS, index=range(9, 2, -1)), pyarrow.array(TEXTS), pyarrow.chunked_array([TEXTS[:3], TEXTS[3:]])]
    for column in (*columns, np.array(TEXTS), np.array(TEXTS, dtype=object), tuple(TEXTS), iter(TEXTS)):
        np.testing.assert_array_equal(model.encode(column, "What?"), expected)
    questions = pandas.Series([f"What {i}?" for i in range(len(TEXTS))])
    np.testing.assert_array_equal(model.encode(TEXTS, questions), model.encode(TEXTS, list(questions)))


def test_invalid_texts_are_refused_before_the_model_runs(model, monkeypatch):
    pandas, pyarrow = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
    monkeypatch.setattr(model.backbone, "embed", None)
    table = {"text": ["a", "b"], "stars": [1, 2]}
    for bad, message in [
        (pandas.DataFrame(table), "texts is a DataFrame of ['text', 'stars']. Pass one of its columns."),
        (pyarrow.table(table), "texts is a Table of ['text', 'stars']. Pass one of its columns."),
        (table, "texts is a dict of ['text', 'stars']. Pass one of its columns."),
        ({"a", "b"}, "texts is a set, which has no order. Pass a list."),
        (table.keys(), "texts is a dict_keys, which has no order. Pass a list."),
        (np.array([["a"], ["b"]]), "texts has 2 dimensions. Pass one of its columns."),
        (pandas.Series(["a", NAN]), "texts: entry 1 is nan (float), not a string."),
        (pyarrow.array(["a", None]), "texts: entry 1 is None (NoneType), not a string."),
        (5, "texts must be a list, not 5 (int)."),
    ]:
        with pytest.raises(InputError, match=re.escape(message)):
            model.encode(bad, "What?")
    for bad in ({"What?": 1}, {"What?", "Why?"}):
        with pytest.raises(InputError, match=r"instructions is a (dict|set)"):
            model.encode(["a", "b"], bad)
        with pytest.raises(InputError, match=r"instructions is a (dict|set)"):
            model.encode_many(["a", "b"], bad)
    with pytest.raises(InputError, match="filter_words must be a list, not 'cats'"):
        model.encode(["a"], "What?", filter_words="cats")
    with pytest.raises(InputError, match="filter_words: entry 0 is 3"):
        model.encode(["a"], "What?", filter_words=[3])


def test_nan_raises_an_error(model, monkeypatch):
    embed = model.backbone.embed
    monkeypatch.setattr(model.backbone, "embed", lambda *args: embed(*args) * float("nan"))
    with pytest.raises(ModelError, match=r"NaN or infinite values for 2 of 2 texts \(first: text 0\)"):
        model.encode(["a", "b"], "What?")


def test_similarity_is_the_cosine_matrix():
    similarity = InBedder.similarity([[1, 0], [0, 2]], [[3, 0], [1, 1], [0, 0]])
    assert similarity == pytest.approx(np.array([[1, 0.70710678, 0], [0, 0.70710678, 0]]))
    assert InBedder.similarity([1, 0], [0, 1]).shape == (1, 1)


def test_the_authors_pooling_name_sets_the_layer(make_model):
    model = InBedder(make_model("opt"), pooling="fst_gen_layer_1")
    assert (model.pooling, model.layer) == ("1st-gen", 1)


def test_a_progress_bar_is_shown_on_request(model, capfd):
    model.encode(TEXTS, "What?", show_progress_bar=True)
    assert "Embedding" in capfd.readouterr().err
    model.encode(TEXTS, "What?")
    assert capfd.readouterr().err == ""


def test_batch_size_must_be_positive(model):
    with pytest.raises(InputError, match="batch_size must be a whole number of at least 1"):
        model.encode("a", "What?", batch_size=0)


def test_the_truncation_warning_points_at_the_callers_line(model):
    with pytest.warns(UserWarning, match="texts were cut") as warning_list:
        model.encode("long " * 5000, "What?")
    assert warning_list[0].filename == __file__


def test_filter_words_are_tokenized_with_and_without_a_space(model):
    ids = model.tokenizer.find_token_ids(["cats"])
    tokenizer = model.backbone.tokenizer
    assert set(ids) == {
        token_id for form in ("cats", " cats") for token_id in tokenizer(form, add_special_tokens=False)["input_ids"]
    }
    assert model.tokenizer.find_token_ids([]) == []


def test_the_revision_follows_the_weights(make_model, model):
    assert model.revision == InBedder(make_model("opt"), pooling="avg-ppt").revision
    assert model.revision != InBedder(make_model("gpt2")).revision


def test_the_prompt_is_what_the_model_reads(model):
    assert model.prompt("a", "Why?") == "### Input:\na\n\n### Instruction:\nWhy?\n\n### Response:"
    assert "What is this text about?" in model.prompt("a")


def test_the_question_vector_is_subtracted(make_model):
    plain, subtracting = (InBedder(make_model("opt"), subtract_instruction=value) for value in (None, True))
    for instruction in ("What?", "Why?"):
        expected = plain.encode(TEXTS, instruction) - plain.encode("", instruction)
        assert np.abs(subtracting.encode(TEXTS, instruction) - expected).max() < 1e-5
    expected = plain.encode_many(TEXTS, ["What?", "Why?"]) - plain.encode_many("", ["What?", "Why?"])[:, None]
    assert np.abs(subtracting.encode_many(TEXTS, ["What?", "Why?"]) - expected).max() < 1e-5
    instructions = ["What?", "Why?"] * (len(TEXTS) // 2) + ["What?"]
    assert (
        np.abs(
            subtracting.encode(TEXTS, instructions)
            - (plain.encode(TEXTS, instructions) - plain.encode([""] * len(instructions), instructions))
        ).max()
        < 1e-5
    )
    assert subtracting.encode([], "What?").shape == (0, subtracting.dimension)


def test_without_an_instruction_nothing_is_subtracted(make_model):
    plain, subtracting = (InBedder(make_model("opt"), subtract_instruction=value) for value in (None, True))
    assert (subtracting.encode(TEXTS) == plain.encode(TEXTS)).all()
    instructions = [("@generic", "What?")[row % 2] for row in range(len(TEXTS))]
    expected = plain.encode(TEXTS, instructions)
    expected[1::2] -= plain.encode("", "What?")
    assert np.abs(subtracting.encode(TEXTS, instructions) - expected).max() < 1e-5


def test_the_question_vector_is_computed_once_per_pooling(make_model, monkeypatch):
    model = InBedder(make_model("opt"), subtract_instruction=True)
    counts, embed = [], model.backbone.embed
    monkeypatch.setattr(
        model.backbone, "embed", lambda prompts, *arguments: counts.append(len(prompts)) or embed(prompts, *arguments)
    )
    model.encode("a", "What?")
    model.encode("b", "What?")
    assert sum(counts) == 3
    vector = model.replace(pooling="avg-ppt").encode("a", "What?")
    plain = InBedder(make_model("opt"), pooling="avg-ppt")
    assert np.abs(vector - (plain.encode("a", "What?") - plain.encode("", "What?"))).max() < 1e-5


def test_the_cache_is_independent_of_subtract_instruction(make_model, tmp_path):
    cached_vectors = [
        InBedder(make_model("opt"), cache=tmp_path, subtract_instruction=value).encode(TEXTS, "What?")
        for value in (False, True, False)
    ]
    vectors = [InBedder(make_model("opt"), subtract_instruction=value).encode(TEXTS, "What?") for value in (False, True)]
    assert (cached_vectors[0] == vectors[0]).all()
    assert (cached_vectors[2] == vectors[0]).all()
    assert np.abs(cached_vectors[1] - vectors[1]).max() < 1e-6


def test_settings_of_a_model_folder_are_defaults(make_model, tmp_path):
    shutil.copytree(make_model("opt"), tmp_path / "m")
    (tmp_path / "m" / "inbedder.json").write_text(json.dumps({"subtract_instruction": True, "max_new_tokens": 7}))
    model = InBedder(tmp_path / "m")
    assert (model.options.encoding.subtract_instruction, model.options.encoding.max_new_tokens) == (True, 7)
    assert not InBedder(tmp_path / "m", subtract_instruction=False).options.encoding.subtract_instruction
    assert InBedder(tmp_path / "m", max_new_tokens=2).options.encoding.max_new_tokens == 2


def test_the_minimum_confidence_is_that_of_call_option_or_settings(make_model, tmp_path):
    shutil.copytree(make_model("opt"), tmp_path / "m")
    all_answers = InBedder(tmp_path / "m").answer(TEXTS, "What?")
    hidden = [""] * len(TEXTS)
    (tmp_path / "m" / "inbedder.json").write_text(json.dumps({"min_confidence": 1}))
    model = InBedder(tmp_path / "m")
    assert all(all_answers) and model.answer(TEXTS, "What?") == hidden
    assert model.answer(TEXTS, "What?", min_confidence=0) == all_answers
    assert model.replace(min_confidence=0).answer(TEXTS, "What?") == all_answers
    assert model.replace(min_confidence=0).answer(TEXTS, "What?", min_confidence=1.0) == hidden
    assert model.answer(TEXTS, "What?", n=2, temperature=1.0) == [["", ""]] * len(TEXTS)
    assert InBedder(tmp_path / "m", min_confidence=0).options.encoding.min_confidence == 0
    assert InBedder(make_model("opt")).options.encoding.min_confidence == 0
    with pytest.raises(InputError, match=r"min_confidence must be from 0 to 1, not 2\.0"):
        InBedder(make_model("opt"), min_confidence=2)


@pytest.mark.parametrize("value", [-0.1, 1.5, "0.5", True, NAN])
def test_a_damaged_minimum_confidence_in_the_settings_is_refused(make_model, tmp_path, value):
    shutil.copytree(make_model("opt"), tmp_path / "m")
    (tmp_path / "m" / "inbedder.json").write_text(json.dumps({"min_confidence": value}))
    with pytest.raises(ModelError, match=r"min_confidence in .* must be a number from 0 to 1"):
        InBedder(tmp_path / "m")


def test_the_answer_none_is_empty_above_a_threshold_of_zero(model, monkeypatch):
    scored = [[ScoredAnswer("None.", 0.9)], [ScoredAnswer("cats", 0.9)]]
    monkeypatch.setattr(model.backbone, "answer", lambda prompts, _sampling: scored[: len(prompts)])
    texts = ["I love cats too", "I love"]
    assert sorted(model.answer(texts, "What?")) == ["None.", "cats"]
    assert sorted(model.answer(texts, "What?", min_confidence=0.1)) == ["", "cats"]


@pytest.fixture
def with_base_encoder(make_model, tmp_path):
    """A masked LM whose settings name a base encoder for texts without an instruction."""
    shutil.copytree(make_model("bert"), tmp_path / "m")
    (tmp_path / "m" / "inbedder.json").write_text(json.dumps({"base_encoder": make_model("headless-bert")}))
    return InBedder(tmp_path / "m")


def test_without_an_instruction_the_base_encoder_reads_the_text(with_base_encoder, make_model):
    model, base = with_base_encoder, InBedder(make_model("headless-bert"), backbone="embedding")
    expected = base.encode(TEXTS)
    np.testing.assert_array_equal(model.encode(TEXTS), expected)
    np.testing.assert_array_equal(model.encode_query(TEXTS), expected)
    assert_close(model.encode_document(TEXTS[0]), expected[0])
    assert_close(model.encode(TEXTS, normalize_embeddings=True), base.encode(TEXTS, normalize_embeddings=True))


def test_under_an_instruction_the_base_encoder_is_not_loaded(with_base_encoder, make_model):
    model, plain = with_base_encoder, InBedder(make_model("bert"))
    np.testing.assert_array_equal(model.encode(TEXTS, "@generic"), plain.encode(TEXTS))
    np.testing.assert_array_equal(model.encode(TEXTS, "What?"), plain.encode(TEXTS, "What?"))
    for pooling, layer in (("avg-all", -1), ("avg-gen", 1)):
        expected = plain.replace(pooling=pooling, layer=layer).encode(TEXTS, "What?")
        np.testing.assert_array_equal(model.replace(pooling=pooling, layer=layer).encode(TEXTS, "What?"), expected)
    assert model.answer(TEXTS, "What?") == plain.answer(TEXTS, "What?")
    assert model.pipeline.base.loaded is None


def test_without_a_question_every_pooling_gives_the_same_vector(with_base_encoder):
    model = with_base_encoder
    for change in ({"pooling": "avg-all"}, {"layer": 1}, {"mask_length": 5}, {"subtract_instruction": True}):
        np.testing.assert_array_equal(model.replace(**change).encode(TEXTS), model.encode(TEXTS))
    with pytest.raises(InputError, match="without an instruction there is no answer"):
        model.encode(TEXTS, filter_words=["the"])


def test_an_answer_needs_a_question(model):
    with pytest.raises(InputError, match='Pass a question, or "@generic"'):
        model.answer(TEXTS)
    with pytest.raises(InputError, match='Pass a question, or "@generic"'):
        model.encode(TEXTS, None, return_answers=True)


@pytest.mark.parametrize("pooling", [None, "avg-gen", "avg-ppt", "re-enc"])
@pytest.mark.parametrize("family", ["opt", "llama", "bert", "roberta", "t5"])
def test_vectors_come_with_their_answers(make_model, family, pooling):
    model = InBedder(make_model(family), **({} if pooling is None else {"pooling": pooling}))
    vectors, answers = model.encode(TEXTS, "What?", return_answers=True)
    assert_close(vectors, model.encode(TEXTS, "What?"))
    assert answers == model.answer(TEXTS, "What?")
    vector, (answer,) = model.encode(TEXTS[0], "What?", return_answers=True)
    assert_close(vector, vectors[0])
    assert answer == answers[0]


@pytest.mark.parametrize(("family", "layer"), [("opt", -1), ("llama", 1), ("bert", -1)])
def test_vectors_and_answers_are_read_in_one_pass(make_model, monkeypatch, family, layer):
    model = InBedder(make_model(family), layer=layer)
    expected = model.encode(TEXTS, "What?"), model.answer(TEXTS, "What?")
    for method in ("embed", "answer"):
        monkeypatch.delattr(type(model.backbone), method)
    vectors, answers = model.encode(TEXTS, "What?", return_answers=True)
    assert_close(vectors, expected[0])
    assert answers == expected[1]


def test_one_pass_caches_vectors_and_answers(make_model, monkeypatch, tmp_path):
    model = InBedder(make_model("bert"), cache=tmp_path / "kept")
    model.encode(TEXTS[:1], "What?")  # only the vector is known
    for method in ("embed", "answer"):
        monkeypatch.delattr(type(model.backbone), method)
    vectors, answers = model.encode(TEXTS, "What?", return_answers=True)
    np.testing.assert_array_equal(model.encode(TEXTS, "What?"), vectors)
    assert model.answer(TEXTS, "What?") == answers
    monkeypatch.delattr(type(model.backbone), "embed_and_answer")
    assert model.encode(TEXTS, "What?", return_answers=True)[1] == answers


def test_vectors_with_answers_take_the_formats_and_the_cache(make_model, tmp_path):
    model = InBedder(make_model("bert"), cache=tmp_path / "kept", min_confidence=0.5)
    for _ in range(2):
        vectors, answers = model.encode(TEXTS, "What?", return_answers=True, precision="int8", normalize_embeddings=True)
        np.testing.assert_array_equal(vectors, model.encode(TEXTS, "What?", precision="int8", normalize_embeddings=True))
        assert answers == model.answer(TEXTS, "What?")
    assert model.encode([], "What?", return_answers=True)[1] == []
    with pytest.raises(InputError, match="return_answers takes no other keywords"):
        model.encode(TEXTS, "What?", return_answers=True, filter_words=["the"])


def test_vectors_of_the_base_encoder_are_cached_under_its_name(make_model, tmp_path, with_base_encoder):
    model = InBedder(with_base_encoder.name, cache=tmp_path / "kept")
    vectors = model.encode(TEXTS)
    assert [space["model"] for space in model.pipeline.store.info()] == [make_model("headless-bert")]
    np.testing.assert_array_equal(InBedder(with_base_encoder.name, cache=tmp_path / "kept").encode(TEXTS), vectors)
