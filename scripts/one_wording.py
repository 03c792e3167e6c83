#!/usr/bin/env python3
"""Write a recipe, and its composed phrases, in which each question has one wording only (an experiment of reproduce_mini.sh).

python scripts/one_wording.py finetune/recipes/mini.yaml DATA runs/one-wording
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import yaml

from finetune.composing import WRITTEN


def main() -> None:
    """Write OUT/recipe.yaml and OUT/data, which holds links to the data and the phrases."""
    recipe_file, data, out = (Path(path) for path in sys.argv[1:])
    recipe = yaml.safe_load(recipe_file.read_text(encoding="utf-8"))
    for source in recipe["data"]["sources"]:
        if "instructions" in source:
            source["instructions"] = source["instructions"][:1]
    (out / "data").mkdir(parents=True, exist_ok=True)
    for file in data.iterdir():
        if not (out / "data" / file.name).exists():
            (out / "data" / file.name).symlink_to(file.resolve())
    recipe["data"]["folder"] = str(out / "data")
    (out / "recipe.yaml").write_text(yaml.safe_dump(recipe), encoding="utf-8")
    phrases: dict[str, Any] = yaml.safe_load((WRITTEN / "opinions.yaml").read_text(encoding="utf-8"))
    phrases["questions"] = {about: wordings[:1] for about, wordings in phrases["questions"].items()}
    for fact in phrases["facts"].values():
        fact["ask"], fact["any"] = fact["ask"][:1], fact["any"][:1]
    (out / "data" / "opinions.yaml").write_text(yaml.safe_dump(phrases, allow_unicode=True), encoding="utf-8")


if __name__ == "__main__":
    main()
