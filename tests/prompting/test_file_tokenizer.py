from pathlib import Path

import pytest
from transformers import AutoTokenizer

from inbedder.models.bases import BASE_OF
from inbedder.models.bundled import find_installed_base
from inbedder.models.install import find_installed_folder
from inbedder.prompting.file_tokenizer import FileTokenizer

STRINGS = ["I love cats!", "", "naïve [MASK] ﬁ </s> <mask>", "日本語 🙂 don't", "x" * 600]


@pytest.fixture(params=["tiny", "mini", "multilingual"])
def folder(request, make_model):
    folders = {"mini": find_installed_base(), "multilingual": find_installed_folder(BASE_OF["multilingual"])}
    folder = Path(make_model("bert")) if request.param == "tiny" else folders[request.param]
    return folder or pytest.skip(f"the base of {request.param} is not installed")


@pytest.mark.parametrize("options", [{}, {"split_special_tokens": True}, {"add_special_tokens": False}])
def test_tokens_are_those_of_transformers(folder, options):
    tokenizer, expected = FileTokenizer(folder)(STRINGS, **options), AutoTokenizer.from_pretrained(folder)(STRINGS, **options)
    assert tokenizer["input_ids"] == expected["input_ids"]
    assert [encoding.offsets for encoding in tokenizer.encodings] == [encoding.offsets for encoding in expected.encodings]


def test_special_tokens_vocabulary_and_texts_are_those_of_transformers(folder):
    tokenizer, expected = FileTokenizer(folder), AutoTokenizer.from_pretrained(folder)
    names = ("is_fast", "name_or_path", "chat_template", "vocab_size", "all_special_tokens", "all_special_ids", "unk_token")
    roles = [f"{role}_token_id" for role in ("bos", "eos", "unk", "sep", "pad", "cls", "mask")]
    for name in (*names, *roles):
        expected_value = getattr(expected, name)
        assert getattr(tokenizer, name) == (str(expected_value) if name == "name_or_path" else expected_value), name
    assert tokenizer.get_vocab() == expected.get_vocab()
    assert len(tokenizer) == len(expected)
    ids = tokenizer(STRINGS)["input_ids"]
    assert ids == expected(STRINGS)["input_ids"]
    assert tokenizer.backend_tokenizer.to_str() == expected.backend_tokenizer.to_str()
    for skips in (False, True):
        assert tokenizer.batch_decode(ids, skip_special_tokens=skips) == expected.batch_decode(ids, skip_special_tokens=skips)
    assert tokenizer.convert_ids_to_tokens(ids[0]) == expected.convert_ids_to_tokens(ids[0])
    assert tokenizer.convert_tokens_to_ids("no such token") == expected.convert_tokens_to_ids("no such token")


def test_a_saved_tokenizer_is_loaded_by_transformers(folder, tmp_path):
    tokenizer = FileTokenizer(folder)
    tokenizer.save_pretrained(tmp_path)
    assert AutoTokenizer.from_pretrained(tmp_path)("a b")["input_ids"] == tokenizer("a b")["input_ids"]
