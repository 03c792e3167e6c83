#!/usr/bin/env python3
"""Write the tables of README.md, docs/, the bundled model's card, evaluation/ and finetune/ from the committed results (*.json).

python scripts/update_tables.py
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from statistics import mean

from evaluation.paper import published_table
from evaluation.results import load_cells, markdown, table

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "evaluation" / "results"
EXPERIMENTS = ROOT / "finetune" / "results"
BENCHMARKS = ROOT / "scripts" / "results"
PAGES = (
    ROOT / "README.md",
    ROOT / "inbedder" / "models" / "mini" / "README.md",
    ROOT / "inbedder" / "models" / "small" / "README.md",
    ROOT / "evaluation" / "README.md",
    ROOT / "evaluation" / "PAPER.md",
    ROOT / "finetune" / "README.md",
    ROOT / "finetune" / "results" / "mini.md",
    ROOT / "finetune" / "results" / "small.md",
    ROOT / "docs" / "models.md",
    ROOT / "docs" / "explanation.md",
)
MOST_ACROSS = 9
TABLE = re.compile(r"(<!-- results of (\S+)(?: by (\S+))? -->\n).*?(<!-- end of results -->)", re.DOTALL)


def with_tables(page: str) -> str:
    """The page with its tables made anew: tasks down and models across, unless there are more models than fit.

    Args:
        page: Markdown with tables between ``<!-- results of FILE.json -->`` (main scores; with " by SCORE", another one) and
            ``<!-- end of results -->``.

    Returns:
        The page.
    """

    def fill(match: re.Match[str]) -> str:
        if match[2] in BESIDE:
            return f"{match[1]}{markdown(BESIDE[match[2]]())}\n{match[4]}"
        path = next(path for path in (RESULTS / match[2], EXPERIMENTS / match[2]) if path.exists())
        if rows := own_table(path):
            return f"{match[1]}{markdown(rows)}\n{match[4]}"
        rows = table(load_cells(path), score=match[3])
        if len(rows) <= MOST_ACROSS:
            rows = [list(column) for column in zip(*rows, strict=True)]
        return f"{match[1]}{markdown(rows)}\n{match[4]}"

    return TABLE.sub(fill, page)


def on_written_sets() -> list[list[str]]:
    """The table of the bundled models and their bases on the sets written after the paper's.

    Returns:
        Rows of cells, the header first.
    """
    cells = [cell for name in ("mini", "small") for cell in load_cells(RESULTS / f"{name}.json")]
    return table([cell for cell in cells if cell.task.endswith("(written)")])


def wordings_table() -> list[list[str]]:
    """V-measures of mini under single wordings and under the mean over several, means over seeds.

    Returns:
        Rows of cells, the header first.
    """
    names = {"single": "one wording", "mean_of_3": "mean of 3", "mean_of_5": "mean of 5"}
    columns = {f"{key}_{what}": f"{name}: {what}" for key, name in names.items() for what in ("mean", "worst")}
    columns["mean_of_all"] = "mean of 10"
    cells = [cell for cell in load_cells(RESULTS / "wordings.json") if (cell.model, cell.vectors) == ("mini", "raw")]
    rows = [["V-measure", *columns.values()]]
    for task in dict.fromkeys(cell.task for cell in cells):
        scores = [cell.scores for cell in cells if cell.task == task]
        rows.append([task.removesuffix(" wordings"), *(f"{mean(score[column] for score in scores):.1f}" for column in columns)])
    return rows


def names_table() -> list[list[str]]:
    """Marks of the namers, read blind.

    Returns:
        Rows of cells, the header first.
    """
    found = json.loads((BENCHMARKS / "names.json").read_text(encoding="utf-8"))
    rows = [["namer", "mean mark (0 to 2)", f"right, of {found['groups']}", "misleading"]]
    for namer, mark in sorted(found["mean_mark"].items(), key=lambda item: -item[1]):
        rows.append([namer, f"{mark:.2f}", str(found["right"][namer]), str(found["misleading"][namer])])
    return rows


def search_table() -> list[list[str]]:
    """The table of search: each criterion's nDCG@10 by way, and what of its relevant rows stands among 200 candidates.

    Returns:
        Rows, a header row first.
    """
    ways = {"base": "base", "@generic": "@generic", "both": "both", "all read": "instructed", "guided": "guided"}
    ways |= {f"rerank {count}": f"rerank {count}" for count in (50, 100, 200, 500)}
    ways |= {f"200, w {weight}": f"rerank 200, weight {weight}" for weight in ("0.25", "0.5", "auto")}
    ways["recall at 200"] = "recall 200"
    results = json.loads((RESULTS / "search.json").read_text(encoding="utf-8"))["results"]
    rows = [[f"{row['set']}: {row['criterion']}", *(f"{row['scores'][way]:.1f}" for way in ways.values())] for row in results]
    means = [f"{mean(row['scores'][way] for row in results):.1f}" for way in ways.values()]
    return [["searched", *ways], *rows, ["mean", *means]]


def index_table() -> list[list[str]]:
    """The table of an index's speed and size.

    Returns:
        Rows, a header row first.
    """
    found = json.loads((BENCHMARKS / "index_speed.json").read_text(encoding="utf-8"))
    header = ["rows", "engine", "cold", "warm", "warm, CPU", "candidates alone", "MB on disk", "recall of the exact 200"]
    return [header] + [
        [
            f"{size['rows']:,}",
            size["engine"].partition(":")[0].partition(" ")[0],
            *(f"{size[name]:.0f}" for name in ("ms_cold", "ms_warm", "cpu_ms_warm", "ms_engine")),
            f"{size['bytes'] / 1e6:,.0f}",
            str(size.get("recall_of_exact", "1.0")),
        ]
        for size in found["sizes"]
    ]


def serve_table() -> list[list[str]]:
    """Requests per second and waiting times of the server by the number of clients, and its memory over a long run.

    Returns:
        Rows of cells, the header first.
    """
    content = json.loads((BENCHMARKS / "serve.json").read_text(encoding="utf-8"))
    rows = [["one text per request, on 2 cores", "clients", "requests per second", "p50 ms", "p95 ms", "p99 ms", "memory"]]
    rows.append(["mini in a loop, no server", "", f"{content['one_at_a_time']:.0f}", "", "", "", ""])
    for name, loads in content.items():
        for load in loads if isinstance(loads, list) else ():
            times = [f"{load[column]:.0f}" for column in ("p50", "p95", "p99")]
            rows.append([name, str(load["clients"]), f"{load['per_second']:.0f}", *times, ""])
    long = content["memory"]
    times = [f"{long[column]:.0f}" for column in ("p50", "p95", "p99")]
    memory = f"{long['before_mb']:.0f} to {long['after_mb']:.0f} MB ({100 * long['growth']:+.1f}%)"
    name = f"inbedder serve, {long['requests']:,} more requests"
    return [*rows, [name, str(long["clients"]), f"{long['per_second']:.0f}", *times, memory]]


def speed_table() -> list[list[str]]:
    """Texts per second and memory of the bundled models.

    Returns:
        Rows of cells, the header first.
    """
    columns = ("model", "dtype", "texts_per_second", "texts_per_second_whole_text", "peak_mib")
    rows = [["model", "precision", "texts per second", "asked about the whole text", "MiB at most", "machine"]]
    for path in sorted(BENCHMARKS.glob("models*.json")):
        content = json.loads(path.read_text(encoding="utf-8"))
        rows += [[*(str(row.get(column, "")) for column in columns), content["machine"]] for row in content["models"]]
    return rows


def questions_table() -> list[list[str]]:
    """How far two groups under two questions are the ratings of the demo's reviews.

    Returns:
        Rows of cells, the header first.
    """
    content = json.loads((BENCHMARKS / "two_questions.json").read_text(encoding="utf-8"))
    return [["question", "V-measure with the ratings"], *([row["question"], str(row["v_measure"])] for row in content["results"])]


def csts_table() -> list[list[str]]:
    """Both correlations of the encoders trained on the rows of C-STS itself, means over seeds with their standard deviation.

    Returns:
        Rows of cells, the header first.
    """
    cells = load_cells(EXPERIMENTS / "csts_real.json")
    spearman, pearson = (dict((row[0], row[1:]) for row in table(cells, score=score)) for score in ("spearman", "pearson"))
    seeds = {model: str(len({cell.seed for cell in cells if cell.model == model})) for model in spearman}
    header = ["encoder", "seeds", "Spearman, test", "Pearson, test", "Spearman, validation"]
    place = {split: spearman["model"].index(f"C-STS (csts-real.csv){split}") for split in ("", ", validation")}
    columns = ((spearman, ""), (pearson, ""), (spearman, ", validation"))
    return [
        header,
        *([model, seeds[model], *(of[model][place[split]] for of, split in columns)] for model in spearman if model != "model"),
    ]


def own_table(path: Path) -> list[list[str]]:
    """The table that a file of results holds itself.

    Args:
        path: A file of results.

    Returns:
        Rows of cells, the header first; none where it holds cells of evaluation.
    """
    content = json.loads(path.read_text(encoding="utf-8"))
    return list(content.get("table", [])) if isinstance(content, dict) else []


def benchmark_table() -> list[list[str]]:
    """The table of the benchmark: each case's median ratio with its spread on each kind of CPU, tiny models left out.

    Returns:
        Rows of cells, the header first.
    """
    kinds = {
        "benchmark-avx512-bf16.json": "AVX512 with bfloat16",
        "benchmark-avx512-bf16-zen4.json": "the same, Zen 4",
        "benchmark-avx2.json": "the first, held to AVX2",
        "benchmark-avx512.json": "AVX512 without, before",
    }
    found: dict[str, dict[str, str]] = {}
    for file, kind in kinds.items():
        for case in json.loads((BENCHMARKS / file).read_text(encoding="utf-8"))["cases"]:
            if "ratio" in case and " tiny: " not in case["name"]:
                row = found.setdefault(case["name"], {"goal": f"{case['goal']:.1f}"})
                row[kind] = "{ratio:.1f} ({smallest:.1f} to {largest:.1f})".format(**case)
    columns = [*kinds.values(), "goal"]
    return [
        ["two ways, side by side", *columns],
        *([name, *(row.get(key, "") for key in columns)] for name, row in found.items()),
    ]


def engines_table() -> list[list[str]]:
    """The engines of two CPUs: how fast beside sentence-transformers in float32, and what they change (on the second).

    Returns:
        Rows of cells, the header first.
    """
    newer, older = (
        json.loads((BENCHMARKS / f"engines-avx512-bf16{which}.json").read_text(encoding="utf-8"))["engines"]
        for which in ("", "-zen4")
    )
    corpora = ("8 to 30 words", "200 words")
    changes = {
        "least cosine": "{:.4f}",
        "IntentEmotion (written)": "{:.1f}",
        "InstructSTSB (written)": "{:.1f}",
        "answers kept": "{:.1f} %",
    }
    rows = [["engine", *(f"{corpus}, {cpu}" for cpu in ("Zen 5", "Zen 4") for corpus in corpora), *changes]]
    for name, row in older.items():
        speeds = [one.get("times as fast", {}).get(corpus) for one in (newer.get(name, {}), row) for corpus in corpora]
        fast = ["" if speed is None else f"{speed:.2f}" for speed in speeds]
        rows.append([name, *fast, *(form.format(row[key]) if key in row else "" for key, form in changes.items())])
    return rows


def decoders_table() -> list[list[str]]:
    """One decoder's weights on several engines, beside transformers in float32.

    Returns:
        Rows of cells, the header first.
    """
    found = json.loads((BENCHMARKS / "decoders-avx512-bf16.json").read_text(encoding="utf-8"))
    rows = [["engine", "times as fast", "least cosine"]]
    rows += [[name, f"{row['times as fast']:.2f}", f"{row['least cosine']:.4f}"] for name, row in found["engines"].items()]
    return rows


BESIDE = {
    "engines-*.json": engines_table,
    "decoders-*.json": decoders_table,
    "search.json": search_table,
    "index_speed.json": index_table,
    "paper.json": published_table,
    "beside_the_paper": on_written_sets,
    "wordings.json": wordings_table,
    "names.json": names_table,
    "serve.json": serve_table,
    "csts_real.json": csts_table,
    "benchmark-*.json": benchmark_table,
    "models.json": speed_table,
    "two_questions.json": questions_table,
}
"""Tables that are not made of the main scores of one file of results."""


if __name__ == "__main__":
    for path in PAGES:
        path.write_text(with_tables(path.read_text(encoding="utf-8")), encoding="utf-8")
