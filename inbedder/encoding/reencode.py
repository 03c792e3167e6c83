"""Re-encoding: the vector of a text under an instruction is the mean vector of its sampled answers.

InBedder paper, section 4.1, equation 2, with R another embedder, its vectors of length 1, and S_Y the sampled answers::

    v(I, x) = 1/|S_Y| sum_{y in S_Y} R(y)        y ~ P(Y | I, x)

With one greedy answer it is R(answer). The cache stores answers by everything that determines them (model, prompt, number,
temperature, top_p, seed), and vectors of answers by their re-encoder. No change of either returns old results, and an answer that
many texts share is embedded once.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from inbedder.backbones.sentence_modules import find_sentence_folder
from inbedder.backbones.weights import resolve_device
from inbedder.cache.store import Store, hash_entry
from inbedder.errors import MissingExtraError, ModelError
from inbedder.models.bundled import resolve_name
from inbedder.models.checksums import FileState, get_digest, get_file_state
from inbedder.runtime.transformers_output import silence_transformers
from inbedder.vectors.vectors import AnnotatedArray, Vectors, pack_vector, unpack_vector

logger = logging.getLogger(__name__)

TEXTS_PER_CHUNK = 1024
"""Number of texts whose answers are embedded together."""
ANSWERS_PER_BATCH = 256
"""Batch size of the re-encoder."""
_ENCODER_LOCK = Lock()
"""Held while the re-encoder runs, because its tokenizer is not thread-safe."""


class ReencodedVectors(AnnotatedArray):
    """Re-encoded vectors, float32, shape (texts, d), with the answers that they represent."""

    metadata = ("answers", "empty")
    answers: list[list[str]] | None
    """The sampled answers of each text. None for derived arrays."""
    empty: int | None
    """Number of empty answers, which are embedded as empty strings. None for derived arrays."""

    def select_first(self) -> ReencodedVectors:
        """Return the vector of the first text, shape (d,), with all answers."""
        row: ReencodedVectors = self[0]
        row.answers, row.empty = self.answers, self.empty
        return row


def check_encoder(encoder: str, *, store: Store | None = None, device: str | None = None) -> None:
    """Check that the re-encoder exists before any answer is sampled.

    Args:
        encoder: A sentence-transformers model.
        store: The cache of the answers' vectors; with one, the re-encoder is loaded only when it has something to embed.
        device: A torch device for the re-encoder; None takes a GPU if there is one.

    Raises:
        MissingExtraError: If sentence-transformers is not installed.
        ModelError: If the re-encoder cannot be loaded.
        InputError: If there is a store and the re-encoder's weights have no revision.
    """
    if store is None:
        _load_encoder(encoder, device, _read_file_states(encoder))
    else:
        find_reencoder_revision(encoder)


def reencode(
    answers: Sequence[Sequence[str]], encoder: str, *, store: Store | None = None, device: str | None = None
) -> ReencodedVectors:
    """Embed sampled answers and average them (equation 2).

    Args:
        answers: n lists of one or more answers.
        encoder: A sentence-transformers model.
        store: The cache of the answers' vectors, or None.
        device: A torch device for the re-encoder; None takes a GPU if there is one.

    Returns:
        ``ReencodedVectors``, shape (n, d).

    Raises:
        MissingExtraError: If sentence-transformers is not installed.
        ModelError: If the re-encoder cannot be loaded.
        InputError: If there is a store and the re-encoder's weights have no revision.
    """
    num_empty = sum(not text for row in answers for text in row)
    if num_empty:
        logger.warning("%d of %d answers are empty and are embedded as such.", num_empty, sum(len(row) for row in answers))
    means = [np.empty((0, _embed_answers([""], encoder, None, device)[""].shape[0]), dtype=np.float32)] if not answers else []
    for start in range(0, len(answers), TEXTS_PER_CHUNK):
        chunk = answers[start : start + TEXTS_PER_CHUNK]
        by_answer = _embed_answers(list(dict.fromkeys(text for row in chunk for text in row)), encoder, store, device)
        means.append(np.stack([np.mean([by_answer[text] for text in row], axis=0) for row in chunk]))
    vectors: ReencodedVectors = np.concatenate(means).view(ReencodedVectors)
    vectors.answers = [list(row) for row in answers]
    vectors.empty = num_empty
    return vectors


def _embed_answers(answers: list[str], encoder: str, store: Store | None, device: str | None) -> dict[str, Vectors]:
    """Embed distinct answers, and look up cached ones: vectors by answer."""
    keys = {answer: hash_entry(answer, "") for answer in answers}
    space: dict[str, Any] = {}
    entries: dict[bytes, bytes] = {}
    if store is not None:
        space = {"results": "vectors of answers", "model": encoder, "weights": find_reencoder_revision(encoder)}
        entries = store.get(space, list(keys.values()))
    vectors = {text: unpack_vector(entries[key]) for text, key in keys.items() if key in entries}
    new = [answer for answer in answers if answer not in vectors]
    for start in range(0, len(new), ANSWERS_PER_BATCH):
        batch = new[start : start + ANSWERS_PER_BATCH]
        new_vectors = dict(zip(batch, embed_sentences(batch, encoder, device), strict=True))
        if store is not None:
            packed = ((keys[text], pack_vector(vector)) for text, vector in new_vectors.items())
            store.put(space, ((key, data) for key, data in packed if data is not None))
        vectors.update(new_vectors)
    return vectors


def embed_sentences(texts: Sequence[str], encoder: str, device: str | None = None) -> Vectors:
    """Embed texts with a sentence-transformers model.

    Args:
        texts: n texts.
        encoder: The model's hub id or folder.
        device: A torch device; None takes a GPU if there is one.

    Returns:
        float32, shape (n, d), of length 1.

    Raises:
        MissingExtraError: If sentence-transformers is not installed.
        ModelError: If the model cannot be loaded.
    """
    with _ENCODER_LOCK:
        loaded = _load_encoder(encoder, device, _read_file_states(encoder))
        vectors = loaded.encode(list(texts), batch_size=ANSWERS_PER_BATCH, normalize_embeddings=True, show_progress_bar=False)
    return np.asarray(vectors, dtype=np.float32)


def _read_file_states(name: str) -> tuple[FileState, ...]:
    """Read the state of a folder's files, so that a retrained model is loaded again; empty for a hub id."""
    folder = Path(resolve_name(name))
    kinds = ("*.safetensors", "*.bin", "*.json") if folder.is_dir() else ()
    return tuple(get_file_state(path) for path in sorted(path for kind in kinds for path in folder.rglob(kind)))


@lru_cache(maxsize=1)
def _load_encoder(name: str, device: str | None, states: tuple[FileState, ...]) -> Any:
    """Load the model whose files have these states."""
    try:
        from sentence_transformers import SentenceTransformer
    except ImportError as error:
        raise MissingExtraError("sentence-transformers") from error
    settings: dict[str, Any] = {"device": str(resolve_device(device)), "model_kwargs": {"dtype": "float32"}}
    try:
        folder = find_sentence_folder(resolve_name(name))
        with silence_transformers(expected_gaps=False):
            encoder = SentenceTransformer(str(folder), **settings, trust_remote_code=False)
    except ModelError as error:
        raise ModelError(f"Cannot load the re-encoder {name!r}. {error}") from error
    except Exception as error:  # a damaged file can raise anything
        raise ModelError(
            f"Cannot load the re-encoder {name!r}: no sentence-transformers model of this name was found here or on the hub. "
            f"Check the spelling and the network, or pass a local folder. ({' '.join(str(error).split())[:400]})"
        ) from error
    if _read_file_states(name) != states:
        raise ModelError(f"The files of the re-encoder {name} changed while it was loaded. Rerun the command.")
    return encoder


def find_reencoder_revision(encoder: str) -> str:
    """Return a re-encoder's revision.

    Args:
        encoder: A sentence-transformers model, a hub id or a folder.

    Returns:
        16 hexadecimal digits of the hash of a folder's files, or the commit of a hub id.

    Raises:
        ModelError: If the re-encoder is not found.
    """
    return _compute_revision(encoder, _read_file_states(encoder))


@lru_cache(maxsize=4)
def _compute_revision(name: str, states: tuple[FileState, ...]) -> str:
    """Hash the files of a folder, which have these states, or return the hub's commit."""
    folder = Path(resolve_name(name))
    if not folder.is_dir():
        return find_sentence_folder(str(folder)).name  # the name of a snapshot's folder is its commit
    digests = "".join(f"{Path(state[0]).relative_to(folder)} {get_digest(Path(state[0]))}\n" for state in states)
    if _read_file_states(name) != states:
        raise ModelError(f"The files of the re-encoder {name} changed while they were read. Rerun the command.")
    return hashlib.sha256(digests.encode()).hexdigest()[:16]
