import yaml

from inbedder_finetune.questions import QUESTIONS_FOLDER, read_questions


def test_a_name_is_given_once():
    tables = [yaml.safe_load(path.read_text(encoding="utf-8")) for path in QUESTIONS_FOLDER.glob("*.yaml")]
    assert len(read_questions()) == sum(map(len, tables))


def test_every_question_has_fourteen_wordings_or_more():
    for name, question in read_questions().items():
        assert len({wording.lower() for wording in question.ask}) == len(question.ask) >= 14, name
        assert all(isinstance(wording, str) for wording in question.ask), name


def test_answers_have_three_words_or_fewer():
    for name, question in read_questions().items():
        for answer in question.answers.values():
            assert 1 <= len(answer.split()) <= 3, (name, answer)
