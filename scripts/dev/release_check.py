#!/usr/bin/env python3
"""Check that this commit can become a release, and list the steps that remain for a person.

make release-check                  builds nothing: versions, changelog, tree, tag, weights
make package release-check          builds first, and checks what was built as well
"""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
IMPORT_NAMES = ("inbedder", "inbedder_finetune", "inbedder_evaluation")
WEIGHTS = "inbedder/models/*/adapter_model.safetensors"
REMAINING_STEPS = """
What a person must still do:
1. Wait until CI is green on this commit.
2. Once per package: let the package index trust the workflow .github/workflows/release.yml (trusted publishing), in an
   environment named pypi. The packages are inbedder, inbedder-finetune and inbedder-evaluation.
3. git tag -s v{version} -m "inbedder {version}" && git push origin v{version}
   The workflow builds, checks, lists what is in it (SBOM) and publishes.
4. In an empty environment: pip install 'inbedder[mini]' && inbedder demo
5. Publish the release notes, the section {version} of CHANGELOG.md, with the workflow's artifact "adapters" as files.
"""


def run_git(*arguments: str) -> str:
    """Run git in the checkout, and return what it prints."""
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def read_version(name: str, pattern: str) -> str | None:
    """Read the first group of a pattern in a file of the checkout, or None."""
    match = re.search(pattern, (ROOT / name).read_text(encoding="utf-8"), re.MULTILINE)
    return match[1] if match else None


def list_wheel_problems(version: str) -> Iterator[str]:
    """Yield the wheels that install other packages than their own."""
    for import_name in IMPORT_NAMES:
        for wheel in sorted((ROOT / "dist").glob(f"{import_name}-{version}-*.whl")):
            names = {name.partition("/")[0] for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
            if names != {import_name}:
                yield f"{wheel.name} installs {', '.join(sorted(names))}."


def list_problems(version: str) -> Iterator[str]:
    """Yield the problems that prevent a release of this commit."""
    for name, pattern in (("CITATION.cff", r"^version: (.+)$"), ("CHANGELOG.md", r"^## (\S+)$")):
        if (version_found := read_version(name, pattern)) != version:
            yield f"{name} is about {version_found}, inbedder/__init__.py about {version}."
    if read_version("inbedder/errors.py", r"^RELEASED = (\w+)$") != "True":
        yield "inbedder/errors.py has RELEASED = False, so messages would install from a clone. Set it to True."
    if run_git("status", "--porcelain"):
        yield "The tree has changes that are not committed."
    if run_git("tag", "--list", f"v{version}"):
        yield f"The tag v{version} exists already. Raise the version."
    if last_tag := run_git("tag", "--list", "v*", "--sort=-v:refname").partition("\n")[0]:
        commits = run_git("log", "--format=%h", f"{last_tag}..HEAD", "--", WEIGHTS).split()
        if len(commits) > 2:
            yield f"Weights changed {len(commits)} times since {last_tag}; each model's may change once: {' '.join(commits)}"
    yield from list_wheel_problems(version)


def main() -> int:
    """Print problems or the remaining steps, and return the exit code."""
    version = read_version("inbedder/__init__.py", r'^__version__ = "(.+)"$')
    if version is None:
        raise SystemExit("inbedder/__init__.py has no __version__.")
    problems = list(list_problems(version))
    print(*(f"- {problem}" for problem in problems), sep="\n") if problems else print(f"{version} can be tagged.")
    print(REMAINING_STEPS.format(version=version))
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
