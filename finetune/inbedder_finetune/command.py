"""The command ``inbedder finetune``."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Annotated

import typer

from inbedder.cli.commands import make_app
from inbedder.cli.shared_options import print_message, print_result


def finetune(
    recipe: Annotated[
        Path | None,
        typer.Argument(
            metavar="RECIPE", help="A YAML recipe, or the name of a bundled one, such as csts-bi.", show_default=False
        ),
    ] = None,
    changes: Annotated[list[str], typer.Option("--set", help="Change a setting: section.key=value; repeatable.")] = [],  # noqa: B006
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print prompts, targets and a summary of the data without training.")
    ] = False,
    init: Annotated[
        Path | None,
        typer.Option(metavar="TABLE", help="Write a starting recipe for a table of texts, questions and answers, and exit."),
    ] = None,
) -> None:
    """Fine-tune a model from a recipe."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    if init is not None:
        from inbedder_finetune.init_recipe import write_recipe

        recipe = recipe or Path(f"{init.name.split('.')[0]}.yaml")
        write_recipe(init, recipe)
        print_message(f"Written: {recipe}. Preview it: inbedder finetune {recipe} --dry-run")
        return
    if recipe is None:
        raise typer.BadParameter("give a recipe, or write one with inbedder finetune --init TABLE.", param_hint="RECIPE")
    from inbedder_finetune.registry import read_method

    method, settings = read_method(recipe, changes)
    if dry_run:
        print_result(method.preview(settings))
        return
    if logging.lastResort is not None:
        logging.lastResort.setLevel(logging.INFO)
    logging.getLogger("inbedder_finetune").setLevel(logging.INFO)
    folder = method.finetune(settings)
    embeds = (folder / "inbedder.json").is_file()
    use = f"Use it: inbedder embed INPUT -i '...' --model {folder}" if embeds else f"{folder / 'README.md'} says how to use it."
    print_message(f"{folder}: done. {use}")


app = make_app(finetune, "inbedder finetune recipe.yaml --dry-run")
