import numpy as np
import pytest
import wasmtime

from inbedder import InBedder
from inbedder.errors import InputError
from inbedder.grouping.report import further_questions
from inbedder.grouping.report.further_questions import check_page_model, encode_bytes, make_page_model
from inbedder.runtime.package_data import find_data_folder
from tests.conftest import TEXTS


@pytest.fixture(scope="module")
def late_model(late_adapter):
    return InBedder(late_adapter)


def decode(text):
    digits = [ord(character) - (36 if character > "<" else 35) for character in text]
    bits = "".join(f"{first * 91 + second:013b}" for first, second in zip(digits[::2], digits[1::2], strict=True))
    return bytes(int(bits[start : start + 8], 2) for start in range(0, len(bits) // 8 * 8, 8))


@pytest.mark.parametrize("count", [0, 1, 13, 14, further_questions.CHUNK_BYTES + 5])
def test_encoded_bytes_are_read_back_and_cannot_end_a_script(count):
    content = np.random.default_rng(0).integers(256, size=count, dtype=np.uint8).tobytes()
    text = encode_bytes(content)
    assert "<" not in text
    assert text.isascii()
    assert decode(text)[:count] == content


def test_the_instructions_are_assembled_from_their_source():
    folder = find_data_folder("inbedder", "grouping") / "report" / "asking"
    assert (folder / "tile.wasm").read_bytes() == wasmtime.wat2wasm((folder / "tile.wat").read_text())


def test_a_page_holds_the_tokens_of_its_texts(late_model):
    data = make_page_model(late_model, [*TEXTS, ""]).data
    tokenizer = late_model.backbone.tokenizer
    for row, text in zip(data["rows"], [*TEXTS, ""], strict=True):
        tokens = [data["tokens"][number] for number in data["texts"][row]]
        assert tokens == tokenizer.convert_ids_to_tokens(tokenizer(text, split_special_tokens=True)["input_ids"])
    assert data["tokens"][data["mask"]] == tokenizer.mask_token


def test_special_tokens_in_a_text_are_plain_characters(late_model):
    data = make_page_model(late_model, ["a [MASK] b"]).data
    assert data["mask"] not in data["texts"][0]


def test_long_texts_are_cut_before_their_last_token(late_model, monkeypatch):
    monkeypatch.setattr(further_questions, "MAX_TOKENS", 5)
    data = make_page_model(late_model, ["one two three four five six seven"]).data
    assert len(data["texts"][0]) == 5
    assert data["texts"][0][-1] == data["end"]


def test_many_texts_are_sampled(late_model, monkeypatch):
    monkeypatch.setattr(further_questions, "MAX_ASKED_TEXTS", 3)
    model = make_page_model(late_model, [f"text {i}" for i in range(20)])
    assert model.count == len(set(model.data["rows"])) == 3
    assert model.data["rows"] == sorted(model.data["rows"])


@pytest.mark.parametrize("kind", ["bert", "opt"])
def test_other_models_are_refused(make_model, kind):
    with pytest.raises(InputError, match="Only mini"):
        check_page_model(InBedder(make_model(kind)))


def test_another_template_is_refused(late_model):
    with pytest.raises(InputError, match="Only mini"):
        check_page_model(late_model.replace(template="{input} Question: {instruction}"))
