"""IntentEmotion: triplets under two contrasting criteria (InBedder paper, section 3.2).

Each anchor is compared with the same two texts twice. Under the emotion's instruction the text with the anchor's emotion must be
closer; under the intent's instruction, the text with the anchor's intent. The score is the harmonic mean of both success rates.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from inbedder.errors import InputError
from inbedder.io.tables import read_rows
from inbedder_evaluation.item_results import Outcomes, compute_success_rates
from inbedder_evaluation.metrics import triplet_wins
from inbedder_evaluation.tasks.sets import find_set
from inbedder_evaluation.tasks.task import SHIPPED, Encode, Rows, Scores, TaskInfo, fingerprint, read_hub, read_instructions

CRITERIA = ("emotion", "intent")


class IntentEmotion:
    """Triplets by emotion and by intent: the set written for this project, the authors' own, or your rows."""

    seeded = False

    def __init__(self, rows: Rows, info: TaskInfo, instructions: Mapping[str, str] | None = None) -> None:
        """Check the triplets.

        Args:
            rows: Triplets with criterion, anchor, positive, negative.
            info: Name and provenance of the task.
            instructions: Instruction by criterion; None for those of the paper.

        Raises:
            InputError: If a criterion has no triplets.
        """
        self.rows = rows
        self.info = info
        for criterion in CRITERIA:
            if not self._of(criterion):
                raise InputError(f"IntentEmotion needs triplets of criterion {criterion!r}; there are none.")
        self.instructions = instructions or read_instructions("intent_emotion")

    def _of(self, criterion: str) -> Rows:
        return [row for row in self.rows if row["criterion"] == criterion]

    def get_first_input(self) -> tuple[str, str]:
        """Return the first anchor and its instruction."""
        row = self.rows[0]
        return row["anchor"], self.instructions[row["criterion"]]

    def evaluate(self, encode: Encode, seed: int = 0) -> Scores:
        """Compute success rates under both instructions.

        Args:
            encode: Turns texts and an instruction into vectors.
            seed: Not used.

        Returns:
            emotion, intent and harmonic_mean, in percent.
        """
        return self.evaluate_items(encode, seed).scores

    def evaluate_items(self, encode: Encode, seed: int = 0) -> Outcomes:
        """Compute success rates and the success of each triplet; triplets of one utterance (or one anchor) form one unit."""
        wins = {criterion: self._compute_wins(criterion, encode) for criterion in CRITERIA}
        units = {criterion: [row.get("source", row["anchor"]) for row in self._of(criterion)] for criterion in CRITERIA}
        return compute_success_rates(wins, units)

    def _compute_wins(self, criterion: str, encode: Encode) -> NDArray[np.bool_]:
        rows = self._of(criterion)
        texts: Sequence[str] = [row[part] for part in ("anchor", "positive", "negative") for row in rows]
        vectors = encode(texts, self.instructions[criterion])
        count = len(rows)
        return triplet_wins(vectors[:count], vectors[count : 2 * count], vectors[2 * count :])


def load_intent_emotion(name: str = "IntentEmotion (written)") -> IntentEmotion:
    """Load IntentEmotion as written for this project, or the authors' set from the hub.

    Args:
        name: A name of this kind in ``sets.yaml``.

    Returns:
        The task.
    """
    known_set, instructions = find_set("intent emotion", name), read_instructions("intent_emotion")
    if known_set.file:
        rows = read_rows(str(SHIPPED / known_set.file))
        source, revision = f"evaluation/data/{known_set.file}", fingerprint(rows, instructions)
    else:
        source, commit = known_set.pinned
        rows = [{"criterion": criterion, **row} for criterion in CRITERIA for row in read_hub(source, commit, criterion)]
        revision = f"{commit} {fingerprint([], instructions)[:8]}"
    return IntentEmotion(rows, TaskInfo(name, "harmonic_mean", source, revision, known_set.licence, known_set.citation))
