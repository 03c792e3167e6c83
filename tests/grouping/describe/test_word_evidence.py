import numpy as np
import pytest

from inbedder import InBedder
from inbedder.grouping.describe.word_evidence import WordWeight, find_evidence, weigh_words


@pytest.fixture(scope="module")
def model(make_model):
    return InBedder(make_model("opt"))


def test_a_words_weight_is_what_the_vector_loses_without_it(model):
    text = "Late don't ask, 2 weeks"
    (words,) = weigh_words(model, [text], "What?")
    assert [text[word.start : word.end] for word in words] == ["Late", "don't", "ask", "2", "weeks"]
    vector, vector_of_rest = model.encode([text, "Late don't ask, 2 "], "What?")
    assert words[-1].weight == pytest.approx(1 - InBedder.similarity(vector, vector_of_rest)[0, 0], abs=1e-5)


def test_texts_of_a_batch_have_the_weights_of_single_texts(model):
    texts = ["cats and dogs", "", "a b c d", "\U0001f600"]
    weights = weigh_words(model, texts, None)
    assert [len(words) for words in weights] == [3, 0, 4, 0]
    for text, words in zip(texts, weights, strict=True):
        (single,) = weigh_words(model, [text], None)
        np.testing.assert_allclose([word.weight for word in words], [word.weight for word in single], atol=1e-5)


def test_the_answer_rests_on_words_of_at_least_half_the_largest_weight():
    words = [WordWeight(0, 1, 0.2), WordWeight(2, 3, 0.1), WordWeight(4, 5, 0.09)]
    assert find_evidence(words) == [(0, 1), (2, 3)]
    assert find_evidence([]) == find_evidence([WordWeight(0, 1, 0.0)]) == []


def test_the_report_marks_the_words_of_the_examples(model):
    from inbedder import cluster
    from inbedder.grouping.describe.word_evidence import add_evidence
    from inbedder.grouping.report.page import render_report

    result = add_evidence(cluster(["late <b> parcel", "cold soup"], "What?", model, k=2), model)
    assert [len(spans) for spans in result.evidence] == [len(examples) for examples in result.examples]
    ((start, end), *_) = result.evidence[result.labels[0]][0]
    page = render_report([result])
    assert f"<mark>{'late <b> parcel'[start:end]}</mark>" in page and "<b> parcel" not in page
