#!/usr/bin/env python3
"""Make results small enough to commit: only cells of raw vectors, of the newest weights and data, one line per cell.

python scripts/dev/compact_results.py evaluation/results/wordings.json ...
"""

from __future__ import annotations

import sys
from pathlib import Path

from inbedder_evaluation.results import load_cells, save_cells, select_newest

for name in sys.argv[1:]:
    path = Path(name)
    cells = load_cells(path)
    save_cells([cell for cell in select_newest(cells) if cell.vectors == "raw"], path)
    print(f"{path}: {len(cells)} cells, {len(load_cells(path))} kept, {path.stat().st_size} bytes")
