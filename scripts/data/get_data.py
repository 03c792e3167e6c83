#!/usr/bin/env python3
"""List the origin and licence of each data set, and convert fetched data sets to the files that `inbedder evaluate` reads.

python scripts/data/get_data.py                          list the data sets and the commands that fetch them
python scripts/data/get_data.py FETCHED DATA [SET ...]   convert FETCHED/owner/name to DATA, for inbedder evaluate --data DATA

This script downloads nothing: many licences only allow evaluation, and whoever fetches a data set accepts its licence.
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


def read_sources() -> dict[str, Source]:
    """Read ``data_sources.yaml``; returns data set -> source."""
    content = yaml.safe_load(Path(__file__).with_name("data_sources.yaml").read_text(encoding="utf-8"))
    return dict(content)


def list_commands(source: Source) -> list[str]:
    """List the commands that fetch a data set."""
    if "hub" in source:
        return [f"hf download {source['hub']} --repo-type dataset --local-dir FETCHED/{source['hub']}"]
    clone = "git clone https://github.com/{0} FETCHED/{0} && git -C FETCHED/{0} checkout {1}"
    return [clone.format(name, commit) for name, commit in source["clones"].items()]


def describe_sources(names: Sequence[str]) -> str:
    """Describe the licence and origin of data sets."""
    lines = []
    for name in names:
        source = read_sources()[name]
        lines += [name, f"  licence: {source['licence']}", *(f"  {command}" for command in list_commands(source))]
        lines += [f"  {source['note']}"] if "note" in source else []
    return "\n".join(lines)


TRAINING = """
Training sets of finetune/recipes (--set data.folder=FOLDER): FOLDER/NAME.jsonl.gz holds one object per line, with input (the
text), instruction (the question), output (the answer) and split. This script does not convert them. For sources with labels
instead of questions, we wrote a question for each kind of label. multilingual.yaml also reads xquad_parallel and parallel_texts,
which scripts/data/make_parallel.py makes of them.
"""


def describe_training_sets() -> str:
    """Describe the origin and licence of each training set."""
    sources = yaml.safe_load(Path(__file__).with_name("training_sources.yaml").read_text(encoding="utf-8"))
    return TRAINING + "\n".join(f"{name}: https://github.com/{origin}, {licence}" for name, (origin, licence) in sources.items())


def hash_rows(rows: Iterable[Mapping[str, Any]], reads: Sequence[str]) -> str:
    """Hash the fields of rows that tasks read, in order; returns the first 16 digits of a SHA-256."""
    digest = hashlib.sha256()
    for row in rows:
        digest.update((json.dumps([row.get(field) for field in reads]) + "\n").encode())
    return digest.hexdigest()[:16]


def convert_files(name: str, fetched: Path, data: Path) -> str:
    """Write the files of one data set.

    Args:
        name: The data set.
        fetched: Folder of the clones.
        data: Folder of the data sets.

    Returns:
        A line that reports what was written, or what is missing.
    """
    source = read_sources()[name]
    if "files" not in source:
        return f"{name}: {source['note']}"
    reports = []
    for split, file in source["files"].items():
        parts = [sorted(path for path in fetched.glob(pattern) if path.is_file()) for pattern in file["take"]]
        if not all(parts):
            missing = next(pattern for pattern, paths in zip(file["take"], parts, strict=True) if not paths)
            return f"{name}: FETCHED has no {missing}. Run: {'; '.join(list_commands(source))}"
        rows = list(LAYOUTS[file["layout"]]([path for paths in parts for path in paths]))
        write_rows(rows, data / name / f"{split}.jsonl.gz")
        reports.append(f"{split} {len(rows):,} rows{_compare_rows(rows, source, file)}")
    return f"{name}: {', '.join(reports)}"


def _compare_rows(rows: Sequence[Mapping[str, Any]], source: Source, file: Mapping[str, Any]) -> str:
    if "sha256" not in file:
        return ""
    if hash_rows(rows, source["reads"]) == file["sha256"]:
        return " (as in the committed results)"
    return f" (NOT as in the committed results, which have {file['rows']:,} rows: scores may differ. Check the commit.)"


def write_rows(rows: Iterable[Mapping[str, Any]], path: Path) -> None:
    """Write a gzipped file of JSON lines, the same bytes for the same rows."""
    path.parent.mkdir(parents=True, exist_ok=True)
    packed = io.BytesIO()
    with gzip.GzipFile(fileobj=packed, mode="wb", mtime=0) as file:
        file.writelines((json.dumps(row, ensure_ascii=False) + "\n").encode() for row in rows)
    path.write_bytes(packed.getvalue())


def main(arguments: Sequence[str]) -> int:
    """Run the script; returns 0 for success, 1 when a data set is missing, 2 for wrong arguments."""
    data_sets = read_sources()
    if not arguments:
        print(describe_sources(list(data_sets)))
        print("\nThen: python scripts/data/get_data.py FETCHED DATA, and inbedder evaluate --data DATA")
        print(describe_training_sets())
        return 0
    if len(arguments) == 1 or (unknown := [name for name in arguments[2:] if name not in data_sets]):
        message = (
            f"Unknown data sets: {', '.join(unknown)}. Known data sets: {', '.join(data_sets)}." if arguments[1:] else __doc__
        )
        print(message, file=sys.stderr)
        return 2
    fetched, data = map(Path, arguments[:2])
    reports = [convert_files(name, fetched, data) for name in arguments[2:] or data_sets]
    print("\n".join(reports))
    return int(any("FETCHED has no" in line for line in reports))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
