"""The command ``inbedder demo``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from inbedder.cli.cluster import cluster
from inbedder.cli.shared_options import Model, check_output, print_message

QUESTIONS = ("What does the customer need?", "How does the customer feel?")


def demo(
    output: Annotated[
        Path, typer.Option("-o", "--output", help="A .html report; groups.csv is written to the same folder.")
    ] = Path("report.html"),
    k: Annotated[str, typer.Option("-k", help="Number of groups of each question, or auto.")] = "auto",
    model: Model = "mini",
) -> None:
    """Group 400 bundled texts by two questions."""
    from inbedder.runtime.package_data import find_data_folder

    check_output(output, (".html",))
    cluster(
        source=str(find_data_folder("inbedder", "demo_texts") / "bank_questions.csv"),
        instructions=list(QUESTIONS),
        output=[output, output.with_name("groups.csv")],
        k=[k],
        model=model,
    )
    print_message(f"Open {output} in a browser.")
