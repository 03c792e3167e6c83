"""Typed decisions over HTTP, by plain requests and by published clients."""

import pytest

from inbedder import classify
from inbedder.classification import decisions
from inbedder.vectors.vectors import similarity

STATE = "My parcel came three weeks late!"
TOPICS = {"delivery": "It came late.", "food": None}
CHOICE = {"type": "choice", "instructions": "What is it about?", "criteria": TOPICS}
NOUL = {"type": "noul", "instructions": "Is it about a late delivery?"}
SCORE = {"type": "score", "instructions": "How does the writer feel?", "criteria": ["furious", "annoyed", "happy"]}
OPEN = {"type": "open", "instructions": "What is it about?"}
QUESTIONS = {"topic": CHOICE, "late": NOUL, "mood": SCORE, "subject": OPEN}


def ask(client, questions, state=STATE, status=200, **fields):
    response = client.post("/v1/systemone", json={"state": state, "questions": questions, **fields})
    assert response.status_code == status, response.text
    return response.json()["answers"] if status == 200 else response.json()["error"]["message"]


def test_a_choice_has_the_categories_of_classify(client, tiny):
    answer = ask(client, {"topic": CHOICE})["topic"]
    cosines = classify([STATE], CHOICE["instructions"], {"delivery": "It came late.", "food": "food"}, model=tiny).scores
    expected = decisions.compute_option_probabilities(cosines)[0]
    assert list(answer["probabilities"]) == list(TOPICS)
    assert list(answer["probabilities"].values()) == pytest.approx(expected, abs=1e-5)
    assert answer["choice"] == list(TOPICS)[expected.argmax()]
    assert answer["confidence"] == pytest.approx(2 * expected.max() - 1, abs=1e-5)


def test_all_types_are_answered_together_as_alone(client):
    answers = ask(client, QUESTIONS)
    assert list(answers) == list(QUESTIONS)
    for name, question in QUESTIONS.items():
        single_answer = ask(client, {name: question})[name]
        assert single_answer["type"] == answers[name]["type"] == question["type"]
        for field, value in single_answer.items():
            assert answers[name][field] == (value if isinstance(value, str | None) else pytest.approx(value, abs=1e-4))


def test_a_noul_without_criteria_compares_the_statement(client, tiny):
    cosines = similarity(tiny.encode([STATE]), tiny.encode([NOUL["instructions"]]))[0]
    expected = decisions.compute_statement_probabilities(cosines)[0]
    assert ask(client, {"late": NOUL})["late"]["noul"] == pytest.approx(expected, abs=1e-5)


def test_swapped_criteria_give_the_complement(client):
    for criteria in ({"true": "It came late.", "false": "It came in time."}, {"true": "It came late.", "false": None}):
        swapped = {"true": criteria["false"], "false": criteria["true"]}
        answers = ask(client, {"a": {**NOUL, "criteria": criteria}, "b": {**NOUL, "criteria": swapped}})
        assert answers["a"]["noul"] + answers["b"]["noul"] == pytest.approx(1, abs=1e-6)
        assert answers["a"]["noul"] != pytest.approx(0.5, abs=1e-6)


def test_the_order_of_options_changes_nothing(client):
    criteria = {name: None for name in ("food", "delivery", "price", "staff")}
    answers = ask(client, {"a": {**CHOICE, "criteria": criteria}, "b": {**CHOICE, "criteria": dict(reversed(criteria.items()))}})
    assert answers["a"]["choice"] == answers["b"]["choice"]
    assert answers["a"]["probabilities"] == pytest.approx(answers["b"]["probabilities"], abs=1e-6)
    levels = SCORE["criteria"]
    answers = ask(client, {"a": SCORE, "b": {**SCORE, "criteria": levels[::-1]}})
    assert answers["a"]["score"] + answers["b"]["score"] == pytest.approx(len(levels) - 1, abs=1e-5)


def test_a_score_is_the_mean_level(client):
    answer = ask(client, {"mood": SCORE})["mood"]
    assert answer["legend"] == {"0": "furious", "1": "annoyed", "2": "happy"}
    probabilities = [answer["probabilities"][level] for level in ("0", "1", "2")]
    assert sum(probabilities) == pytest.approx(1, abs=1e-5)
    assert answer["score"] == pytest.approx(probabilities[1] + 2 * probabilities[2], abs=1e-5)


def test_an_open_question_returns_the_shares_of_its_answers(client, tiny):
    answer = ask(client, {"subject": {**OPEN, "samples": 5}})["subject"]
    samples = tiny.answer([STATE], OPEN["instructions"], n=5, temperature=1.0)[0]
    assert answer["options"] == {each: samples.count(each) / 5 for each in samples}
    assert list(answer["options"].values()) == sorted(answer["options"].values(), reverse=True)
    assert answer["options"][answer["answer"]] == answer["confidence"] == max(answer["options"].values())


def test_an_uncertain_decision_says_that_it_cannot_tell(client):
    questions = {name: question for name, question in QUESTIONS.items() if name != "subject"}
    assert {each["cannot_tell"] for each in ask(client, questions).values()} == {None}
    assert {each["cannot_tell"] for each in ask(client, questions, min_confidence=1).values()} == {"not sure"}
    reasons = {name: each["cannot_tell"] for name, each in ask(client, questions, min_score=1, min_confidence=1).items()}
    assert reasons == {"topic": "none of these", "late": "not sure", "mood": "none of these"}


@pytest.mark.parametrize(
    ("state", "text"),
    [
        ({"stars": 1, "review": "Late!"}, "stars: 1\nreview: Late!"),
        ([{"role": "user", "content": [{"type": "text", "text": "Late!"}]}], "user: Late!"),
        ({"email": {"from": "a", "tags": ["b", None, True]}}, "email: from: a\ntags: b\n\ntrue"),
    ],
)
def test_a_state_of_json_is_read_as_lines(client, state, text):
    assert ask(client, {"topic": CHOICE}, state=state) == ask(client, {"topic": CHOICE}, state=text)


@pytest.mark.parametrize(
    ("question", "message"),
    [
        ({"type": "noul"}, "neither instructions nor criteria"),
        ({"type": "box", "instructions": "The dog"}, "questions: Input tag 'box'"),
        ({"type": "choice", "criteria": {"one": None}}, "at least 2 items"),
        ({"type": "score", "criteria": ["a"] * 11}, "at most 10 items"),
        ({**CHOICE, "temperature": 2}, "Unknown field 'temperature'"),
        ({"type": "open", "instructions": " "}, "Send an instruction"),
    ],
)
def test_a_malformed_question_is_refused(client, question, message):
    assert message in ask(client, {"q": question}, status=422)


def test_states_and_questions_are_bounded(client):
    assert "at least 1 item" in ask(client, {}, status=422)
    assert "Leave out images" in ask(client, {"q": NOUL}, state={"type": "image", "data_base64": "AA"}, status=422)
    nested = "text"
    for _ in range(12):
        nested = [nested]
    assert "at most 10 deep" in ask(client, {"q": NOUL}, state=nested, status=422)
    assert "at most 64" in ask(client, {str(number): NOUL for number in range(65)}, status=422)
    choice = {**CHOICE, "criteria": {str(number): None for number in range(255)}}
    assert len(ask(client, {"q": choice})["q"]["probabilities"]) == 255
    assert "at most 255" in ask(client, {"q": {**choice, "criteria": {**choice["criteria"], "more": None}}}, status=422)


def test_typesafes_sdk_reads_the_decisions(make_live):
    sdk = pytest.importorskip("typesafe_sdk")
    host, port = make_live(api_key="key")
    questions = {
        "topic": sdk.Choice(instructions=CHOICE["instructions"], criteria=TOPICS),
        "late": sdk.Noul(instructions=NOUL["instructions"], criteria={"true": "It came late.", "false": "It came in time."}),
        "mood": sdk.Score(instructions=SCORE["instructions"], criteria=SCORE["criteria"]),
    }
    with sdk.TypeSafeClient(base_url=f"http://{host}:{port}", api_key="key") as typesafe:
        response = typesafe.system_one(state=[{"role": "user", "content": STATE}], questions=questions, model="tiny")
        assert response.model == "tiny" and response.usage.input_tokens > 0
        assert response.choices["topic"].choice in TOPICS
        assert 0 < response.nouls["late"].noul < 1
        assert response.scores["mood"].legend == dict(enumerate(SCORE["criteria"]))
        with pytest.raises(sdk.TypeSafeAPIError, match="There is no model of that name"):
            typesafe.system_one(state=STATE, questions=questions, model="jev-latest")


def test_the_client_of_systemone_builder_reads_the_decisions(make_live):
    systemone = pytest.importorskip("systemone")
    host, port = make_live(api_key="key")
    with systemone.Client(f"http://{host}:{port}", api_key="key") as client:
        choice = client.system_one(STATE, {"topic": systemone.Choice(CHOICE["instructions"], TOPICS)}).choices["topic"]
        assert choice.probabilities[choice.choice] == max(choice.probabilities.values())
        with pytest.raises(systemone.SystemOneError, match="neither instructions nor criteria"):
            client.system_one(STATE, {"late": {"type": "noul"}})
