"""For KeyBERT: an embedding backend under an instruction.

KeyBERT(model=InstructedBackend("What is the complaint about?")).extract_keywords(text)

``InstructedBackend()`` embeds without an instruction. KeyBERT ignores a bare ``InBedder`` and uses a default model of its own.
"""

from __future__ import annotations

from inbedder.errors import MissingExtraError
from inbedder.integrations.shared_models import DocumentBackend

try:
    from keybert.backend import BaseEmbedder
except ImportError as error:
    raise MissingExtraError("keybert") from error


class InstructedBackend(DocumentBackend, BaseEmbedder):
    """Embeds documents and candidate words under one instruction, so that words near to what is asked are found."""
