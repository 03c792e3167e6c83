"""IntentEmotion: triplets under two contrasting criteria (InBedder paper, section 3.2).

The same two texts are told apart twice: under the emotion's instruction the one with the anchor's emotion must be closer, under
the intent's the one with its intent. The score is the harmonic mean of both success rates.
"""

from __future__ import annotations

from collections.abc import Sequence

from evaluation.metrics import harmonic_mean, triplet_success
from evaluation.tasks.base import SHIPPED, Encode, Rows, Scores, TaskInfo, fingerprint, instructions_of, read_hub, read_jsonl
from inbedder.errors import InputError

CRITERIA = ("emotion", "intent")
HUB = ("BrandonZYW/IntentEmotion", "d0101c15083166b77371cf542c4045decc0a6e92")


class IntentEmotion:
    """Triplets by emotion and by intent: the set written for this project, the authors' own, or rows of your own."""

    seeded = False

    def __init__(self, rows: Rows | None = None, info: TaskInfo | None = None) -> None:
        """Read the triplets.

        Args:
            rows: Triplets with criterion, anchor, positive, negative; None for the shipped ones.
            info: Where rows of your own come from.

        Raises:
            InputError: When a criterion has no triplet.
        """
        self.rows = read_jsonl(SHIPPED / "intent_emotion.jsonl") if rows is None else rows
        for criterion in CRITERIA:
            if not self._of(criterion):
                raise InputError(f"IntentEmotion needs triplets of criterion {criterion!r}; there is none.")
        self.instructions = instructions_of("intent_emotion")
        self.info = info or TaskInfo(
            name="IntentEmotion (written)",
            main_score="harmonic_mean",
            source="evaluation/data/intent_emotion.jsonl",
            revision=fingerprint(self.rows, self.instructions),
            licence="CC BY 4.0",
            citation="Written for this project over BANKING77 (Casanueva et al. 2020)",
        )

    def _of(self, criterion: str) -> Rows:
        return [row for row in self.rows if row["criterion"] == criterion]

    def first_input(self) -> tuple[str, str]:
        """The first anchor and its instruction."""
        row = self.rows[0]
        return row["anchor"], self.instructions[row["criterion"]]

    def evaluate(self, encode: Encode, seed: int = 0) -> Scores:
        """Success rates.

        Args:
            encode: Texts and an instruction to vectors.
            seed: Not used.

        Returns:
            emotion, intent and harmonic_mean, in percent.
        """
        scores = {criterion: self._success(criterion, encode) for criterion in CRITERIA}
        return {**scores, "harmonic_mean": harmonic_mean(list(scores.values()))}

    def _success(self, criterion: str, encode: Encode) -> float:
        rows = self._of(criterion)
        texts: Sequence[str] = [row[part] for part in ("anchor", "positive", "negative") for row in rows]
        vectors = encode(texts, self.instructions[criterion])
        count = len(rows)
        return triplet_success(vectors[:count], vectors[count : 2 * count], vectors[2 * count :])


def intent_emotion_of_hub() -> IntentEmotion:
    """IntentEmotion, the authors' own set, from the hub at its pinned revision."""
    path, revision = HUB
    rows = [{"criterion": criterion, **row} for criterion in CRITERIA for row in read_hub(path, revision, criterion)]
    asked = f"{revision} {fingerprint([], instructions_of('intent_emotion'))[:8]}"
    return IntentEmotion(rows, TaskInfo("IntentEmotion", "harmonic_mean", path, asked, "BANKING77 CC BY 4.0", "Peng et al. 2024"))
