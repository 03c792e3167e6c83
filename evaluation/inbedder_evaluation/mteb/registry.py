"""Registration of the bundled models and our tasks with mteb, for Python and for its command line.

    import inbedder_evaluation.mteb.registry  # registers "inbedder/mini" and "inbedder/small"

    mteb.evaluate(mteb.get_model("inbedder/mini"), mteb.get_tasks(tasks=["ShippedInstructSTSB"]))

mteb has no plugins, so its ``mteb`` command does not find models and tasks of other packages. This command does the same and
finds ours::

    python -m inbedder_evaluation.mteb.registry run -m inbedder/mini -t ShippedIntentEmotionEmotion ShippedInstructSTSB

Tasks whose name begins with Shipped use rows that come with the package; the others (``IntentEmotionEmotion``,
``NYTTopicClustering``, ...) use the papers' own sets on the hub.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from inbedder.io.files import hash_file
from inbedder.models.checksums import CHECKSUMS
from inbedder.models.install import ADAPTERS
from inbedder_evaluation.mteb.encoder import MtebEncoder
from inbedder_evaluation.mteb.tasks import (
    InstructSTSBTask,
    IntentEmotionEmotion,
    IntentEmotionIntent,
    NYTLocationClustering,
    NYTTopicClustering,
)
from inbedder_evaluation.mteb_adapters import MODEL_REGISTRY, TASKS_REGISTRY, describe
from inbedder_evaluation.tasks.conditional_sts import load_instruct_stsb
from inbedder_evaluation.tasks.intent_emotion import load_intent_emotion
from inbedder_evaluation.tasks.task import fingerprint

if TYPE_CHECKING:
    from inbedder_evaluation.tasks.task import Rows

ORGANIZATION = "inbedder"
TASKS = (IntentEmotionEmotion, IntentEmotionIntent, InstructSTSBTask, NYTTopicClustering, NYTLocationClustering)


def load(name: str, revision: str | None = None, device: str | None = None, **options: Any) -> MtebEncoder:
    """Load a bundled model for mteb.

    Args:
        name: The registered name, such as inbedder/mini.
        revision: The revision under which mteb caches results; not used.
        device: A torch device.
        **options: Further arguments of ``MtebEncoder``; those that are None are left out.

    Returns:
        A model with mteb's encoder protocol.
    """
    given_options = {key: value for key, value in options.items() if value is not None}
    return MtebEncoder(name.removeprefix(f"{ORGANIZATION}/"), device=device, **given_options)


def register() -> None:
    """Register the models and tasks with mteb; a second call changes nothing."""
    for name, folder in ADAPTERS.items():
        changes = {"loader": load, "use_instructions": True, "open_weights": True, "license": "apache-2.0"}
        meta = describe(f"{ORGANIZATION}/{name}", hash_file(folder / CHECKSUMS)[:40])
        MODEL_REGISTRY[f"{ORGANIZATION}/{name}"] = meta.model_copy(update=changes)
    triplets = load_intent_emotion().rows
    for task, criterion in ((IntentEmotionEmotion, "emotion"), (IntentEmotionIntent, "intent")):
        _add(_make_shipped_task(task, [row for row in triplets if row["criterion"] == criterion]))
    _add(_make_shipped_task(InstructSTSBTask, [dict(row) for row in load_instruct_stsb().rows]))
    for task in TASKS:
        _add(task)


def _add(task: Any) -> None:
    TASKS_REGISTRY.setdefault(task.metadata.name, task)


def _make_shipped_task(task: Any, rows: Rows) -> Any:
    """Make a task on rows that come with the package."""

    def load_data(self: Any, *_args: Any, **_options: Any) -> None:
        from datasets import Dataset, DatasetDict

        self.dataset = DatasetDict({"test": Dataset.from_list(rows)})
        self.data_loaded = True

    name = f"Shipped{task.metadata.name}"
    changes = {"name": name, "dataset": {"path": f"{ORGANIZATION}/shipped", "revision": fingerprint(rows)}}
    return type(name, (task,), {"metadata": task.metadata.model_copy(update=changes), "load_data": load_data})


register()

if __name__ == "__main__":
    from mteb.cli import main

    main()
