"""An adapter for KeyBERT: an embedding backend under an instruction.

KeyBERT(model=InstructedBackend("What is the complaint about?")).extract_keywords(text)

``InstructedBackend()`` embeds without an instruction. KeyBERT ignores an unwrapped ``InBedder`` and uses its own default model.
"""

from __future__ import annotations

from inbedder.errors import MissingExtraError
from inbedder.integrations.shared_models import DocumentBackend

try:
    from keybert.backend import BaseEmbedder
except ImportError as error:
    raise MissingExtraError("keybert") from error


class InstructedBackend(DocumentBackend, BaseEmbedder):
    """A backend that embeds documents and candidate words under one instruction, so that keywords match the question.

    Example:
        >>> from inbedder.integrations.keybert import InstructedBackend
        >>> InstructedBackend("What is the complaint about?").embed(["The box was crushed"]).shape
        (1, 384)
    """
