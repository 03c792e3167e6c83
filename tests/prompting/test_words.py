import pytest

from inbedder.prompting.stopwords import load_stopwords
from inbedder.prompting.words import find_scripts, find_stopwords, is_none, split_spaceless


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("荷物は二日遅れて届きました", ["荷物", "二日遅れて", "届きました"]),
        ("这家酒店的房间很脏", ["这", "家", "酒店", "的", "房间", "很", "脏"]),
        ("ห้องสกปรกมาก", ["ห้อง", "สกปรก", "มาก"]),
        ("parcel", ["parcel"]),
        ("الطرد", ["الطرد"]),
        ("", [""]),
    ],
)
def test_scripts_without_spaces_are_split_into_words(text, words):
    assert split_spaceless(text) == words


def test_japanese_verbs_and_adverbs_stay_whole():
    assert split_spaceless("とても楽しかった") == ["とても", "楽しかった"]


@pytest.mark.parametrize(
    ("text", "stopwords", "content_words"),
    [
        ("der kaffee ist kalt und schmeckt nicht", ["der", "ist", "und"], ["kaffee", "kalt"]),
        ("el café está frío y no me gusta", ["el", "está", "y"], ["café", "gusta"]),
        ("غرفة الفندق كانت قذرة جدا ولم تعجبني وكان في هذا", ["كانت", "ولم", "في"], ["غرفة", "قذرة"]),
        ("la chambre était sale et le personnel n est pas aimable", ["la", "et", "le"], ["chambre", "sale"]),
    ],
)
def test_stopwords_are_those_of_the_texts_language(text, stopwords, content_words):
    result = find_stopwords(text.split())
    assert result.issuperset(stopwords)
    assert result.isdisjoint(content_words)


@pytest.mark.parametrize("text", ["the room was cold and not clean", "great coffee", "", "zzz qqq", "positive good", "not happy"])
def test_english_and_unknown_texts_have_the_english_list(text):
    assert find_stopwords(text.split()) == load_stopwords()


@pytest.mark.parametrize(
    ("text", "scripts"),
    [
        ("Die Lieferung kam zu spät: 3 Tage!", {"LATIN"}),
        ("ﬁne ｆｕｌｌ", {"LATIN"}),
        ("посылка Delivery", {"CYRILLIC", "LATIN"}),
        ("サービスはとても", {"KANA"}),
        ("荷物々", {"CJK"}),
        ("บริการดี", {"THAI"}),
        ("ा", {"DEVANAGARI"}),
        ("12 €, № 5 😀 \u0301\ufe0f", set()),
        ("", set()),
    ],
)
def test_scripts_are_those_of_the_letters(text, scripts):
    assert find_scripts(text) == scripts


@pytest.mark.parametrize(
    ("answer", "expected"),
    [("none", True), (" None. ", True), ("«NONE»", True), ("", False), ("nonea", False), ("no one", False)],
)
def test_none_is_a_word_of_its_own(answer, expected):
    assert is_none(answer) == expected
