"""An adapter for spaCy: a pipeline component, registered as "inbedder", that sets the vector of each ``Doc``.

nlp.add_pipe("inbedder", config={"instruction": "What is the complaint about?"})
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from inbedder.errors import MissingExtraError
from inbedder.integrations.shared_models import load_shared

try:
    from spacy.language import Language
    from spacy.tokens import Doc
    from spacy.util import minibatch
except ImportError as error:
    raise MissingExtraError("spacy") from error


@Language.factory("inbedder", assigns=["doc.vector"], default_config={"instruction": None, "model": "mini"})
class InstructedVectors:
    """A component that embeds documents under one instruction; a saved pipeline stores it and the model's name.

    Example:
        >>> import spacy
        >>> import inbedder.integrations.spacy
        >>> nlp = spacy.blank("en")
        >>> component = nlp.add_pipe("inbedder", config={"instruction": "What is the complaint about?"})
        >>> nlp("The box was crushed").vector.shape
        (384,)
    """

    def __init__(self, nlp: Language, name: str, instruction: str | None, model: str) -> None:
        """Load the model.

        Args:
            nlp: The pipeline.
            name: The component's name in the pipeline.
            instruction: The question about every document, ``@name``, or None.
            model: The name of a model.
        """
        self.instruction, self.model = instruction, load_shared(model)

    def __call__(self, doc: Doc) -> Doc:
        """Set the vector of one document."""
        return next(self.pipe([doc]))

    def pipe(self, stream: Iterable[Doc], *, batch_size: int = 32, **_options: Any) -> Iterator[Doc]:
        """Set the vectors of documents, in batches."""
        for docs in minibatch(stream, batch_size):
            texts = [doc.text for doc in docs]
            vectors = self.model.encode(texts, self.instruction, precision="float32", show_progress_bar=False)
            for doc, vector in zip(docs, vectors, strict=True):
                doc.vector = vector
                yield doc
