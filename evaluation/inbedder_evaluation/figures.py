"""Figures of results as PNG files: bars, lines, box plots and word tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from inbedder.errors import InputError, MissingExtraError
from inbedder.io.files import atomic_write
from inbedder_evaluation.results import Cell, select_newest
from inbedder_evaluation.tasks.robustness import KINDS

COLOURS = ("#4269d0", "#efb118", "#ff725c", "#6cc5b0", "#3ca951", "#ff8ab7", "#a463f2", "#97bbf5", "#9c6b4e", "#9498a0")


def _make_canvas(width: float, height: float, panels: int = 1) -> tuple[Any, Any]:
    """Make a figure and return it with its first panel."""
    try:
        import matplotlib
    except ImportError as error:
        raise MissingExtraError("matplotlib", "mteb", "inbedder-evaluation") from error
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, grid = pyplot.subplots(1, panels, figsize=(width, height), layout="constrained", sharey=True, squeeze=False)
    for axes in grid[0]:
        axes.spines[["top", "right"]].set_visible(False)
    return figure, grid[0][0]


def _save(figure: Any, path: Path) -> None:
    from matplotlib import pyplot

    with atomic_write(path) as temporary:
        figure.savefig(temporary, format="png", dpi=150, bbox_inches="tight", pad_inches=0.1)
    pyplot.close(figure)


def draw_bars(scores: Mapping[str, Mapping[str, float]], path: Path, title: str = "") -> None:
    """Draw grouped bars: one group per key of the outer mapping, one bar per key of the inner mapping.

    Args:
        scores: Score by group and series.
        path: A .png file.
        title: Title of the figure.
    """
    series = list(dict.fromkeys(name for inner in scores.values() for name in inner))
    names = [name.replace(", ", "\n").replace(" at ", "\nat ") for name in scores]
    longest = max(len(line) for name in names for line in name.splitlines())
    figure, axes = _make_canvas(max(5.0, 1.2 + len(scores) * max(0.28 * len(series) + 0.4, 0.065 * longest)), 4)
    width = 0.8 / len(series)
    for number, name in enumerate(series):
        positions = [group + (number - (len(series) - 1) / 2) * width for group in range(len(scores))]
        heights = [inner.get(name, float("nan")) for inner in scores.values()]
        artist = axes.bar(positions, heights, width * 0.92, label=name, color=COLOURS[number % len(COLOURS)])
        axes.bar_label(artist, fmt="%.0f", fontsize=7, padding=1)
    axes.set_xticks(range(len(scores)), names, fontsize=8)
    axes.axhline(0, color="black", linewidth=0.6)
    axes.set_ylabel("score")
    axes.set_title(title, fontsize=10)
    figure.legend(loc="outside right upper", fontsize=7, frameon=False)
    _save(figure, path)


def draw_lines(panels: Mapping[str, Mapping[int, Mapping[str, float]]], path: Path, label: str = "layer") -> None:
    """Draw one line per series over layers or another count, in panels side by side with a shared scale.

    Args:
        panels: Score by panel title, layer and series.
        path: A .png file.
        label: Label of the x-axis.
    """
    figure, first = _make_canvas(7 * len(panels), 4, len(panels))
    series = list(dict.fromkeys(name for scores in panels.values() for inner in scores.values() for name in inner))
    for axes, (title, scores) in zip(figure.axes, panels.items(), strict=True):
        for number, name in enumerate(series):
            positions = [x for x, inner in scores.items() if name in inner]
            heights = [scores[x][name] for x in positions]
            axes.plot(positions, heights, marker="o", markersize=4, label=name, color=COLOURS[number % len(COLOURS)])
        axes.set_xticks(list(scores))
        axes.set_xlabel(label)
        axes.set_title(title, fontsize=10)
    first.set_ylabel("score")
    handles, names = first.get_legend_handles_labels()
    figure.legend(handles, names, loc="outside right upper", fontsize=7, frameon=False)
    _save(figure, path)


def draw_robustness_boxes(cells: Sequence[Cell], path: Path) -> None:
    """Draw box plots of V-measures under correct, implicit and incorrect instructions (InBedder paper, figures 4 and 7).

    Args:
        cells: Cells of robustness tasks; others are skipped. The plots show raw vectors of models that read the instruction,
            averaged over seeds, and Δci and Δii between means.
        path: A .png file.

    Raises:
        InputError: If no cell belongs to a robustness task.
    """
    raw = [
        cell
        for cell in select_newest(cells)
        if cell.vectors == "raw" and "delta_ci_means" in cell.scores and not cell.model.endswith(", no instruction")
    ]
    if not raw:
        raise InputError("These results hold no robustness task. Run inbedder evaluate --data FOLDER --task robustness first.")
    tasks = list(dict.fromkeys(cell.task for cell in raw))
    models = shorten_names(list(dict.fromkeys(cell.model for cell in raw)))
    figure, axes = _make_canvas(max(6.0, 1.5 + 1.2 * len(tasks) * len(models)), 4.2)
    ticks, place = [], 0.0
    for task in tasks:
        start = place
        for model, label in models.items():
            own_cells = [cell for cell in raw if (cell.task, cell.model) == (task, model)]
            if not own_cells:
                continue
            for number, kind in enumerate(KINDS):
                values = [
                    sum(c.scores[key] for c in own_cells) / len(own_cells)
                    for key in own_cells[0].scores
                    if _is_numbered_score(key, kind)
                ]
                box = axes.boxplot(values, positions=[place + 0.25 * number], widths=0.2, patch_artist=True, showmeans=True)
                box["boxes"][0].set_facecolor(COLOURS[number])
                box["medians"][0].set_color("black")
            deltas = (sum(cell.scores[f"delta_{kind}_means"] for cell in own_cells) / len(own_cells) for kind in ("ci", "ii"))
            ticks.append((place + 0.25, "{}\nΔci {:.1f}\nΔii {:.1f}".format(label, *deltas)))
            place += 1
        axes.text(
            (start + place - 0.5) / 2,
            1.01,
            task.removesuffix(" robustness"),
            fontsize=7,
            ha="center",
            transform=axes.get_xaxis_transform(),
        )
        place += 0.5
    axes.set_xticks([x for x, _ in ticks], [name for _, name in ticks], fontsize=6)
    axes.set_ylabel("V-measure")
    handles = [axes.plot([], [], "s", color=COLOURS[number], label=kind)[0] for number, kind in enumerate(KINDS)]
    figure.legend(handles=handles, loc="outside upper center", ncols=3, fontsize=8, frameon=False)
    _save(figure, path)


def shorten_names(names: Sequence[str]) -> dict[str, str]:
    """Shorten names of models for a figure.

    Args:
        names: Distinct names, such as "owner/model, re-enc".

    Returns:
        By name: "model" if no other name has the same, else the whole name with one part per line.
    """
    short = [name.split(", ")[0].rpartition("/")[2] for name in names]
    return {
        name: label if short.count(label) == 1 else name.replace(", ", "\n") for name, label in zip(names, short, strict=True)
    }


def _is_numbered_score(key: str, kind: str) -> bool:
    return key.startswith(f"{kind}_") and key.removeprefix(f"{kind}_").isdigit()


def draw_word_table(rows: Sequence[Sequence[str]], path: Path) -> None:
    """Draw a table of words.

    Args:
        rows: A header row and body rows of the same length.
        path: A .png file.
    """
    figure, axes = _make_canvas(13, 0.5 + 0.32 * len(rows))
    axes.axis("off")
    artist = axes.table([list(row) for row in rows[1:]], colLabels=list(rows[0]), loc="center", cellLoc="left")
    artist.auto_set_font_size(False)
    artist.set_fontsize(7)
    artist.auto_set_column_width(list(range(len(rows[0]))))
    _save(figure, path)
