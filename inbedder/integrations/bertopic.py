"""An adapter for BERTopic: an embedding backend under an instruction, and topics named by answers.

backend = InstructedBackend("What is the complaint about?")
BERTopic(embedding_model=backend, representation_model=AnswerRepresentation("What is the complaint about?")).fit(texts)

``InstructedBackend()`` embeds without an instruction. BERTopic ignores an unwrapped ``InBedder`` and uses its own default model.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from inbedder.embedder import InBedder
from inbedder.errors import MissingExtraError
from inbedder.integrations.shared_models import DocumentBackend, load_shared

try:
    from bertopic.backend import BaseEmbedder
    from bertopic.representation._base import BaseRepresentation
except ImportError as error:
    raise MissingExtraError("bertopic") from error

Topics = Mapping[Any, list[tuple[str, float]]]


class InstructedBackend(DocumentBackend, BaseEmbedder):
    """A backend that embeds documents under an instruction.

    Example:
        >>> from inbedder.integrations.bertopic import InstructedBackend
        >>> backend = InstructedBackend("What is the complaint about?")
        >>> backend.embed_documents(["The box was crushed", "Two weeks late"], verbose=False).shape
        (2, 384)
    """


class AnswerRepresentation(BaseRepresentation):
    """A representation that names each topic by the most frequent answers of its representative documents.

    Example:
        >>> from inbedder.integrations.bertopic import AnswerRepresentation
        >>> AnswerRepresentation("What is the complaint about?", top_n_answers=3).top_n_answers
        3
    """

    def __init__(self, instruction: str, model: str | InBedder = "mini", nr_docs: int = 20, top_n_answers: int = 10) -> None:
        """Store the parameters; the model is loaded when it first answers.

        Args:
            instruction: The question to answer for each document.
            model: An ``InBedder`` or the name of one.
            nr_docs: Maximum number of representative documents per topic.
            top_n_answers: Maximum number of answers in a name.
        """
        self.instruction = instruction
        self.model = model
        self.nr_docs = nr_docs
        self.top_n_answers = top_n_answers

    def extract_topics(self, topic_model: Any, documents: Any, c_tf_idf: Any, topics: Topics) -> Topics:
        """Name topics by the answers of their representative documents and their shares; without answers keep the words."""
        documents_by_topic, *_ = topic_model._extract_representative_docs(c_tf_idf, documents, topics, 500, self.nr_docs)
        texts = [text for rows in documents_by_topic.values() for text in rows]
        answers = iter(load_shared(self.model).answer(texts, self.instruction, show_progress_bar=False))
        named_topics = {}
        for topic, rows in documents_by_topic.items():
            counts = Counter(answer for answer in (str(next(answers)).strip() for _ in rows) if answer)
            ranked = [(answer, count / counts.total()) for answer, count in counts.most_common(self.top_n_answers)]
            named_topics[topic] = ranked or topics[topic][: topic_model.top_n_words]
        return named_topics
