"""Explanations of groups next to the labels in them (InBedder paper, section 6 and table 3).

    python -m inbedder_evaluation.sweeps.explain_groups --instructions instructions.json --model MODEL -o table3.json

Each set is grouped under its instruction into as many groups as it has labels, as in the authors' ``propose.py``: k-means with
ten starts on vectors that are not normalized, and texts cut at their start. Each group has the keywords of its answers, the words
that the answer head decodes from its mean minus the corpus mean, and the counts and the entropy of its labels; the lowest entropy
comes first. The sets come from the hub, their instructions from ``scripts/reproduce/authors_instructions.py``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from inbedder.cli.model_options import with_model_options
from inbedder.cli.shared_options import print_message, print_result
from inbedder.embedder import InBedder
from inbedder.errors import InbedderError
from inbedder.grouping.describe.explain import compute_mean_differences, find_keywords, measure_agreement
from inbedder.io.files import atomic_write
from inbedder_evaluation.evaluation_protocol import add_protocol_options
from inbedder_evaluation.results import format_aligned
from inbedder_evaluation.runner import format_command
from inbedder_evaluation.tasks.robustness import LabelledTexts, load_labelled_texts, read_original_instruction

SETS = ("RateMyProf", "Feedbacks", "FewRel", "FewNerd", "FewEvent")
"""The sets of the paper's table 3."""
NUM_WORDS = 20
"""Words per group in the results file."""
NUM_PRINTED_WORDS, NUM_PRINTED_LABELS = 8, 4
"""Words and labels per group in the terminal."""
AUTHORS_SEED = 42


def explain_groups(
    model: InBedder, data: LabelledTexts, instruction: str, *, temperature: float = 0.0, top_p: float = 1.0, seed: int = 0
) -> dict[str, Any]:
    """Group labelled texts and explain each group.

    Args:
        model: A model that answers.
        data: Texts and their labels.
        instruction: The instruction.
        temperature: Sampling temperature of the answers; 0 decodes greedily.
        top_p: Probability mass of nucleus sampling.
        seed: Seed of k-means and of sampled answers.

    Returns:
        Set, source, instruction, number of texts, v_measure (0 to 1) and groups, the lowest entropy first; each has its size,
        entropy (bits), labels (counts), keywords of the answers and decoded words.
    """
    from sklearn.cluster import KMeans

    vectors = model.encode(data.texts, instruction)
    labels = KMeans(n_clusters=len(set(data.labels)), n_init=10, random_state=seed).fit_predict(vectors)
    answers = [str(one) for one in model.answer(data.texts, instruction, temperature=temperature, top_p=top_p, seed=seed)]
    agreement = measure_agreement(labels, data.labels)
    columns = {
        "size": [sum(counts.values()) for counts in agreement.composition],
        "entropy": [round(entropy, 4) for entropy in agreement.entropy],
        "labels": agreement.composition,
        "keywords": find_keywords(answers, labels, NUM_WORDS),
        "decoded": model.nearest_words(compute_mean_differences(vectors, labels), NUM_WORDS),
    }
    groups = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    groups.sort(key=lambda group: group["entropy"])
    facts = {"set": data.name, "source": data.source, "instruction": instruction, "texts": len(data.texts)}
    return {**facts, "v_measure": round(agreement.v_measure, 4), "groups": groups}


def make_table(explanation: dict[str, Any]) -> list[list[str]]:
    """Make a table of a set's groups, the lowest entropy first, with a header row."""
    rows = [["group", "entropy", "labels", "keywords"]]
    for number, group in enumerate(explanation["groups"], start=1):
        labels = ", ".join(f"{label} {count}" for label, count in list(group["labels"].items())[:NUM_PRINTED_LABELS])
        rows.append([str(number), f"{group['entropy']:.2f}", labels, ", ".join(group["keywords"][:NUM_PRINTED_WORDS])])
    return rows


@with_model_options
def main(
    output: Annotated[Path, typer.Option("-o", "--output", help="A .json file.")],
    instructions: Annotated[Path, typer.Option(help="JSON file of the authors' instructions.")],
    model: Annotated[str, typer.Option(help="mini, a hub id or a folder.")] = "mini",
    sets: Annotated[list[str], typer.Option("--set", help="One of the authors' robustness sets; repeatable.")] = list(SETS),  # noqa: B006
    temperature: Annotated[float, typer.Option(min=0, help="Sampling temperature of the answers; the authors' is 0.6.")] = 0.0,
    top_p: Annotated[float, typer.Option(help="Nucleus sampling threshold; the authors' is 0.9.")] = 1.0,
    seed: Annotated[int, typer.Option(help="Seed of k-means and of sampled answers.")] = AUTHORS_SEED,
    model_options: dict[str, Any] = {},  # noqa: B006 - the decorator fills it
) -> None:
    """Group the paper's sets and explain each group next to the labels in it."""
    questions = {name: read_original_instruction(instructions, name) for name in sets}
    loaded = InBedder(model, **add_protocol_options(model_options, "paper"))
    explanations = []
    for name, question in questions.items():
        data = load_labelled_texts(name)
        explanation = explain_groups(loaded, data, question, temperature=temperature, top_p=top_p, seed=seed)
        print_result(f"\n{name}: V-measure {explanation['v_measure']:.2f}\n{format_aligned(make_table(explanation))}")
        explanations.append(explanation)
        content = {"command": format_command(), "model": model, "spec": loaded.spec.contents(), "sets": explanations}
        with atomic_write(output) as temporary:
            temporary.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print_message(f"Written: {output}")


if __name__ == "__main__":
    try:
        typer.run(main)
    except InbedderError as error:
        raise SystemExit(f"error: {error}") from error
