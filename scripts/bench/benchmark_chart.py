"""The charts of ``benchmark.py``."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def draw(content: dict[str, Any], path: Path) -> None:
    """Bars of the ratios with their spread on a logarithmic axis, and the guided transform's line."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    cases = [one for one in content["cases"] if "ratio" in one]
    line = [row for one in content["cases"] for row in one.get("line", [])]
    pyplot.close("all")
    figure, axes = pyplot.subplots(figsize=(11, 0.36 * len(cases) + 1.2), layout="constrained")
    ratios = [case["ratio"] for case in cases]
    spread = [[case["ratio"] - case["smallest"] for case in cases], [case["largest"] - case["ratio"] for case in cases]]
    names = [case["name"] for case in cases]
    bars = axes.barh(names, ratios, xerr=spread, color="#4269d0", error_kw={"elinewidth": 1})
    axes.plot([case["goal"] for case in cases], names, "|", color="#ff725c", markersize=12, markeredgewidth=2, label="goal")
    axes.bar_label(bars, [f"{ratio:.1f}" for ratio in ratios], padding=6, fontsize=8)
    axes.set(xscale="log", xlabel=f"times as fast, or as small ({content['default_precision']})")
    axes.axvline(1, color="#888", linewidth=0.8)
    axes.invert_yaxis()
    axes.legend(loc="lower right", frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=130)
    if not line:
        return
    figure, axes = pyplot.subplots(figsize=(6, 3.5), layout="constrained")
    for name, style in (("guided", "o-"), ("read (extrapolated)", "s--")):
        axes.plot([one["texts"] for one in line], [one[name] for one in line], style, label=name)
    axes.set(
        xscale="log", yscale="log", xlabel="short texts whose generic vectors are known", ylabel="seconds for a new instruction"
    )
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path.with_name(f"{path.stem}_guided.png"), dpi=130)
