"""Every option survives every boundary: it changes vectors as it does in memory, or it is refused by name."""

import csv
import json
import pickle
import shutil
from copy import copy, deepcopy
from dataclasses import fields

import numpy as np
import pyarrow
import pytest
import typer.main
from typer.testing import CliRunner

from inbedder import Grouping, InBedder, classify, cluster
from inbedder.cli import app
from inbedder.errors import InbedderError, InputError
from inbedder.options import EncodingOptions, ModelOptions, Reencoding, get_option_info
from inbedder.vectors.precision import PRECISIONS
from inbedder.vectors.vectors import concatenate_vectors, normalize_vectors
from tests.conftest import assert_close
from tests.prompting.chat_families import write_chat_model

QUESTION = "What animals do they love?"
TEXTS = ["I love cats", "I love dogs and cats", "The delivery was late, the box was crushed, the lamp inside works fine. " * 4]
SHORT = {"max_length": 48}
"""Options that cut the last text."""
DECODED = {"pooling": "avg-gen", "max_new_tokens": 4}
CASES = {
    "backbone": ("masked", {}, {"backbone": "embedding"}),
    "dtype": ("masked", {}, {"dtype": "bfloat16"}),
    "quantization": ("causal", {}, {"quantization": "int8"}),
    "pooling": ("masked", {}, {"pooling": "avg-all"}),
    "layer": ("masked", {}, {"layer": 1}),
    "template": ("causal", {}, {"template": "{instruction}\n{input}\nAnswer:"}),
    "max_length": ("masked", {}, SHORT),
    "truncation_side": ("masked", SHORT, {"truncation_side": "left"}),
    "max_new_tokens": ("causal", {"pooling": "avg-gen"}, {"max_new_tokens": 6}),
    "mask_length": ("masked", {}, {"mask_length": 6}),
    "constrained_decoding": (
        "masked",
        {"pooling": "re-enc", "reencoding": Reencoding(n=1, temperature=0)},
        {"constrained_decoding": False},
    ),
    "temperature": ("causal", DECODED, {"temperature": 1.0}),
    "top_p": ("causal", {**DECODED, "temperature": 1.0}, {"top_p": 0.1}),
    "seed": ("causal", {**DECODED, "temperature": 1.0}, {"seed": 5}),
    "reencoding": ("causal", {"pooling": "re-enc", "reencoding": Reencoding(n=1)}, {"reencoding": Reencoding(n=2, seed=3)}),
    "filter_words": ("causal", DECODED, {"filter_words": ("answer",)}),
    "subtract_instruction": ("masked", {}, {"subtract_instruction": True}),
    "beside": ("masked", {}, {"beside": "second"}),
    "truncate_dim": ("masked", {}, {"truncate_dim": 12}),
    "normalize_embeddings": ("masked", {}, {"normalize_embeddings": True}),
    "precision": ("masked", {}, {"precision": "int8"}),
}
"""By option: the kind of model, the fixed options, and a value of the option that changes vectors."""
CHAT = "template of the tokenizer"
ALL_CASES = CASES | {CHAT: ("chat", {"template": "inbedder"}, {"template": "chat"})}
WITHOUT_EFFECT = {
    "model",
    "device",
    "revision",
    "base_revision",
    "trust_remote_code",
    "cache",
    "cache_size",
    "text_memory",
    "max_batch_tokens",
    "min_confidence",
}
"""Options that change no vector of a folder on a CPU."""
PYTHON_ONLY = {"temperature", "top_p", "seed"}
"""Options that the command line does not have."""


@pytest.fixture(scope="module")
def folders(make_model, tmp_path_factory):
    """Folders of a masked LM, alone and with a base encoder, a causal LM, alone and with a second model, and a chat model."""
    names = {"masked": make_model("bert"), "causal": make_model("opt"), "second": make_model("roberta")}
    names["chat"] = write_chat_model(names["causal"], tmp_path_factory.mktemp("chat") / "model", "qwen3")
    for name, settings in {
        "based": {"base_encoder": make_model("headless-bert")},
        "paired": {"beside": names["masked"]},
    }.items():
        names[name] = str(tmp_path_factory.mktemp(name) / "model")
        shutil.copytree(names["masked" if name == "based" else "causal"], names[name])
        with open(f"{names[name]}/inbedder.json", "w") as file:
            json.dump(settings, file)
    return names


class Case:
    """One option: a model with its fixed value, and with a changed one."""

    def __init__(self, option, folders):
        kind, fixed, change = ALL_CASES[option]
        self.option, self.folder, self.fixed = option, folders[kind], fixed
        change = {name: folders["second"] if value == "second" else value for name, value in change.items()}
        if option == "filter_words":
            words = " ".join(InBedder(self.folder, **fixed).answer(TEXTS, QUESTION)).split()
            change = {"filter_words": tuple(words[:8])}
        self.changed = fixed | change

    def embed(self, **options):
        return InBedder(self.folder, **self.changed, **options).encode(TEXTS, QUESTION)

    def expect(self, vectors, relative=1e-4):
        """Assert that vectors equal those of a model in memory."""
        assert_close(vectors, self.embed(), relative)

    @property
    def only_rounds(self):
        """Whether vectors of both values are comparable, so that no boundary raises an error."""
        return self.option in ("dtype", "precision")

    def expect_error(self):
        """Expect an error that names the option."""
        words = {
            "backbone": "backbone|bfloat16|files",
            "beside": "second_model",
            "template": "template pattern",
            CHAT: "template opening",
        }
        return pytest.raises(InputError, match=words.get(self.option, self.option.split("_")[0]))


@pytest.fixture(params=ALL_CASES)
def case(request, folders):
    return Case(request.param, folders)


def test_every_option_has_a_case():
    options = {option.name for kind in (ModelOptions, EncodingOptions) for option in fields(kind)}
    assert CASES.keys() | WITHOUT_EFFECT == options


def test_in_memory_the_option_changes_vectors_and_spec(case):
    plain, changed = InBedder(case.folder, **case.fixed), InBedder(case.folder, **case.changed)
    before, after = plain.encode(TEXTS, QUESTION), changed.encode(TEXTS, QUESTION)
    assert before.shape != after.shape or np.abs(before - after).max() > 1e-4
    assert plain.spec.key() != changed.spec.key()
    assert plain.spec.differences(changed.spec, exact=True)


def test_max_batch_tokens_changes_no_vector_and_reaches_every_model(folders, monkeypatch):
    model = InBedder(folders["paired"], max_batch_tokens=64)
    expected = InBedder(folders["paired"]).encode(TEXTS * 4, QUESTION)
    sizes, embed = [], model.backbone.embed
    monkeypatch.setattr(
        model.backbone, "embed", lambda prompts, *arguments: sizes.append(len(prompts)) or embed(prompts, *arguments)
    )
    assert_close(model.encode(TEXTS * 4, QUESTION), expected)
    assert sum(sizes) == len(set(TEXTS)) and sizes[0] == 1
    assert model.pipeline.second_model.options.encoding.max_batch_tokens == 64
    assert model.spec.key() == InBedder(folders["paired"]).spec.key()


@pytest.mark.parametrize("kind", ["causal", "masked"])
def test_min_confidence_reaches_every_boundary_and_changes_no_vector(folders, kind, tmp_path, monkeypatch):
    plain, model = InBedder(folders[kind]), InBedder(folders[kind], min_confidence=1.0)
    all_answers, hidden = plain.answer(TEXTS, QUESTION), [""] * len(TEXTS)
    assert any(all_answers) and model.spec.key() == plain.spec.key() and not plain.spec.differences(model.spec, exact=True)
    np.testing.assert_array_equal(model.encode(TEXTS, QUESTION), plain.encode(TEXTS, QUESTION))
    result = cluster(TEXTS, QUESTION, model, k=1)
    assert result.answers == hidden and result.names[0].strip()
    result.save(tmp_path / "groups")
    assert Grouping.load(tmp_path / "groups").assign(TEXTS).answers == hidden
    assert Grouping.load(tmp_path / "groups", min_confidence=0).assign(TEXTS).answers == all_answers
    assert Grouping.load(tmp_path / "groups", plain).assign(TEXTS).answers == all_answers
    for variant in (copy(model), deepcopy(model), pickle.loads(pickle.dumps(model)), plain.replace(min_confidence=1.0)):
        assert variant.answer(TEXTS, QUESTION) == hidden
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.txt").write_text("\n".join(TEXTS) + "\n")
    command = ["answer", "t.txt", "-i", QUESTION, "--model", folders[kind], "-o", "a.csv"]
    assert CliRunner().invoke(app, [*command, "--min-confidence", "1"]).exit_code == 0
    with open("a.csv", newline="") as file:
        assert [row["answer"] for row in csv.DictReader(file)] == hidden


def test_a_server_and_an_export_keep_min_confidence(folders, tmp_path):
    pytest.importorskip("fastapi")
    pytest.importorskip("sentence_transformers")
    from starlette.testclient import TestClient

    from inbedder.cli.serve import _as_settings
    from inbedder.server.app import make_app
    from inbedder.server.settings import Settings

    settings = Settings(model=[f"tiny={folders['causal']}"], **_as_settings({"min_confidence": 1.0}))
    models = {name: InBedder(path, **settings.get_model_options()) for name, path in settings.named_models.items()}
    with TestClient(make_app(models, settings), base_url="http://127.0.0.1:8765") as client:
        response = client.post("/v1/answers", json={"input": TEXTS, "instruction": QUESTION})
    assert [row["answers"] for row in response.json()["data"]] == [[""]] * len(TEXTS)
    InBedder(folders["causal"], min_confidence=1.0).save_sentence_transformer(tmp_path / "out")
    (settings_file,) = (tmp_path / "out").rglob("inbedder.json")
    assert InBedder(settings_file.parent).answer(TEXTS, QUESTION) == [""] * len(TEXTS)


def test_without_a_question_lengths_reach_the_base_encoder(folders):
    cut_at_end = InBedder(folders["based"], **SHORT).encode(TEXTS)
    cut_at_start = InBedder(folders["based"], **SHORT, truncation_side="left").encode(TEXTS)
    base = InBedder(folders["based"]).base_encoder
    assert_close(cut_at_start, base.replace(**SHORT, truncation_side="left").encode(TEXTS))
    assert_close(cut_at_end, base.replace(**SHORT).encode(TEXTS))
    assert np.abs(cut_at_end - cut_at_start).max() > 1e-3


def test_without_a_question_the_general_purpose_vector_is_the_same(case):
    model = InBedder(case.folder, **case.changed)
    if model.base_encoder is None:
        assert_close(model.encode(TEXTS), model.encode(TEXTS, model.pipeline.defaults.any))
    else:
        assert_close(model.encode(TEXTS), InBedder(case.folder).encode(TEXTS))


def test_several_questions_at_once(case):
    model = InBedder(case.folder, **case.changed)
    case.expect(model.encode_many(TEXTS, [QUESTION, "Why?"])[0], 0.05 if case.option == "quantization" else 1e-4)


def test_a_cache_of_the_unchanged_model(case, tmp_path):
    InBedder(case.folder, **case.fixed, cache=tmp_path).encode(TEXTS, QUESTION)
    for _ in range(2):
        case.expect(case.embed(cache=tmp_path))


def test_copies_pickles_and_replace(case):
    model = InBedder(case.folder, **case.changed)
    for variant in (copy(model), deepcopy(model), pickle.loads(pickle.dumps(model)), model.to("cpu")):
        assert variant.spec == model.spec
        case.expect(variant.encode(TEXTS, QUESTION))
    changes = {name: value for name, value in case.changed.items() if name in EncodingOptions.__dataclass_fields__}
    if changes.keys() == case.changed.keys():
        replaced = InBedder(case.folder, **case.fixed).replace(**changes)
        assert replaced.spec == model.spec
        case.expect(replaced.encode(TEXTS, QUESTION))
    else:
        with pytest.raises(InputError, match=f"{case.option} cannot be replaced"):
            model.replace(**{case.option: None})


def test_a_second_model_uses_the_lengths_of_the_first(folders):
    options = {**SHORT, "truncation_side": "left"}
    both = InBedder(folders["paired"], **options)
    parts = [InBedder(folders[name], **options).encode(TEXTS, QUESTION) for name in ("causal", "masked")]
    assert_close(both.encode(TEXTS, QUESTION), concatenate_vectors(*parts))
    assert_close(InBedder(folders["paired"]).replace(**options).encode(TEXTS, QUESTION), concatenate_vectors(*parts))


def test_saved_groups_and_assign(case, tmp_path):
    model = InBedder(case.folder, **case.changed)
    cluster(TEXTS, QUESTION, model, k=1).save(tmp_path / "groups")
    grouping = Grouping.load(tmp_path / "groups")
    assert grouping.assign(TEXTS).labels.tolist() == [0] * len(TEXTS)
    if case.option != "dtype":
        case.expect(grouping.model.encode(TEXTS, QUESTION))
    if not case.only_rounds:
        with case.expect_error():
            Grouping.load(tmp_path / "groups", InBedder(case.folder, **case.fixed))


def test_an_index_that_is_created_and_opened(case, tmp_path):
    index_module = pytest.importorskip("inbedder.search")
    index_module.Index.create(tmp_path / "index", TEXTS, InBedder(case.folder, **case.changed))
    opened = index_module.Index.open(tmp_path / "index")
    if case.option != "dtype":
        case.expect(opened.model.encode(TEXTS, QUESTION))
    if not case.only_rounds:
        with case.expect_error():
            index_module.Index.open(tmp_path / "index", InBedder(case.folder, **case.fixed))


def test_an_export_that_sentence_transformers_loads(case, tmp_path):
    sentence_transformers = pytest.importorskip("sentence_transformers")
    model = InBedder(case.folder, **case.changed)
    if case.option in ("quantization", "precision"):
        with pytest.raises(InbedderError, match=f"no {case.option}"):
            model.save_sentence_transformer(tmp_path / "out")
        return
    model.save_sentence_transformer(tmp_path / "out")
    loaded = sentence_transformers.SentenceTransformer(
        str(tmp_path / "out"), device="cpu", trust_remote_code=True, model_kwargs={"dtype": "auto"}
    )
    products = normalize_vectors(loaded.encode(TEXTS, prompt=_make_prompt(model))) * normalize_vectors(case.embed())
    assert products.sum(axis=1).min() > (0.99 if case.option in ("dtype", "max_length") else 1 - 1e-4)


def _make_prompt(model):
    if model.backbone.kind != "embedding":
        return QUESTION
    return model.template.render("", QUESTION).string


def test_a_worker_of_a_job(case, tmp_path):
    pytest.importorskip("ray")
    from inbedder.distributed.job import _describe_options
    from inbedder.distributed.pipeline import Embedder

    encode = {"instruction": QUESTION, "batch_size": 32}
    rows = {"row": range(len(TEXTS)), "id": range(len(TEXTS)), "text": TEXTS, "reason": [None] * len(TEXTS)}
    table = pyarrow.table({name: pyarrow.array(list(values)) for name, values in rows.items()})
    worker = Embedder(tmp_path, {"model": case.folder, **case.changed}, encode, 1)
    case.expect(np.array(worker(table)["embedding"].to_pylist(), dtype=np.float32))
    assert _describe_options(case.folder, case.changed) != _describe_options(case.folder, case.fixed)
    if not case.only_rounds:
        with case.expect_error():
            Embedder(tmp_path, {"model": case.folder, **case.fixed}, encode, 1)(table)


def test_a_server(case, tmp_path):
    pytest.importorskip("fastapi")
    from starlette.testclient import TestClient

    from inbedder.cli.serve import _as_settings
    from inbedder.server.app import make_app
    from inbedder.server.settings import Settings

    settings = Settings(model=[f"tiny={case.folder}"], **_as_settings(case.changed))
    models = {name: InBedder(path, **settings.get_model_options()) for name, path in settings.named_models.items()}
    with TestClient(make_app(models, settings), base_url="http://127.0.0.1:8765") as client:
        response = client.post("/v1/embeddings", json={"input": TEXTS, "instruction": QUESTION, "normalized": False})
        entry = client.get("/v1/models").json()["data"][0]
    case.expect([row["embedding"] for row in response.json()["data"]])
    assert entry["spec_key"] == InBedder(case.folder, **case.changed).spec.key()


def test_an_evaluation(case):
    from inbedder_evaluation.embedders import make_embedders

    plain, changed = (make_embedders(case.folder, **options)[0] for options in (case.fixed, case.changed))
    case.expect(changed.encode(TEXTS, QUESTION))
    assert plain.revision != changed.revision


def test_an_evaluation_needs_vectors_that_are_not_packed(folders):
    from inbedder_evaluation.embedders import make_embedders

    with pytest.raises(InputError, match="precision='binary'"):
        make_embedders(folders["masked"], precision="binary")


@pytest.mark.parametrize("adapter", ["langchain", "sklearn", "llama_index", "datasets"])
def test_an_adapter(case, adapter):
    model = InBedder(case.folder, **case.changed)
    if adapter == "datasets":
        return case.expect(model.as_map(QUESTION)({"text": TEXTS})["vector"])
    pytest.importorskip({"langchain": "langchain_core", "sklearn": "sklearn", "llama_index": "llama_index.core"}[adapter])
    if adapter == "sklearn":
        from sklearn.base import clone

        from inbedder.integrations.sklearn import InstructedVectorizer

        if case.option == "precision":  # features are for computing
            case.changed = case.fixed
        return case.expect(clone(InstructedVectorizer(QUESTION, model)).fit(TEXTS).transform(TEXTS))
    if adapter == "langchain":
        from inbedder.integrations.langchain import InstructedEmbeddings as Adapter
    else:
        from inbedder.integrations.llama_index import InstructedEmbedding as Adapter
    embeddings = Adapter(instruction=QUESTION, model=model)
    if case.option == "precision":  # an adapter's vectors are for computing
        case.changed = case.fixed
    adapter_vectors = embeddings.embed_documents(TEXTS) if adapter == "langchain" else embeddings.get_text_embedding_batch(TEXTS)
    assert_close(normalize_vectors(np.array(adapter_vectors)), normalize_vectors(case.embed()), 1e-4)


FORMATS = {
    "normalize_embeddings": ({"normalize_embeddings": True}, {}),
    "truncate_dim": ({"truncate_dim": 12}, {}),
    "precision": ({"precision": "ubinary"}, {"precision": "ubinary"}),
    "all": ({"normalize_embeddings": True, "truncate_dim": 12, "precision": "int8"}, {"precision": "int8"}),
}
"""By name: the format of vectors, and the part of it that an adapter, a group or an index leaves out."""


@pytest.mark.parametrize("name", FORMATS)
def test_a_format_is_an_option_and_an_argument_of_every_encode_method(folders, name):
    vector_format, _ = FORMATS[name]
    plain, many = InBedder(folders["masked"]), TEXTS * 30
    for model in (InBedder(folders["masked"], **vector_format), plain.replace(**vector_format)):
        calls = {
            "encode": (TEXTS, QUESTION),
            "encode_query": (TEXTS, QUESTION),
            "encode_document": (TEXTS,),
            "encode_many": (TEXTS, [QUESTION, "Why?"]),
            "encode_guided": ([f"{text} {number}" for number, text in enumerate(many)], QUESTION),
        }
        for method, arguments in calls.items():
            sample = {"sample": 60} if method == "encode_guided" else {}
            by_option = getattr(model, method)(*arguments, **sample)
            by_argument = getattr(plain, method)(*arguments, **sample, **vector_format)
            unformatted = getattr(plain, method)(*arguments, **sample)
            np.testing.assert_array_equal(by_option, by_argument)
            assert by_option.dtype == by_argument.dtype == PRECISIONS[vector_format.get("precision", "float32")]
            assert by_option.shape != unformatted.shape or not np.array_equal(by_option, unformatted)
    packed = plain.replace(precision="ubinary")
    np.testing.assert_array_equal(packed.encode(TEXTS, QUESTION, precision="float32"), plain.encode(TEXTS, QUESTION))


@pytest.mark.parametrize("name", FORMATS)
def test_a_format_without_a_question_reaches_the_base_encoder(folders, name):
    vector_format, _ = FORMATS[name]
    model = InBedder(folders["based"], **vector_format)
    np.testing.assert_array_equal(model.encode(TEXTS), InBedder(folders["based"]).encode(TEXTS, **vector_format))
    np.testing.assert_array_equal(model.encode(TEXTS), model.base_encoder.encode(TEXTS, **vector_format))


@pytest.mark.parametrize("name", ["precision", "all"])
def test_groups_searches_and_the_cache_compute_with_float32(folders, name, tmp_path):
    vector_format, rounding = FORMATS[name]
    unrounded = {option: value for option, value in vector_format.items() if option not in rounding}
    plain, model = InBedder(folders["masked"], **unrounded), InBedder(folders["masked"], **vector_format, cache=tmp_path / "c")
    np.testing.assert_array_equal(model.encode(TEXTS, QUESTION), plain.encode(TEXTS, QUESTION, **rounding))
    np.testing.assert_array_equal(model.replace(precision="float32").encode(TEXTS, QUESTION), plain.encode(TEXTS, QUESTION))
    results = [cluster(TEXTS, QUESTION, each, k=2) for each in (plain, model)]
    np.testing.assert_array_equal(results[0].embeddings, results[1].embeddings)
    for result, loaded in zip(results, reversed((plain, model)), strict=True):
        result.save(folder := tmp_path / loaded.options.encoding.precision)
        np.testing.assert_array_equal(Grouping.load(folder, loaded).assign(TEXTS).labels, results[0].labels)
    scores = [classify(TEXTS, QUESTION, ["cats", "dogs"], model=each).scores for each in (plain, model)]
    np.testing.assert_array_equal(*scores)
    index_module = pytest.importorskip("inbedder.search")
    hits = [
        index_module.Index.create(tmp_path / f"index{number}", TEXTS, each).search("cats", instruction=QUESTION, k=3)
        for number, each in enumerate((plain, model))
    ]
    assert list(hits[0]["id"]) == list(hits[1]["id"])
    assert_close(*(table["score"].to_numpy() for table in hits))
    assert model.dimension == plain.dimension


@pytest.mark.parametrize("name", FORMATS)
def test_a_request_to_a_server_overrides_the_models_precision(folders, name):
    pytest.importorskip("fastapi")
    from starlette.testclient import TestClient

    from inbedder.cli.serve import _as_settings
    from inbedder.server.app import make_app
    from inbedder.server.settings import Settings

    vector_format, rounding = FORMATS[name]
    settings = Settings(model=[f"tiny={folders['masked']}"], **_as_settings(vector_format))
    models = {name: InBedder(path, **settings.get_model_options()) for name, path in settings.named_models.items()}
    body = {"input": TEXTS, "instruction": QUESTION, "normalized": False}
    plain = InBedder(folders["masked"], **{key: value for key, value in vector_format.items() if key not in rounding})
    with TestClient(make_app(models, settings), base_url="http://127.0.0.1:8765") as client:
        for precision in (None, "float32", "int8"):
            response = client.post("/v1/embeddings", json={**body, "precision": precision}).json()
            expected = plain.encode(TEXTS, QUESTION, precision=precision or vector_format.get("precision"))
            assert_close(np.array([row["embedding"] for row in response["data"]]), expected)
        floats = client.post(
            "/v2/embed", json={"texts": TEXTS, "instruction": QUESTION, "model": "tiny", "input_type": "clustering"}
        )
    unit = normalize_vectors(plain.encode(TEXTS, QUESTION))
    assert_close(np.array(floats.json()["embeddings"]["float"]), unit)


def make_flags(options):
    """Return the command-line flags of options."""
    by_name = {option.name: option for kind in (ModelOptions, EncodingOptions, Reencoding) for option in fields(kind)}
    flags = []
    for name, value in options.items():
        if name == "reencoding":
            for option in fields(Reencoding):
                flags += [get_option_info(option).flags[0], str(getattr(value, option.name))]
            continue
        flag = (get_option_info(by_name[name]).flags or (f"--{name.replace('_', '-')}",))[0]
        if isinstance(value, bool):
            flags.append(flag.split("/")[0 if value else -1])
        else:
            flags += [part for one in (value if isinstance(value, tuple) else [value]) for part in (flag, str(one))]
    return flags


def test_the_command_line(case, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.txt").write_text("\n".join(TEXTS) + "\n")
    options = {name: value for name, value in case.changed.items()}
    command = ["embed", "t.txt", "-i", QUESTION, "--model", case.folder]
    if PYTHON_ONLY & options.keys():
        result = CliRunner().invoke(app, [*command, f"--{sorted(PYTHON_ONLY & options.keys())[0].replace('_', '-')}", "1"])
        assert result.exit_code == 2 and "No such option" in result.output
        return
    result = CliRunner().invoke(app, [*command, *make_flags(options)])
    assert result.exit_code == 0, result.output
    case.expect(np.load("vectors.npy"))


def test_an_explicit_default_differs_from_no_option(folders, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.txt").write_text("\n".join(TEXTS) + "\n")
    cluster(TEXTS, QUESTION, InBedder(folders["masked"], **SHORT), k=1).save(tmp_path / "groups")
    assert CliRunner().invoke(app, ["assign", "groups", "t.txt"]).exit_code == 0
    result = CliRunner().invoke(app, ["assign", "groups", "t.txt", "--max-length", "256"])
    assert result.exit_code == 1 and "max_length was 48 and is 256" in str(result.exception)
    result = CliRunner().invoke(app, ["assign", "groups", "t.txt", "--max-length", "512"])
    assert result.exit_code == 1 and "max_length was 48 and is" in str(result.exception)


COMMANDS = ["embed", "answer", "cluster", "compare-wordings", "assign", "evaluate", "serve", "index build"]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_the_same_options(command):
    group = typer.main.get_command(app)
    for name in command.split():
        group = group.get_command(None, name)
    command_flags = {flag for parameter in group.params for flag in (*parameter.opts, *parameter.secondary_opts)}
    expected = {option.name for kind in (ModelOptions, EncodingOptions) for option in fields(kind)}
    expected -= {"model", "reencoding", *PYTHON_ONLY}
    options = {option.name: option for kind in (ModelOptions, EncodingOptions) for option in fields(kind)}
    for name in expected:
        flags = get_option_info(options[name]).flags or (f"--{name.replace('_', '-')}",)
        assert {flag for both in flags for flag in both.split("/")} <= command_flags, name
