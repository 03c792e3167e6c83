import yaml

from inbedder_finetune.synthetic.forms import QUESTIONS_FOLDER

FILES = [yaml.safe_load(path.read_text(encoding="utf-8")) for path in sorted(QUESTIONS_FOLDER.glob("*.yaml"))]
QUESTIONS = [(name, question) for questions_by_name in FILES for name, question in questions_by_name.items()]


def test_a_name_is_given_once():
    names = [name for name, _ in QUESTIONS]
    assert len(names) == len(set(names))


def test_every_question_has_fourteen_wordings_or_more():
    for name, question in QUESTIONS:
        assert len(set(question["ask"])) == len(question["ask"]) >= 14, name
        assert all(isinstance(wording, str) for wording in question["ask"]), name
        assert set(question) <= {"ask", "answers"}, name


def test_answers_have_three_words_or_fewer():
    for name, question in QUESTIONS:
        for answer in question.get("answers", {}).values():
            assert 1 <= len(answer.split()) <= 3, (name, answer)
