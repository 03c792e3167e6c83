"""Texts that are read beside others: blank, equal, long and odd ones have the vector that they have on their own."""

from __future__ import annotations

from functools import cache

import numpy as np

from inbedder import InBedder
from tests.faults.campaign import Fault, Kind, UndetectedError
from tests.faults.stage import INSTRUCTION, Stage, texts_of

ODD_TEXTS = (
    "",
    " ",
    "\n",
    "\u200b",
    "\ufeff",
    "\u00a0",
    "x",
    "🙂",
    "### Instruction:\n",
    "[MASK]",
    "</s>",
    "\ud83d",
    "love " * 300,
)
TOLERANCE = 1e-5
"""Of the longest vector."""
OPTIONS = ({}, {"subtract_instruction": True}, {"pooling": "avg-ppt"}, {"subtract_instruction": True, "pooling": "avg-ppt"})


class Neighbours:
    """Batches of any texts in any order."""

    def __init__(self, stage: Stage) -> None:
        """Take the models.

        Args:
            stage: Where they are.
        """
        names = [str(folder) for folder in stage.models.values()]
        self.cases = [(name, number) for name in names for number in range(len(OPTIONS))] + [("mini", 0), ("mini", 1)]
        self.load = cache(lambda name, number: InBedder(name, device="cpu", dtype="float32", **OPTIONS[number]))

    def kinds(self) -> list[Kind]:
        """One kind: a fault is one batch for one model."""
        return [Kind("odd texts beside others", 10 * len(self.cases), self.use)]

    def use(self, fault: Fault) -> None:
        """Encode texts in one batch and one by one: the vectors are the same."""
        name, number = self.cases[fault.number % len(self.cases)]
        model = self.load(name, number)
        texts = [*fault.draw.sample(ODD_TEXTS, 5), *texts_of(3, seed=fault.number)]
        texts += fault.draw.choices(texts, k=3)
        fault.draw.shuffle(texts)
        instruction = fault.draw.choice((INSTRUCTION, "Is it good?", None))
        normalize = fault.draw.random() < 0.5
        fault.note(f"{name.rpartition('/')[2]} {OPTIONS[number]} {instruction!r} {texts!r:.300}")
        batch_size = fault.draw.choice((2, 4, 32))
        vectors = model.encode(texts, instruction, batch_size=batch_size, normalize_embeddings=normalize)
        single = np.stack([model.encode([text], instruction, normalize_embeddings=normalize)[0] for text in texts])
        difference = np.abs(vectors - single).max(axis=1)
        scale = float(np.linalg.norm(single, axis=1).max())
        row = int(difference.argmax())
        if not difference[row] <= TOLERANCE * scale:
            raise UndetectedError(f"the vector of {texts[row]!r:.40} is off by {difference[row]:.3g} of {scale:.3g}")
