"""The command ``inbedder demo``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from inbedder.cli.cluster import cluster
from inbedder.cli.crosstab_tables import CrossTabOptions
from inbedder.cli.shared_options import Model, check_output, print_message

QUESTIONS = ("What is being reviewed?", "Is the review positive or negative?")


def demo(
    output: Annotated[
        Path, typer.Option("-o", "--output", help="A .html report; groups.csv is written to the same folder.")
    ] = Path("report.html"),
    k: Annotated[str, typer.Option("-k", help="Number of groups of the first question, or auto; the second has two.")] = "6",
    model: Model = "mini",
) -> None:
    """Group 400 bundled reviews by two questions."""
    from inbedder.runtime.package_data import find_data_folder

    check_output(output, (".html",))
    cluster(
        source=str(find_data_folder("inbedder", "demo_texts") / "reviews.csv"),
        instructions=list(QUESTIONS),
        output=[output, output.with_name("groups.csv")],
        k=[k, "2"],
        label_column=["polarity"],
        crosstab_options=CrossTabOptions(by=["polarity"]),
        apart_from=QUESTIONS[1],
        model=model,
    )
    print_message(f"Open {output} in a browser.")
