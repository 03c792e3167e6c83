import mteb
import pytest

from inbedder.errors import InputError
from inbedder_evaluation.mteb.instructions import PARAPHRASES, SIZES, WORDINGS, read_instructed_sets, select_sets
from inbedder_evaluation.mteb.suite import BENCHMARK, load_tasks

SETS = {each.name: each for each in read_instructed_sets()}


def test_the_list_holds_mtebs_56_english_sets_under_their_kinds():
    assert {each.group for each in SETS.values()} == {task.metadata.name for task in mteb.get_benchmark(BENCHMARK).tasks}
    assert len({each.group for each in SETS.values()}) == 56
    assert {name: task.metadata.type for name, task in load_tasks().items()} == {each.name: each.kind for each in SETS.values()}


@pytest.mark.parametrize("wording", SIZES)
def test_each_set_has_an_instruction_in_each_wording_of_the_authors(wording):
    for each in SETS.values():
        for instruction in each.get_instructions(wording):
            assert instruction.lower().startswith("represent ") and instruction.endswith(" ")


def test_only_retrieval_and_reranking_have_two_instructions():
    asymmetric = {each.kind for each in SETS.values() if len(set(each.get_instructions("large"))) == 2}
    assert asymmetric == {"Retrieval", "Reranking"}


def test_levels_of_detail_are_those_of_the_papers_example():
    natural_questions = SETS["NQ"]
    assert natural_questions.get_instructions("none") == ("", "")
    assert natural_questions.get_instructions("tag") == ("Natural Questions; Input: ",) * 2
    assert natural_questions.get_instructions("simple") == ("Wikipedia question; Input: ", "document; Input: ")
    assert SETS["MassiveIntentClassification"].get_instructions("simple")[0] == "sentence; Input: "
    assert SETS["ArguAna"].get_instructions("tag")[0] == "ArguAna; Input: "
    assert {wording for wording in WORDINGS if not SETS["NQ"].has_wording(wording)} == set(PARAPHRASES)


def test_two_sets_have_five_paraphrases():
    paraphrased = [name for name, each in SETS.items() if each.has_wording("paraphrase-5")]
    assert paraphrased == ["FiQA2018", "AmazonPolarityClassification"]
    assert all(len({SETS[name].get_instructions(wording) for wording in PARAPHRASES}) == 5 for name in paraphrased)


def test_sets_are_selected_by_kind_and_name():
    assert {each.kind for each in select_sets(["STS"])} == {"STS"}
    assert len(select_sets(["STS"], ["CQADupstackRetrieval", "NQ"])) == 10 + 12 + 1
    assert len(select_sets()) == 67
    with pytest.raises(InputError, match=r"no kind 'sts'. Choose from: Retrieval, .*Summarization"):
        select_sets(["sts"])
    with pytest.raises(InputError, match=r"no set 'STS99'"):
        select_sets([], ["STS12", "STS99"])
