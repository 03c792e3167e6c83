"""Imports point down, in every package and between them, and no file or function is too long."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import inbedder

ROOT = Path(__file__).parents[1]
# One floor a line (a deeper line goes on with the floor above it), the lowest first: a file imports files of lower floors alone.
FLOORS = {
    "inbedder": """
        backbones backbones.drawing batching cli.ends errors grouping grouping.report grouping.titles integrations
            models models.home server server.fields server.metrics server.refusals vectors words
        arguments backbones.hub backbones.packed_row backbones.transformer cache_file cache_size files grouping.deduplicate
            grouping.assignment grouping.choosing grouping.dates grouping.explain
            mapping pooling search.engine sentence_keywords server.settings text_columns whole_text
        backbones.packed_attention cache_checks grouping.crossing grouping.saved_files grouping.namers grouping.partition guided
            models.checksums prompting server.guard
        backbones.file_checks cache grouping.fitting grouping.naming grouping.over_time grouping.report.maps grouping.stability
            grouping.wordings models.gguf tokenization
        backbones.adapters backbones.base backbones.sentence_modules grouping.grouped_texts grouping.report.views legibility
            models.installing scheduling spreadsheets
        backbones.masked grouping.report.page_data models.bundled outputs server.queue
        backbones.late_interaction backbones.revision formats grouping.report.page search.rows
        backbones.onnx backbones.weights prompt_encoder search.arrays search.storage tables
        backbones.causal backbones.embedding backbones.prepacked backbones.vllm conditional.encoding conditional.rated_rows
            distributed.folder exporting reencode search.checks search.ranking
        backbones.seq2seq backbones.shared_prefix cli.options conditional.base model_object
        backbones.families backbones.text_memory cli.crossing cli.groupings cli.kept cli.models cli.research conditional.encoder
        conditional embedder
        cli.inputs distributed.pipeline grouping.origin integrations.loading search.reading server.served
        distributed.job grouping.saving integrations.bertopic integrations.keybert integrations.lancedb
            integrations.langchain integrations.llama_index integrations.pandas integrations.rerankers
            integrations.sentence_transformers integrations.sklearn search.searching server.routes
        grouping.result
        cli.assigning cli.texts distributed grouping.clustering search.index
        cli.groups cli.search grouping.comparison search server.clusters
        cli.wordings server.app
        server.running
        cli.serving
        cli.app
        cli
        __main__
    """,
    "finetune": """
        answering answering.keywords answering.order card columns conditional contrastive.losses curriculum.annealing
            preflight recipe scenes studies
        composing conditional.recipe contrastive.recipe curriculum.tours methods starting training_run
        conditional.losses conditional.rows curriculum.arranging sources
        conditional.trainer contrastive.rows curriculum mining
        answering.objectives.base conditional.training contrastive.instructed contrastive.order curriculum.data_cube
        answering.objectives.amortised_reencoding answering.objectives.answer_tokens answering.objectives.distillation
            contrastive.trainer
        answering.objectives
        answering.recipe
        answering.rows
        answering.examples contrastive.training
        answering.forward_pass answering.packing contrastive
        answering.families answering.plan answering.saved_result
        answering.dry_run answering.example_cache answering.memory answering.trainable_model
        answering.training_data
        answering.trainer
        answering.training
    """,
    "evaluation": """
        metrics represented results tasks.base tasks.sets
        mteb_encoder outcomes paper
        comparing tasks.conditional_sts tasks.corpus tasks.intent_emotion tasks.prompt_retrieval
            tasks.robustness tasks.text_evaluation
        embedders figures mteb_tasks tasks.contrast_triplets tasks.criteria_clustering tasks.standard tasks.wordings
        mteb_results runner tasks.detail
        few_shot mteb_registry search_sweep tasks
        sweeps
    """,
}
ABOVE = {"inbedder": set(), "finetune": {"inbedder"}, "evaluation": {"inbedder"}}
"""The other packages that each may import; the command line reaches training and measuring when one is asked for."""
ASKED_FOR = {"inbedder.cli.research": {"finetune", "evaluation"}}


def floors():
    """Dotted name of each file, and its floor."""
    found = {}
    for package, lines in FLOORS.items():
        found[package] = -1
        number = -1
        for line in lines.strip("\n").splitlines()[:-1]:
            number += not line.startswith(" " * 12)
            found |= {f"{package}.{name}": number for name in line.split()}
    return found


FLOOR = floors()
FILES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for package in FLOORS
    for path in sorted((ROOT / package).rglob("*.py"))
}


def imported(path, *, top_only=False):
    """Dotted names that a file imports anywhere, those for type checkers left out."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    guarded = {
        id(node)
        for branch in ast.walk(tree)
        if isinstance(branch, ast.If) and "TYPE_CHECKING" in ast.unparse(branch.test)
        for node in ast.walk(branch)
    }
    for node in tree.body if top_only else ast.walk(tree):
        if id(node) in guarded:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_every_file_has_a_floor_and_every_floor_its_files():
    assert set(FLOOR) == set(FILES)


@pytest.mark.parametrize("name", FILES)
def test_imports_point_down(name):
    package = name.split(".")[0]
    ours = {one for one in imported(FILES[name]) if one in FILES} - {name}
    inside = {one for one in ours if one.split(".")[0] == package and "." in one}
    above = {one for one in inside if FLOOR[one] >= FLOOR[name]}
    assert not above or name == package, above
    outside = {one.split(".")[0] for one in ours} - {package}
    assert outside <= ABOVE[package] | ASKED_FOR.get(name, set()), outside
    at_once = {one.split(".")[0] for one in imported(FILES[name], top_only=True)} & set(FLOORS)
    assert at_once <= ABOVE[package] | {package}, at_once


def test_documented_names_stay_importable():
    from finetune.conditional import ConditionalEncoder
    from finetune.contrastive import finetune, training_pairs
    from finetune.curriculum import arrange, order_tasks
    from inbedder.cli import main
    from inbedder.distributed import embed_job

    assert all(
        callable(one) for one in (ConditionalEncoder.load, finetune, training_pairs, arrange, order_tasks, main, embed_job)
    )
    for module in ("finetune.mining", "evaluation.sweeps"):
        assert 'if __name__ == "__main__":' in FILES[module].read_text(encoding="utf-8")


def test_no_symbolic_link_is_tracked():
    listed = subprocess.run(["git", "ls-files", "-s"], cwd=ROOT, capture_output=True, text=True, check=False).stdout
    assert not [line for line in listed.splitlines() if line.startswith("120000")]


def test_importing_the_package_is_cheap_and_names_are_lazy():
    code = "import sys, inbedder; assert 'torch' not in sys.modules; inbedder.InBedder; assert 'torch' in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)
    assert len(inbedder.__all__) <= 15
    assert all(getattr(inbedder, name) is not None for name in inbedder.__all__)


def test_public_names_stay_what_they_are_whatever_was_imported_before():
    code = "import inbedder.grouping.report.page; from inbedder import ClusterResult, cluster; assert callable(cluster)"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


def test_no_file_is_longer_than_three_hundred_and_fifty_lines():
    files = [
        path for folder in ("inbedder", "finetune", "evaluation", "scripts", "tests") for path in (ROOT / folder).rglob("*.py")
    ]
    long = {str(path): count for path in files if (count := len(path.read_text(encoding="utf-8").splitlines())) > 350}
    assert not long


def test_no_function_is_longer_than_sixty_lines():
    files = [path for folder in ("inbedder", "finetune", "evaluation", "scripts") for path in (ROOT / folder).rglob("*.py")]
    for path in files:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and ast.get_docstring(node) is not None:
                documented = node.body[0].end_lineno - node.body[0].lineno + 1
                assert node.end_lineno - node.lineno + 1 - documented <= 60, f"{path}: {node.name}"
