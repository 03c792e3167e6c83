import numpy as np
import pytest

from inbedder.grouping.names.group_contents import GroupContents
from inbedder.grouping.names.phrase_names import name_by_phrases, split_line


def group(answers, texts=None):
    texts = texts or [str(i) for i in range(len(answers))]
    return GroupContents(list(texts), list(answers), np.eye(len(answers), dtype=np.float32), [])


STAFF = group(["rude staff"] * 5)


def test_a_name_is_the_phrase_that_most_answers_hold():
    assert name_by_phrases([group(["late delivery"] * 4 + ["late"]), STAFF]) == ["late delivery", "rude staff"]
    assert name_by_phrases([group(["late", "slow", "late", "slow", "cold"]), STAFF]) == ["late, slow", "rude staff"]


def test_two_words_of_answers_are_written_in_the_order_that_most_have():
    assert name_by_phrases([group(["card", "lost card", "lost card", "card lost", "card new"]), STAFF])[0] == "lost card"


def test_words_that_are_frequent_in_any_text_name_a_group_only_as_answers():
    texts = ["please help with my card", "please look at the card", "help, my card", "please help: card"]
    assert name_by_phrases([group([""] * 4, texts), STAFF])[0] == "card"
    assert name_by_phrases([group(["new card"] * 4, texts), STAFF])[0] == "new card"


def test_inflections_are_one_word_in_its_most_frequent_form():
    assert name_by_phrases([group(["delays", "delay", "delayed", "delays", "bus"]), STAFF])[0] == "delays"


def test_words_of_few_answers_and_texts_are_in_no_name():
    answers = ["price"] * 18 + ["anxiety", "autism"]
    assert name_by_phrases([group(answers), STAFF])[0] == "price"
    assert name_by_phrases([group(["cat", "dog", "bus", "sun", "sea", "oak", "ink"]), STAFF])[0] == ""


def test_the_texts_name_a_group_whose_answers_agree_on_nothing():
    answers = ["aa", "bb", "cc", "dd", "ee"]
    texts = ["We saw Notre Dame burn", "At Notre Dame today", "Rebuilding Notre Dame", "Poor Notre Dame!", "Fire"]
    assert name_by_phrases([group(answers, texts), STAFF])[0] == "Notre Dame"


def test_capitals_at_the_start_of_a_sentence_are_not_kept():
    texts = ["Parking was bad.", "Awful! Parking costs money.", "Where is NASA parking?", "Parking"]
    assert name_by_phrases([group([""] * 4, texts), STAFF])[0] == "parking"


def test_a_word_is_capitalized_only_if_it_is_a_proper_noun():
    """The texts write "Cancelled Flight" for "cancelled flight", as in a well-known table of tweets."""
    cancelled = group(["cancelled"] * 3 + [""], ["my Cancelled trip", "a Cancelled trip", "it was Cancelled", "we are Cancelled"])
    messi = group(["messi", "", "", ""], ["what a Messi goal", "the Messi show", "then Messi again", "a Messi day"])
    mixed = group([""] * 4, ["my Refund", "a Refund", "no refund", "our Refund"])
    assert "cancelled" in name_by_phrases([cancelled, STAFF])[0]
    assert "Messi" in name_by_phrases([messi, STAFF])[0]
    assert "refund" in name_by_phrases([mixed, STAFF])[0]


def test_equal_names_are_told_apart_by_further_words():
    names = name_by_phrases(
        [group(["food", "food", "food", "pizza food"] * 2), group(["food", "food", "food", "soup food"] * 2), STAFF]
    )
    assert names[:2] == ["pizza food", "soup food"]
    equal_names = name_by_phrases([group(["food"] * 3), group(["food"] * 3)])
    assert equal_names == ["food", "food"]


def test_no_name_swears_unless_most_of_the_group_does():
    texts = ["what a shit bar", "nice bar", "the bar", "old bar"]
    assert "shit" not in name_by_phrases([group(["shit", "shit", "bar", "bar"], texts), STAFF])[0]
    assert "shit" in name_by_phrases([group(["shit"] * 3, ["shit", "shit bar", "good"]), STAFF])[0]


def test_fragments_of_other_words_are_left_out():
    assert (
        name_by_phrases([group(["del account", "delete account", "delete account", "del account"]), STAFF])[0] == "delete account"
    )


@pytest.mark.parametrize("text", ["", " ", "!?", "the of and", "\U0001f600", "1 2 3"])
def test_a_group_without_words_has_no_name(text):
    assert name_by_phrases([group([text] * 3, [text] * 3)]) == [""]


def test_addresses_are_no_words():
    assert split_line("late http://t.co/abc bus") == [".", "late", ".", "bus"]
    texts = ["see http://t.co/x", "http://t.co/y bus", "www.late.com bus", "bus http://t.co/z"]
    assert name_by_phrases([group([""] * 4, texts), STAFF])[0] == "bus"


def test_names_of_users_and_words_of_retweets_are_in_no_name():
    texts = ["rt @skyair: where is my bag?", "@SkyAir bag gone &amp; no help", "RT @skyair bag t.co/ab", "@skyair bag http"]
    answers = ["skyair", "skyair bag", "skyair", "rt amp"]
    assert name_by_phrases([group(answers, texts), STAFF])[0] == "bag"
    plain = ["skyair lost it", "skyair is late", "skyair again", "my bag"]
    assert name_by_phrases([group(answers, plain), STAFF])[0] == "skyair"  # a word of the texts, not only a user's name


def test_an_answer_that_is_a_stopword_of_its_text_is_in_no_name():
    texts = ["na rua da praia", "na casa de la mia", "na cidade do mar da ilha", "na praia"]
    assert "na" not in name_by_phrases([group(["na"] * 4, texts), STAFF])[0].split(", ")


def test_a_line_marks_what_lies_between_its_words():
    assert split_line("The food, and (the) very GOOD wine-bar") == [
        ".",
        "",
        "food",
        ".",
        "",
        ".",
        "",
        ".",
        "",
        "GOOD",
        "wine-bar",
    ]


def test_a_line_without_spaces_is_split_into_words():
    assert [word for word in split_line("荷物は遅れて届きました") if word] == [".", "荷物", "遅れて", "届きました"]


def test_stopwords_of_another_language_are_in_no_name():
    assert [word for word in split_line("كان") if word] == ["."]
    assert [word for word in split_line("Der Kaffee ist kalt und nicht gut") if word] == [".", "Kaffee", "kalt"]
