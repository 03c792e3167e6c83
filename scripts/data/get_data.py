#!/usr/bin/env python3
"""Says where each set of DATA comes from and under which licence, and lays out what the user has fetched.

python scripts/data/get_data.py                          a table of the sets, and what to fetch
python scripts/data/get_data.py FETCHED DATA [SET ...]  FETCHED/owner/name are clones; DATA is what inbedder evaluate --data takes

Nothing is downloaded here: many licences allow measuring alone, and who fetches a set accepts its own.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

sys.path.insert(0, str(Path(__file__).parent))
from data_layouts import LAYOUTS

Source = Mapping[str, Any]


def sources() -> dict[str, Source]:
    """What ``data_sources.yaml`` holds, by set."""
    content = yaml.safe_load(Path(__file__).with_name("data_sources.yaml").read_text(encoding="utf-8"))
    return dict(content)


def commands(source: Source) -> list[str]:
    """The commands that fetch a set."""
    if "hub" in source:
        return [f"hf download {source['hub']} --repo-type dataset --local-dir FETCHED/{source['hub']}"]
    clone = "git clone https://github.com/{0} FETCHED/{0} && git -C FETCHED/{0} checkout {1}"
    return [clone.format(name, commit) for name, commit in source["clones"].items()]


def about(names: Sequence[str]) -> str:
    """Licence and origin of sets, in lines for a terminal."""
    lines = []
    for name in names:
        source = sources()[name]
        lines += [name, f"  licence: {source['licence']}", *(f"  {command}" for command in commands(source))]
        lines += [f"  {source['note']}"] if "note" in source else []
    return "\n".join(lines)


TRAINING = """
Training sets of finetune/recipes (--set data.folder=FOLDER): FOLDER/NAME.jsonl.gz holds one object per line, with input (the
text), instruction (the question), output (the answer) and split. They are listed here and not laid out: where the source has
labels instead of questions, a question was written for each kind of label.
"""


def about_training() -> str:
    """Origin and licence of the training sets, a line each."""
    found = yaml.safe_load(Path(__file__).with_name("training_sources.yaml").read_text(encoding="utf-8"))
    return TRAINING + "\n".join(f"{name}: https://github.com/{origin}, {licence}" for name, (origin, licence) in found.items())


def fingerprint(rows: Iterable[Mapping[str, Any]], reads: Sequence[str]) -> str:
    """The first 16 digits of the SHA-256 of what tasks read of rows, in order."""
    digest = hashlib.sha256()
    for row in rows:
        digest.update((json.dumps([row.get(field) for field in reads]) + "\n").encode())
    return digest.hexdigest()[:16]


def lay_out(name: str, fetched: Path, data: Path) -> str:
    """Write the files of one set.

    Args:
        name: The set.
        fetched: Folder of the clones.
        data: Folder of the sets.

    Returns:
        A line that says what was done.
    """
    source = sources()[name]
    if "files" not in source:
        return f"{name}: {source['note']}"
    said = []
    for split, file in source["files"].items():
        parts = [sorted(path for path in fetched.glob(pattern) if path.is_file()) for pattern in file["take"]]
        if not all(parts):
            missing = next(pattern for pattern, found in zip(file["take"], parts, strict=True) if not found)
            return f"{name}: FETCHED has no {missing}. Fetch it: {'; '.join(commands(source))}"
        rows = list(LAYOUTS[file["layout"]]([path for found in parts for path in found]))
        _write(rows, data / name / f"{split}.jsonl.gz")
        said.append(f"{split} {len(rows):,} rows{_compared(rows, source, file)}")
    return f"{name}: {', '.join(said)}"


def _compared(rows: Sequence[Mapping[str, Any]], source: Source, file: Mapping[str, Any]) -> str:
    if "sha256" not in file:
        return ""
    if fingerprint(rows, source["reads"]) == file["sha256"]:
        return " (those of the committed results)"
    return f" (NOT those of the committed results, which had {file['rows']:,}: figures may differ; another commit?)"


def _write(rows: Iterable[Mapping[str, Any]], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    packed = io.BytesIO()
    with gzip.GzipFile(fileobj=packed, mode="wb", mtime=0) as file:
        file.writelines((json.dumps(row, ensure_ascii=False) + "\n").encode() for row in rows)
    path.write_bytes(packed.getvalue())


def main(arguments: Sequence[str]) -> int:
    """Run the script: 0 for success, 1 where a set was not there, 2 for wrong arguments."""
    known = sources()
    if not arguments:
        print(about(list(known)))
        print("\nThen: python scripts/data/get_data.py FETCHED DATA, and inbedder evaluate --data DATA")
        print(about_training())
        return 0
    if len(arguments) == 1 or (wrong := [name for name in arguments[2:] if name not in known]):
        print(__doc__ if len(arguments) == 1 else f"No set {', '.join(wrong)}. There are: {', '.join(known)}.", file=sys.stderr)
        return 2
    fetched, data = map(Path, arguments[:2])
    said = [lay_out(name, fetched, data) for name in arguments[2:] or known]
    print("\n".join(said))
    return int(any("FETCHED has no" in line for line in said))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
