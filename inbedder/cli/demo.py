"""``inbedder demo``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from inbedder.cli.cluster import cluster
from inbedder.cli.shared_options import Model, check_output, say

QUESTIONS = ("What does the customer talk about?", "Is the review positive or negative?")


def demo(
    output: Annotated[Path, typer.Option("-o", "--output", help="A .html report. groups.csv is written beside it.")] = Path(
        "report.html"
    ),
    k: Annotated[str, typer.Option("-k", help="Number of groups of the first question, or auto. The second has two.")] = "6",
    model: Model = "mini",
) -> None:
    """Group 400 reviews that come with inbedder by two questions, and write a page that compares the groupings."""
    from inbedder.package_data import find_data_folder

    check_output(output, (".html",))
    cluster(
        source=str(find_data_folder("inbedder", "demo_texts") / "reviews.csv"),
        instructions=list(QUESTIONS),
        output=[output, output.with_name("groups.csv")],
        k=[k, "2"],
        label_column=["polarity"],
        by=["polarity"],
        model=model,
    )
    say(f"Open {output} in a browser.")
