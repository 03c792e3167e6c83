#!/usr/bin/env python3
"""List identifiers that break the naming rules of CONTRIBUTING: bare participles, constants without a unit, long test names.

    python scripts/dev/list_names.py                     every finding, by file; exit code 1 when there is one
    python scripts/dev/list_names.py inbedder/io tests   some folders

A variable, parameter, attribute or result key is a noun; a function begins with a verb or is a noun that it returns (a property);
a class is a noun; a constant says what it holds; a module's name stands in one room; a test's name has at most 70 characters.
"""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("inbedder", "finetune", "evaluation", "scripts", "tests")
MAX_TEST_NAME = 70
NOT_NOUNS = frozenset(
    """
    about again alone already also apart asked away bare began begun behind beside best_so_far between broken brought built
    called came caught chosen cut dealt decided doing done drawn drew ended enough even ever fewer fitted found gave given
    gone had held here how indeed kept knew known laid learned learnt least left likely made meant met mine moved named near
    needed never none now offered often once only other others otherwise ought out over own past placed places put reached
    read ready remembered rest said same seen sent served shown so_many some soon spoken stands still stood stretch such
    taken taught tells that theirs then there these things this those thought through thus together told too took tried
    twice under until used wanted was went were what whatever where whether which while whole whose why within without
    words_that written wrong yet yours
    """.split()
)
"""Words that say nothing as the whole name of a variable, parameter, attribute, function or class."""
VERBS_TOO = frozenset({"cut", "put", "read", "set", "split"})
"""Words of these that are the verb of a function as well."""
PUBLIC = frozenset({"beside", "over", "where"})
"""Names that users write."""
VERBS = frozenset(
    """
    accept add aget aggregate align allow anneal annotate answer append apply arrange as assert assign attach attend
    average await balance batch begin bind bound broadcast build cache calculate call can cancel capture cast categorize
    center change check choose clamp classify clean clear clip close cluster collapse collate collect combine compact
    compare compile compose compress compute concatenate configure connect convert copy correct correlate count create
    cross crosstab cut damage decode deduplicate delete dequantize describe deserialize detach detect digest discard
    dispatch divide download draw drop dump edit embed encode end enforce ensure enter escape estimate evaluate evict exit
    expand explain export extend extract fetch fill filter find finetune fingerprint finish fit flatten flip flush
    forget fork format forward freeze from gather generate get group guard guess handle has hash hold identify import
    indent infer init initialize inject insert inspect install instruct interpolate interrupt invert is iterate join
    keep kill label lay leave limit list listen load localize lock log look main make map mark mask match measure merge
    mine mix move multiply name narrow needs normalize notice number observe of offer on open order overwrite pack pad
    parse partition pass patch permute photograph pick place plan plot pool pop predict prepack prepare preprocess
    preview print probe process project propose prune pull push put quantize quote raise rank rate read rebuild receive
    record reduce reencode refresh refuse register regroup release reload remember remove rename render renumber repair
    repeat replace replay report represent request require rerank resample reset reshape resolve respond restore resume
    retry return reuse reverse revise rewind rewrite rotate round run sample save scale scan schedule score search seed
    select send serialize serve set shard share shorten show shrink shuffle shut sign silence simulate sink skip slice
    smooth sort split stack start stop store stream strip submit subtract suggest sum summarize swap switch sync
    synchronize take teach tell test time to tokenize total trace track train transform translate transpose trim
    truncate try uninstall unpack unwrap update upgrade use uses validate verify visit wait walk warn watch weigh with
    wrap write yield zip
    """.split()
)
"""First words of a function's name: verbs, and the prepositions of conversions (``to_json``, ``from_dict``, ``with_pooling``)."""
NOUN_FUNCTIONS = frozenset(
    """
    answers atomic_folder atomic_write cached_vectors class_name clusters column connection_made contents data_received
    dataset_transform decision_function demo differences embeddings exec_module first_words fleiss_kappa gibberish
    guided harmonic_mean health info key layers masked_mean metrics models ndcg ndims nearest_words pearson poolings
    precisions prediction_step prompt pytest_runtest_logreport recall records robustness rows shutdown similarity
    spearman startup texts token_f1 training_step triplet_success triplet_wins v_measure weighted_mean
    """.split()
)
"""Functions that have a noun's name by convention: metrics, formulas, routes, commands."""
CONSTANTS = frozenset(
    "MOST LOW NEAR PART AGAIN HELD CURE FEW MANY LEAST HIGH LITTLE MUCH ENOUGH FAR LATE EARLY OFTEN SAME SAID".split()
)
"""Constants without what they count or hold."""
OLD_WORDS = frozenset(
    """
    answered_by books decodes Elsewhere finished Found generic_base instructions_alone KnowingVectors loaded_beside Need
    OftenEnough Origin PlacesAndResults read_by_default sheet stretch stretches taught_as text_memory_of WholeTexts
    """.split()
)
"""Words that the glossary replaced."""
SHARED_MODULES = frozenset(
    {"__init__", "__main__", "app", "conftest", "models", "options", "cache", "embed", "recipe", "runner", "settings"}
)
"""Module names that may stand in several rooms: the same thing there, seen from each."""


def list_findings(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line and sentence of every identifier in a file that breaks a rule."""
    in_tests = path.relative_to(ROOT).parts[0] == "tests"
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        for line, kind, name in list_identifiers(node):
            if name.startswith("test_") and kind == "function" and len(name) > MAX_TEST_NAME:
                yield line, f"{name} has {len(name)} characters"
            word = name.strip("_")
            if word in PUBLIC or (kind == "function" and word in VERBS_TOO):
                continue
            if word in NOT_NOUNS or word in CONSTANTS or word in OLD_WORDS:
                yield line, f"{kind} {name}"
            elif kind == "function" and not in_tests and not is_verb_first(name):
                yield line, f"function {name} begins with no verb"


def is_verb_first(name: str) -> bool:
    """Whether a function's name begins with a verb, or needs none."""
    word = name.strip("_")
    return name.startswith("__") or word in NOUN_FUNCTIONS or word.split("_")[0] in VERBS


def list_identifiers(node: ast.AST) -> Iterator[tuple[int, str, str]]:
    """Yield line, kind and name of what a node defines."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        decorators = " ".join(ast.unparse(decorator) for decorator in node.decorator_list)
        yield node.lineno, "property" if "property" in decorators or "setter" in decorators else "function", node.name
    elif isinstance(node, ast.ClassDef):
        yield node.lineno, "class", node.name
    elif isinstance(node, ast.arg):
        yield node.lineno, "parameter", node.arg
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.lineno, "variable", node.id
    elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
        yield node.lineno, "attribute", node.attr
    elif isinstance(node, ast.alias) and node.asname:
        yield node.lineno, "import", node.asname
    elif isinstance(node, ast.ExceptHandler) and node.name:
        yield node.lineno, "variable", node.name


def list_shared_names(paths: list[Path]) -> Iterator[str]:
    """Yield module names that stand in several rooms of a package."""
    rooms = defaultdict(list)
    for path in paths:
        if path.relative_to(ROOT).parts[0] in ("inbedder", "finetune", "evaluation"):
            rooms[path.stem].append(str(path.relative_to(ROOT)))
    for name, module_paths in sorted(rooms.items()):
        if len(module_paths) > 1 and name not in SHARED_MODULES:
            yield f"module {name}: {', '.join(module_paths)}"


def main(arguments: list[str]) -> int:
    """Print the findings, and return the exit code."""
    folders = [ROOT / name for name in arguments or FOLDERS]
    if missing := [str(folder) for folder in folders if not folder.exists()]:
        print(f"No such file or folder: {', '.join(missing)}.", file=sys.stderr)
        return 2
    paths = sorted(path for folder in folders for path in ([folder] if folder.is_file() else folder.rglob("*.py")))
    lines = [f"{path.relative_to(ROOT)}:{line}: {text}" for path in paths for line, text in sorted(list_findings(path))]
    lines += list_shared_names(paths)
    print(*lines, sep="\n")
    print(f"{len(lines)} names break a rule", file=sys.stderr)
    return int(bool(lines))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
