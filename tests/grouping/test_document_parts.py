import numpy as np
import pytest

from inbedder.errors import InputError
from inbedder.grouping.document_parts import describe_shares, make_document_columns, parse_unit, split_documents
from tests.grouping.report.test_page import grouping

LETTER = "Dear shop,\n\nThe parcel came late. Dr. Smith complained!\n \n\nYours\n"


def test_documents_are_split_at_blank_lines_at_sentences_or_by_words():
    parts = split_documents([LETTER, "One."], "paragraph")
    assert parts.texts == ["Dear shop,", "The parcel came late. Dr. Smith complained!", "Yours", "One."]
    assert parts.documents.tolist() == [0, 0, 0, 1]
    pytest.importorskip("sentencex")
    sentences = split_documents(["The parcel came late. Dr. Smith complained! \ud83d"], "sentence").texts
    assert sentences == ["The parcel came late.", "Dr. Smith complained! \ufffd"]
    assert split_documents(["a b c d e"], 2).texts == ["a b", "c d", "e"]


@pytest.mark.filterwarnings("ignore:No text has a blank line")
@pytest.mark.parametrize("unit", ["paragraph", "sentence", 3])
def test_a_document_without_words_is_one_part(unit):
    pytest.importorskip("sentencex")
    parts = split_documents(["", " \n\n ", "\U0001f600"], unit)
    assert parts.documents.tolist() == [0, 1, 2]
    assert parts.texts == ["", " \n\n ", "\U0001f600"]


@pytest.mark.parametrize("mark", ["''", '"', "``", "(", "“"])
def test_a_quote_that_is_never_closed_does_not_hide_the_ends_of_sentences(mark):
    pytest.importorskip("sentencex")
    first, last = f"The menu is {mark} short .", "The staff is n't friendly ."
    middle = [f"We 'll order dish {i} again ." for i in range(40)]
    assert split_documents([" ".join([first, *middle, last])], "sentence").texts == [first, *middle, last]


def test_a_short_quotation_stays_in_its_sentence():
    pytest.importorskip("sentencex")
    sentences = ['She said "No. Never." and left.', "We stayed."]
    assert split_documents([" ".join(sentences)], "sentence").texts == sentences


def test_a_part_without_a_letter_or_digit_joins_its_neighbour():
    pytest.importorskip("sentencex")
    assert split_documents(["Too loud.\n\n...\n\nToo dear.", "***\n\nOne"], "paragraph").texts == [
        "Too loud. ...",
        "Too dear.",
        "*** One",
    ]
    assert split_documents(["Too loud ! . . . It was cold ."], "sentence").texts == ["Too loud ! . . .", "It was cold ."]
    assert split_documents(["a b ! c"], 1).texts == ["a", "b !", "c"]
    assert split_documents(["? !", "你好"], 1).texts == ["? !", "你好"]


def test_paragraphs_without_a_blank_line_are_warned_of():
    with pytest.warns(UserWarning, match="No text has a blank line.* Split by sentence or by a number of words") as warned:
        assert split_documents(["One.\nTwo.\n\n", "Three."], "paragraph").texts == ["One.\nTwo.", "Three."]
    assert len(warned) == 1


@pytest.mark.filterwarnings("error")
def test_one_blank_line_is_enough_for_paragraphs():
    assert split_documents(["One.\n\nTwo.", "Three."], "paragraph").texts == ["One.", "Two.", "Three."]


def test_shares_are_weighted_by_length_and_sum_to_one():
    parts = split_documents(["aaa b", "c"], 1)
    shares = parts.measure_shares(np.array([0, 1, 1]), 3)
    np.testing.assert_allclose(shares, [[0.75, 0.25, 0], [0, 1, 0]])
    assert describe_shares(shares, ["late", "rude", "dear"]) == ["late 75%; rude 25%", "rude 100%"]


def test_the_columns_of_documents_name_their_largest_group_and_all_shares():
    parts = split_documents(["aaa b", "c"], 1)
    columns = make_document_columns([grouping([0, 1, 1]), grouping([0, 1, 0], instruction="Who?", left_out=1)], parts)
    assert list(columns)[:3] == ["group: What is it?", "group_name: What is it?", "groups: What is it?"]
    assert columns["group: What is it?"] == [1, 2]
    assert columns["groups: What is it?"] == ["word0, more0 75%; word1, more1 25%", "word1, more1 100%"]
    assert columns["group: Who?"] == [1, 1]


@pytest.mark.parametrize("value", ["page", "0", "-1", "1.5", ""])
def test_an_unknown_unit_is_refused(value):
    with pytest.raises(InputError, match="Give paragraph, sentence or a number"):
        parse_unit(value)


def test_units_of_the_command_line_are_names_or_numbers():
    assert [parse_unit(value) for value in ("paragraph", "sentence", "40")] == ["paragraph", "sentence", 40]
