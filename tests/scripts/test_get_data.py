"""``scripts/data/get_data.py`` converts fetched data sets to the files that tasks read."""

import gzip
import importlib.util
import io
import json
import re
import sys
import zipfile
from pathlib import Path

import pyarrow.parquet
import pytest

from inbedder_evaluation.tasks.sets import read_sets

SCRIPTS = Path(__file__).parents[2] / "scripts"
sys.path.insert(0, str(SCRIPTS / "data"))
SPEC = importlib.util.spec_from_file_location("get_data", SCRIPTS / "data" / "get_data.py")
get_data = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(get_data)

REVIEW = "<review>\n<title>\nSo so\n</title>\n<review_text>\n{}\n</review_text>\n</review>\n"
RELATION = {"P1": [{"tokens": ["A", "is", "in", "B", "."], "h": ["a", "Q1", [[0]]], "t": ["b", "Q2", [[3]]]}]}
NLU = "CrossValidation/autoGeneFromRealAnno/auto/CrossValidation/KFold_{}/testset/csv/alarm_set.csv"
NLU_HEAD = "answerid;scenario;intent;answer_annotation;answer_from_anno;answer_from_user\n"
BRMSON = "brmson/dataset-sts/data"


def pack_zip(name, content):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(name, content)
    return buffer.getvalue()


def pack_parquet(**columns):
    buffer = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table(columns), buffer)
    return buffer.getvalue()


def pack_rows(*rows):
    return gzip.compress("".join(json.dumps(row) + "\n" for row in rows).encode())


MAMS = """<?xml version="1.0" encoding="utf-8"?>
<sentences><sentence><text>Good food, rude.</text><aspectCategories>
<aspectCategory category="food" polarity="positive"/><aspectCategory category="staff" polarity="negative"/>
</aspectCategories></sentence></sentences>"""
ACT = {"input": "Where is it?", "kind": "dialogue_act", "output": "ask", "domain": "hotels"}
LEVEL = {"input": "Easy text.", "kind": "reading_level", "level": "elementary", "group": "Fast food-12"}
# data set -> its files as the repositories store them, and the resulting rows (the fields that tasks read)
FETCHED = {
    "stsb": (
        {f"PhilipMay/stsb-multi-mt/data/stsb-en-{split}.csv": 'A girl.,"A girl, too.",2.5\n' for split in ("test", "dev")},
        [["A girl.", "A girl, too.", 2.5]],
    ),
    "sick": (
        {
            f"{BRMSON}/sts/sick2014/SICK_test_annotated.txt": "pair_ID\tsentence_A\tsentence_B\trelatedness_score\n"
            '1\tOne "so\tTwo\t3.3\n'
        },
        [['One "so', "Two", 3.3]],
    ),
    "sts12": (
        {
            f"{BRMSON}/sts/semeval-sts/2012/MSRpar.test.tsv": "4.4\tA.\tB.\n\tno score\tC.\n",
            "amao0o0/SynWMD/data/downstream/STS/STS12-en-test/test-gold/STS.input.MSRvid.txt": "D.\tE.\n",
            "amao0o0/SynWMD/data/downstream/STS/STS12-en-test/test-gold/STS.gs.MSRvid.txt": "0.5\n",
        },
        [["A.", "B.", 4.4], ["D.", "E.", 0.5]],
    ),
    "sts13": ({f"{BRMSON}/sts/semeval-sts/2013/FNWN.test.tsv": "0.6\tA.\tB.\n"}, [["A.", "B.", 0.6]]),
    "mrpc": (
        {
            f"{BRMSON}/para/msr/msr-para-{split}.tsv": "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\r\n1\t7\t8\tA.\tB.\r\n"
            for split in ("train", "test")
        },
        [["A.", "B.", 1]],
    ),
    "amazon_multidomain": (
        {
            "ephyros/nlp/data/sorted_data_acl/dvd/negative.review": REVIEW.format("bad & long\n\nfilm"),
            "ephyros/nlp/data/sorted_data_acl/dvd/positive.review": REVIEW.format("good film"),
            "ephyros/nlp/data/sorted_data_acl/books/positive.review": REVIEW.format("good book"),
        },
        [["good book", "books", "positive"], ["good film", "dvd", "positive"], ["bad & long\n\nfilm", "dvd", "negative"]],
    ),
    "airline_tweets": (
        {
            "Ramlah0/Twitter-US-Airline-Sentiment-Analysis/Tweets.csv": "tweet_id,airline_sentiment,negativereason,airline,text\n"
            '1,negative,Late Flight,United,"late,\nagain"\n2,neutral,,Delta,hi\n'
        },
        [["late,\nagain", "United", "Late Flight"], ["hi", "Delta", None]],
    ),
    "acos_restaurant": (
        {"NUSTM/ACOS/data/Restaurant-ACOS/rest16_quad_train.tsv": "good food , rude\t1,2 FOOD#QUALITY 2 0,1\t-1,-1 A#B 0 3,4\n"},
        [["good food , rude", ["A#B", "FOOD#QUALITY"], ["negative", "positive"]]],
    ),
    "mams_acsa": (
        {"siat-nlp/MAMS-for-ABSA/data/MAMS-ACSA/raw/val.xml": MAMS},
        [["Good food, rude.", "positive", "negative"]],
    ),
    "multiwoz_dialogue_acts": (
        {
            "training/multiwoz_dialogue_acts.jsonl.gz": pack_rows(
                ACT, {**ACT, "output": "ask, greet"}, {**ACT, "domain": None}, {**ACT, "kind": "domain", "output": "hotels"}
            )
        },
        [["Where is it?", "ask", "hotels"]],
    ),
    "onestopenglish_levels": (
        {"training/onestopenglish_levels.jsonl.gz": pack_rows(LEVEL, {**LEVEL, "kind": "wording"})},
        [["Easy text.", "elementary", "Fast food"]],
    ),
    "csts": (
        {
            "LivNLP/CSTS-reannotation/docs/dataset.zip": pack_zip(
                "dataset/csts_train_reannotated.csv", "sentence1,sentence2,condition,label\nA.,B.,colour,3.0\n"
            )
        },
        [["A.", "B.", "colour", 3.0]],
    ),
    "clinc150": (
        {
            "clinc/oos-eval/data/data_full.json": json.dumps({"test": [["hi", "greet"]], "train": []}),
            "clinc/oos-eval/data/domains.json": json.dumps({"small_talk": ["greet"]}),
        },
        [["hi", "greet", "small_talk"]],
    ),
    "hwu64": (
        {
            f"xliuhw/NLU-Evaluation-Data/{NLU.format(fold)}": f'{NLU_HEAD}{fold};alarm;set;"x";"wake me";"Wake me {fold}!"\n'
            for fold in (1, 2, 10)
        },
        [[f"Wake me {fold}!", "alarm", "alarm_set"] for fold in (1, 10, 2)],
    ),
    "banking77": (
        {"PolyAI-LDN/task-specific-datasets/banking_data/test.csv": "text,category\nWhere is it?,card_arrival\n"},
        [["Where is it?", "card_arrival"]],
    ),
    "mini_newsgroups20": (
        {"vaishnavivisweswaraiah/IR_TextMining/mini_newsgroups/sci.med/59": "From: a\nSubject: Re: pain \n\nbody\nSubject: no"},
        [["Re: pain", "sci.med"]],
    ),
    "stackoverflow_titles": (
        {
            "jacoxu/StackOverflow/rawText/title_StackOverflow.txt": "How ?\nWhy ?\n",
            "jacoxu/StackOverflow/rawText/label_StackOverflow.txt": "18\n3\n",
        },
        [["How ?", 18], ["Why ?", 3]],
    ),
    "fewrel": (
        {"thunlp/FewRel/data/val_wiki.json": json.dumps(RELATION)},
        [["A is in B . The relation between a and b.", "P1"]],
    ),
    "fewnerd": (
        {
            "antonioloison/structshot/data/fewnerd/big_test.txt": "Anna\tB-person_actor\nLee\tI-person_actor\n,\tO\n"
            "Bob\tB-person_actor\n\nNo\tO\n\nUN\tB-organization_government/governmentagency\n"
        },
        [
            ["Anna Lee , Bob The entity type of Anna Lee.", "person_actor"],
            ["Anna Lee , Bob The entity type of Bob.", "person_actor"],
            ["UN The entity type of UN.", "organization_government/governmentagency"],
        ],
    ),
    "sentconv_mr": (
        {"harvardnlp/sent-conv-torch/data/rt-polarity.all": "0 so na\u00efve . \n".encode("latin-1")},
        [["so na\u00efve . ", 0]],
    ),
    "sentconv_subj": ({"harvardnlp/sent-conv-torch/data/subj.all": "1 he left .\n"}, [["he left .", 1]]),
    "sentconv_sst5": (
        {f"harvardnlp/sent-conv-torch/data/stsa.fine.{split}": "4 fine .\n" for split in ("train", "test")},
        [["fine .", 4]],
    ),
    "trec_questions": (
        {f"harvardnlp/sent-conv-torch/data/raw/TREC.{split}": "NUM:dist How far ?\n" for split in ("train", "test")},
        [["How far ?", "NUM"]],
    ),
    "geoquery": (
        {
            f"xlang-ai/instructor-embedding/evaluation/prompt_retrieval/data/geoquery_{split}.json": json.dumps(
                [{"question": "q", "sql_template": "s"}]
            )
            for split in ("train", "eval")
        },
        [["q", "s"]],
    ),
    "multirc_answerability": (
        {
            "xlang-ai/instructor-embedding/evaluation/prompt_retrieval/data/multric_answerability.json": json.dumps(
                {"Instances": [{"input": "Sentence: He left. \nQuestion: Who left?", "output": ["No."]}]}
            )
        },
        [["He left.", "Who left?", 1]],
    ),
    "glue_rte": (
        {
            f"nyu-mll/glue/rte/{split}-00000-of-00001.parquet": pack_parquet(
                sentence1=["It rains."], sentence2=["It is wet."], label=[0]
            )
            for split in ("train", "validation")
        },
        [["It rains.", "It is wet.", 0]],
    ),
    "scidocs_rr": (
        {"mteb/scidocs-reranking/test.jsonl.gz": gzip.compress(b'{"query": "q", "positive": ["p"], "negative": ["n"]}\n')},
        [["q", ["p"], ["n"]]],
    ),
}


def fetch(folder, files):
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())


def read_converted(path):
    return [json.loads(line) for line in gzip.open(path, "rt", encoding="utf-8")]


@pytest.mark.parametrize("name", FETCHED)
def test_a_fetched_set_becomes_the_rows_that_tasks_read(tmp_path, name):
    files, expected = FETCHED[name]
    fetch(tmp_path / "fetched", files)
    output = get_data.convert_files(name, tmp_path / "fetched", tmp_path / "data")
    source = get_data.read_sources()[name]
    for split in source["files"]:
        rows = read_converted(tmp_path / "data" / name / f"{split}.jsonl.gz")
        assert [[row.get(field) for field in source["reads"]] for row in rows] == expected
    assert output.startswith(f"{name}: ") and f"{len(expected)} rows" in output
    assert ("NOT as in the committed results" in output) == ("sha256" in json.dumps(source))


def test_rows_of_the_committed_results_are_recognized(tmp_path, monkeypatch):
    files, rows = FETCHED["banking77"]
    sources = get_data.read_sources()
    read_rows = [dict(zip(("text", "label"), row, strict=True)) for row in rows]
    sources["banking77"]["files"]["test"]["sha256"] = get_data.hash_rows(read_rows, ["text", "label"])
    monkeypatch.setattr(get_data, "read_sources", lambda: sources)
    fetch(tmp_path, files)
    assert (
        get_data.convert_files("banking77", tmp_path, tmp_path / "data") == "banking77: test 1 rows (as in the committed results)"
    )


def test_a_missing_file_is_named_with_the_command_that_fetches_it(tmp_path, capsys):
    assert get_data.main([str(tmp_path), str(tmp_path / "data"), "banking77"]) == 1
    output = capsys.readouterr().out
    assert "FETCHED has no PolyAI-LDN/task-specific-datasets/banking_data/test.csv" in output
    assert "git clone https://github.com/PolyAI-LDN/task-specific-datasets FETCHED/PolyAI-LDN/task-specific-datasets" in output
    assert get_data.main([str(tmp_path), str(tmp_path), "nope"]) == 2
    assert "Unknown data sets: nope. Known data sets: stsb" in capsys.readouterr().err


def test_every_data_set_has_an_origin_and_a_licence(capsys):
    assert get_data.main([]) == 0
    output, sources = capsys.readouterr().out, get_data.read_sources()
    for one in read_sets():
        for file in () if one.shipped else filter(None, (one.file, one.train)):
            name, _, split = file.partition("/")
            assert split.removesuffix(".jsonl.gz") in sources[name]["files"], file
    for name, source in sources.items():
        assert f"{name}\n  licence: {source['licence']}\n" in output
        assert all(command in output for command in get_data.list_commands(source))


def test_sampled_mentions_stay_in_the_order_of_the_file(tmp_path, monkeypatch):
    path = tmp_path / "big_test.txt"
    path.write_text("\n\n".join(f"n{number:02}\tB-person_actor" for number in range(30)))
    monkeypatch.setattr(sys.modules["data_layouts"], "MAX_MENTIONS", 10)
    texts = [row["text"] for row in get_data.LAYOUTS["fewnerd"]([path])]
    assert len(texts) == 10 and texts == sorted(texts)


def test_every_training_set_has_an_origin_and_a_licence():
    output = get_data.describe_training_sets()
    recipes = [SCRIPTS.parent / "finetune" / "recipes" / "bundled" / f"{name}.yaml" for name in ("mini", "multilingual")]
    names = {name for path in recipes for name in re.findall(r"(\w+)\.jsonl\.gz", path.read_text(encoding="utf-8"))}
    derived_names = {"xquad_parallel", "parallel_texts"}  # of other sets, by make_parallel.py
    assert names - derived_names | {"xquad_multilingual"} == set(re.findall(r"^(\w+): https://github.com/", output, re.MULTILINE))
