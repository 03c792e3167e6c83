"""Loss curve and model card of a training run."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from inbedder.io.files import atomic_write


def save_curve(history: Sequence[dict[str, Any]], path: Path) -> bool:
    """Plot the losses of a run.

    Args:
        history: The trainer's log: entries with step, and loss or eval_loss.
        path: A .png file.

    Returns:
        Whether the file was written; it is not when matplotlib is missing.
    """
    try:
        import matplotlib
    except ImportError:
        return False
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4), layout="constrained")
    for key, name in (("loss", "training rows"), ("eval_loss", "held-out rows")):
        points = [(entry["step"], entry[key]) for entry in history if key in entry]
        if points:
            axes.plot(*zip(*points, strict=True), label=name, marker="o" if key == "eval_loss" else None, markersize=3)
            axes.legend(frameon=False)
    axes.set_xlabel("step")
    axes.set_ylabel("loss")
    with atomic_write(path) as temporary:
        figure.savefig(temporary, format="png", dpi=120)
    pyplot.close(figure)
    return True


def render_card(
    settings: Mapping[str, Any],
    summary: str,
    licences: Mapping[str, str | None],
    sources: Sequence[str],
    history: Sequence[dict[str, Any]],
    seconds: float,
) -> str:
    """Render the model card of a run.

    Args:
        settings: All settings of the recipe, as nested tables.
        summary: What the model is and how to use it.
        licences: Source name -> licence.
        sources: Source name of each training row.
        history: The trainer's log.
        seconds: Training time in seconds.

    Returns:
        Markdown.
    """
    counts = [(name, sources.count(name), licence or "not stated in the recipe") for name, licence in licences.items()]
    table = "\n".join(f"| {name} | {count:,} | {licence} |" for name, count, licence in counts)
    last = {key: [entry[key] for entry in history if key in entry][-1:] for key in ("loss", "eval_loss")}
    losses = ", ".join(f"{key} {values[0]:.3f}" for key, values in last.items() if values)
    steps = max((entry["step"] for entry in history if "step" in entry), default=0)
    shown_settings = json.dumps({key: value for key, value in settings.items() if key != "data"}, indent=1)
    return f"""# {Path(settings["training"]["output"]).name}

{summary}

| data | rows | licence |
| --- | --: | --- |
{table}

{len(sources):,} rows, {steps:,} steps, {seconds / 60:.1f} minutes. Last losses: {losses or "not logged"}.

```json
{shown_settings}
```
"""
