"""For BERTopic: an embedding backend under an instruction, and topics named by answers.

backend = InstructedBackend("What is the complaint about?")
BERTopic(embedding_model=backend, representation_model=AnswerRepresentation("What is the complaint about?")).fit(texts)

``InstructedBackend()`` embeds without an instruction. BERTopic ignores a bare ``InBedder`` and uses a default model of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from inbedder.embedder import InBedder
from inbedder.errors import MissingExtraError
from inbedder.integrations.shared_models import DocumentBackend, loaded

try:
    from bertopic.backend import BaseEmbedder
    from bertopic.representation._base import BaseRepresentation
except ImportError as error:
    raise MissingExtraError("bertopic") from error

Topics = Mapping[Any, list[tuple[str, float]]]


class InstructedBackend(DocumentBackend, BaseEmbedder):
    """Embeds documents under an instruction, and words without one."""


class AnswerRepresentation(BaseRepresentation):
    """Names each topic by the answers that its representative documents give most often."""

    def __init__(self, instruction: str, model: str | InBedder = "mini", nr_docs: int = 20, top_n_answers: int = 10) -> None:
        """Take a model that answers.

        Args:
            instruction: What is asked of the documents.
            model: An ``InBedder`` or the name of one.
            nr_docs: Most representative documents that are asked, per topic.
            top_n_answers: Most answers of a name.
        """
        self.instruction = instruction
        self.model = model
        self.nr_docs = nr_docs
        self.top_n_answers = top_n_answers

    def extract_topics(self, topic_model: Any, documents: Any, c_tf_idf: Any, topics: Topics) -> Topics:
        """Name topics.

        Args:
            topic_model: The BERTopic.
            documents: A table of documents and their topics.
            c_tf_idf: Of the topics.
            topics: Words and weights of each topic.

        Returns:
            Answers and their shares among the representative documents of each topic, the most frequent first; a topic whose
            documents get no answer keeps its words.
        """
        found, *_ = topic_model._extract_representative_docs(c_tf_idf, documents, topics, 500, self.nr_docs)
        texts = [text for rows in found.values() for text in rows]
        answers = iter(loaded(self.model).answer(texts, self.instruction, show_progress_bar=False))
        named = {}
        for topic, rows in found.items():
            counts = Counter(answer for answer in (str(next(answers)).strip() for _ in rows) if answer)
            ranked = [(answer, count / counts.total()) for answer, count in counts.most_common(self.top_n_answers)]
            named[topic] = ranked or topics[topic][: topic_model.top_n_words]
        return named
