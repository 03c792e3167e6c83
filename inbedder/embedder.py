"""``InBedder``: the vector of a text under an instruction is the hidden state of the answer a language model would give."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from inbedder.arguments import known_vectors, whole_number
from inbedder.backbones.base import Sampling, check_pooling
from inbedder.backbones.causal import CausalBackbone
from inbedder.backbones.families import load_backbone
from inbedder.backbones.shared_prefix import embed_shared, why_not_shared
from inbedder.backbones.text_memory import embed_remembered, memory_for
from inbedder.backbones.weights import LoadOptions
from inbedder.cache import Store
from inbedder.errors import InputError
from inbedder.guided import GuidedVectors, guided
from inbedder.model_object import ModelObject
from inbedder.prompting import PromptTemplate, check_strings, check_texts, default_instructions, get_template, resolve_instruction
from inbedder.reencode import Reencoding, check_encoder, reencode
from inbedder.scheduling import Work, finished
from inbedder.sentence_keywords import encode_as_asked
from inbedder.tokenization import PromptTokenizer, PromptTokens
from inbedder.vectors import Vectors
from inbedder.whole_text import WholeTexts, adds_generic

logger = logging.getLogger(__name__)


class InBedder(ModelObject):
    """Embeds texts under an instruction, by answering it (InBedder paper, section 4)."""

    def __init__(
        self,
        model: str | os.PathLike[str] = "mini",
        *,
        backbone: str | None = None,
        pooling: str | None = None,
        layer: int = -1,
        template: str | PromptTemplate | None = None,
        max_length: int = 512,
        max_new_tokens: int | None = None,
        mask_length: int | None = None,
        device: str | None = None,
        dtype: Any = None,
        revision: str | None = None,
        trust_remote_code: bool = False,
        quantization: str | None = None,
        cache: str | os.PathLike[str] | None = None,
        cache_size: str | int | None = None,
        reencoding: Reencoding | None = None,
        subtract_instruction: bool | None = None,
        add_generic: bool | None = None,
        beside: str | None = None,
        truncation_side: str = "right",
        text_memory: str | int | None = None,
    ) -> None:
        """Load a model.

        Args:
            model: ``mini`` (bundled, CPU, no network), a hub id or a folder; the folder or id of a peft adapter loads its base.
            backbone: "causal", "masked", "seq2seq" or "embedding" (embedding models, which answer nothing; "instructor" is an
                alias); None reads it from the model's files. "onnx" runs a masked LM as an int8 graph on a CPU, "vllm" is vLLM's
                engine for causal LMs, its options behind it: "vllm: {tensor_parallel_size: 2}" (see ``backbones/vllm.py``).
            pooling: "1st-gen", "avg-gen", "last-gen", "avg-ppt", "avg-all" or "re-enc"; None is 1st-gen, or avg-gen for masked
                LMs. The authors' names (``fst_gen_layer_32``) are understood and set the layer. Embedding models have
                "text-mean", "mean", "cls" and "last-token", and None is what they were trained with.
            layer: 0 = token embeddings, 1..L = blocks (L after the final norm), negative from the end.
            template: Name or pattern of the prompt; None is what the model was fine-tuned with, else the paper's pattern, or for
                embedding models the instruction directly in front of the text.
            max_length: Longest prompt in tokens; longer texts are cut.
            max_new_tokens: Longest answer in tokens (causal and encoder-decoder LMs); None is what the model's files say, else 3.
            mask_length: Masks that stand for the answer (masked LMs); None is what the model was fine-tuned with, else 3.
            device: A torch device; None takes the GPU where there is one.
            dtype: "float32", "bfloat16" or "float16", or torch's or numpy's of that name ("int8" is an old name of
                backbone="onnx"); None is the device's fastest that is as good: half precision on a GPU, on a CPU bfloat16 where
                it computes in that itself, else float32.
            revision: Branch, tag or commit on the hub.
            trust_remote_code: Run code from the model's repository. Off, as it should be.
            quantization: "int8" or "nf4" through bitsandbytes; for vLLM any of its methods.
            cache: A folder that keeps vectors and answers; what is in it is not computed again. None keeps nothing.
            cache_size: Most room for the cache, in bytes or such as "500M" or "5G": what was used least recently goes first. The
                cache remembers it; "unlimited" lifts it, None leaves it as it is.
            reencoding: How "re-enc" draws and embeds answers.
            subtract_instruction: Take away what the instruction alone says: v(text, i) - v("", i), one more vector per
                instruction; where none is given, nothing is taken. None is what the model's settings say, else False;
                "re-enc" never does.
            add_generic: Under instructions about the whole text add its vector without one (``whole_text.py``). None is what the
                model's settings say, else False; another pooling, another layer and filtered words never do.
            beside: Another model, which reads the same texts under the same instruction; both vectors, of length 1, stand side
                by side, so that a cosine is the mean of both. "none" is none, None what the model's settings say. Another
                pooling, another layer and filtered words are read alone.
            truncation_side: "right" cuts long texts at their end, "left" at their start, as the InBedder authors do.
            text_memory: Most memory for what a causal LM has read of texts, in bytes or such as "2G", so that ``encode`` reads
                little more than the next question over the same texts (1st-gen, the text first); None keeps nothing.

        Raises:
            ModelError: When the model cannot be loaded or has no such layer or pooling.
            InputError: When an option has no meaning for the model, or the cache's folder cannot be used.
        """
        self.given = {name: value for name, value in locals().items() if name != "self"}
        max_length = whole_number("max_length", max_length, 1)
        if max_new_tokens is not None:
            whole_number("max_new_tokens", max_new_tokens, 1)
        if cache is None and cache_size is not None:
            raise InputError("cache_size needs a cache. Name its folder.")
        self.name = os.fspath(model)
        self.store = None if cache is None else Store(cache, cache_size)
        options = LoadOptions(backbone, device, dtype, revision, trust_remote_code, quantization, mask_length)
        self.backbone, settings = load_backbone(self.name, options)
        self.pooling, self.layer = check_pooling(self.backbone, pooling, layer)
        self._generic_base = settings.generic_base
        self._generic_options: dict[str, Any] = {"device": device, "max_length": max_length, "cache": cache}
        self._generic_options["dtype"] = None if dtype == "int8" else dtype  # an encoder has no int8 graph
        self.template = get_template(template if template is not None else settings.template)
        self.template = replace(self.template, bare=self.template.bare or self.backbone.bare)
        self.defaults = default_instructions(self.template, settings.prompts)
        self.sampling = Sampling(max_new_tokens=max_new_tokens or settings.max_new_tokens or Sampling.max_new_tokens)
        self.reencoding = reencoding or Reencoding()
        other = settings.beside if beside is None else beside
        self.beside: InBedder | None = self.loaded_beside(other, truncation_side=truncation_side, **self._generic_options)
        self.subtract_instruction = bool(settings.subtract_instruction if subtract_instruction is None else subtract_instruction)
        self.add_generic = adds_generic(add_generic, settings, self.name)
        self._instruction_vectors: dict[tuple[Any, ...], Vectors] = {}
        self._whole_texts = WholeTexts()
        self.quantization = quantization
        self.precision = self.backbone.precision
        if (limit := self.backbone.position_limit) is not None:
            answer_room = self.sampling.max_new_tokens if self.backbone.continues_prompt else 0
            if answer_room >= limit:
                raise InputError(f"max_new_tokens={answer_room} leaves no room for a prompt: the model takes {limit} positions.")
            max_length = min(max_length, limit - answer_room)
        how = (self.template, max_length, self.backbone.mask_length, truncation_side)
        self.tokenizer = PromptTokenizer(self.backbone.tokenizer, *how)
        self.text_memory = None if text_memory is None else memory_for(self.backbone, self.pooling, self.template, text_memory)

    def _remembering(self) -> Work:
        """The work of one instruction per text, where texts are remembered."""
        backbone, memory = self.backbone, self.text_memory
        assert isinstance(backbone, CausalBackbone) and memory is not None

        def embed(batch: Sequence[Sequence[PromptTokens]]) -> Any:
            prompts = [prompt for (prompt,) in batch]
            return embed_remembered(backbone, prompts, self.layer, memory).cpu().numpy()[:, None]

        return embed

    @cached_property
    def generic(self) -> InBedder | None:
        """The embedding model that reads texts where no instruction is given; None where this model does so itself."""
        if self._generic_base is None:
            return None
        return InBedder(self._generic_base, backbone="embedding", **self._generic_options)

    @cached_property
    def dimension(self) -> int:
        """Length of a vector."""
        return len(self.encode("", self.defaults.any))

    def encode(
        self,
        texts: str | Sequence[str] | None = None,
        instruction: str | Sequence[str] | None = None,
        *,
        batch_size: int = 32,
        normalize_embeddings: bool = False,
        show_progress_bar: bool | None = None,
        filter_words: Sequence[str] = (),
        **keywords: Any,
    ) -> Vectors:
        """Embed texts under an instruction.

        Args:
            texts: One text or n texts; an empty text is embedded as such.
            instruction: One for all texts, or one per text. ``@name`` is a named instruction. None is ``@generic``; for embedding
                models the checkpoint's default prompt, else none; for ``mini`` the vector of its base, which knows no
                instructions (not where another pooling or layer was asked for).
            batch_size: Most texts in one pass.
            normalize_embeddings: Scale vectors to length 1.
            show_progress_bar: None shows one for long work in a terminal.
            filter_words: Words whose answer states are left out (paper, section 4.3).
            **keywords: sentence-transformers' own: ``sentences``, ``prompt`` and ``prompt_name`` (instructions),
                ``convert_to_tensor``, ``convert_to_numpy``, ``device``. Others are refused.

        Returns:
            float32, shape (n, d), or (d,) for one string. Row i belongs to text i. With "re-enc", ``ReencodedVectors``.

        Raises:
            InputError: When a text is not a string, instructions and texts do not match in number, or a keyword is not known.
            ModelError: When the model gives NaN or infinite values.
        """
        if keywords:
            own: dict[str, Any] = {"batch_size": batch_size, "normalize_embeddings": normalize_embeddings}
            own |= {"show_progress_bar": show_progress_bar, "filter_words": filter_words}
            asked: Vectors = encode_as_asked(self, texts, instruction, keywords, own)
            return asked
        if instruction is None and self.read_by_default(filter_words) and self.generic is not None:
            options: dict[str, Any] = {"normalize_embeddings": normalize_embeddings, "show_progress_bar": show_progress_bar}
            return self.generic.encode(texts, batch_size=batch_size, **options)
        rows, instructions = check_texts(texts, self.defaults.any if instruction is None else instruction)
        filter_words = check_strings("filter_words", filter_words)
        if self.pooling == "re-enc":
            device, encoder = str(self.backbone.model.device), self.reencoding.encoder
            how = self.reencoding.sampling(self.sampling.max_new_tokens, filter_words)
            check_encoder(encoder, store=self.store, device=device)
            answers = self._answers(rows, instructions, how, batch_size, show_progress_bar)
            means = finished(reencode(answers, encoder, store=self.store, device=device), normalize_embeddings)
            return means.alone() if isinstance(texts, str) else means
        filter_ids = self.tokenizer.ids_of(filter_words)
        remembers = self.text_memory is not None and self.pooling == "1st-gen" and not filter_ids
        work = self._remembering() if remembers else self._one_by_one(filter_ids)
        questions = [(instruction,) for instruction in instructions]
        vectors = self._vectors(rows, questions, work, filter_ids, batch_size, show_progress_bar, normalize_embeddings)
        found: Vectors = vectors[0, 0] if isinstance(texts, str) else vectors[0]
        return found

    def encode_many(
        self,
        texts: str | Sequence[str],
        instructions: Sequence[str],
        *,
        batch_size: int = 32,
        normalize_embeddings: bool = False,
        show_progress_bar: bool | None = None,
    ) -> Vectors:
        """Embed the same texts under several instructions; models that can read each text once (``backbones/shared_prefix.py``).

        Args:
            texts: One text or n texts.
            instructions: m instructions.
            batch_size: Most texts in one pass.
            normalize_embeddings: Scale vectors to length 1.
            show_progress_bar: None shows one for long work in a terminal.

        Returns:
            float32, shape (m, n, d), or (m, d) for one string.

        Raises:
            InputError: As ``encode`` does, and when no list of instructions is given.
        """
        rows, _ = check_texts(texts, None)
        instructions = check_strings("instructions", instructions)
        if not instructions:
            raise InputError("encode_many takes a list of instructions, and this one is empty.")
        reason = why_not_shared(self.backbone, self.pooling, self.template)
        if reason or not rows:
            logger.info("Each instruction reads the texts again: %s.", reason)
            options: dict[str, Any] = {"batch_size": batch_size, "normalize_embeddings": normalize_embeddings}
            return np.stack(
                [self.encode(texts, instruction, show_progress_bar=show_progress_bar, **options) for instruction in instructions]
            )

        def embed(batch: Sequence[Sequence[PromptTokens]]) -> Any:
            return embed_shared(self.backbone, batch, self.layer).cpu().numpy()

        questions = [tuple(resolve_instruction(instruction) for instruction in instructions)] * len(rows)
        vectors = self._vectors(rows, questions, embed, [], batch_size, show_progress_bar, normalize_embeddings)
        return vectors[:, 0] if isinstance(texts, str) else vectors

    def encode_guided(
        self,
        texts: Sequence[str],
        instruction: str | None,
        *,
        sample: int = 1000,
        generic: Vectors | None = None,
        seed: int = 0,
        batch_size: int = 32,
        show_progress_bar: bool | None = None,
    ) -> GuidedVectors:
        """Embed texts under a new instruction without reading them all again: a map from generic vectors, fitted on a sample.

        Args:
            texts: n texts.
            instruction: The new instruction.
            sample: How many texts are read under it.
            generic: Vectors of the texts, shape (n, k), of any model; None is ``encode(texts)``, which a cache makes free.
            seed: Seed of the drawn sample.
            batch_size: Most texts in one pass.
            show_progress_bar: None shows one for long work in a terminal.

        Returns:
            float32, shape (n, d), with the map's held-out ``cosine`` and the rows of the ``sample``; where the cosine is too
            low every text is read, and a log message says so.

        Raises:
            InputError: When the sample is below 50, or generic vectors and texts differ in number.
        """
        rows, _ = check_texts(texts, None)
        if isinstance(texts, str):
            raise InputError("encode_guided takes a list of texts.")
        options: dict[str, Any] = {"batch_size": batch_size, "show_progress_bar": show_progress_bar}
        known = self.encode(rows, **options) if generic is None else known_vectors("generic", generic, len(rows))
        return guided(
            lambda places: self.encode([rows[i] for i in places], instruction, **options), known, sample=sample, seed=seed
        )

    def answer(
        self,
        texts: str | Sequence[str],
        instruction: str | Sequence[str] | None = None,
        *,
        n: int = 1,
        temperature: float = 0.0,
        top_p: float = 1.0,
        seed: int = 0,
        batch_size: int = 32,
        show_progress_bar: bool | None = None,
    ) -> list[str] | list[list[str]]:
        """Answer the instruction for each text, in the few words that the vectors stand for.

        Args:
            texts: One text or several.
            instruction: One for all texts, or one per text. ``@name`` is a named instruction, None is ``@generic``.
            n: Answers per text; more than one differ only where temperature is above 0.
            temperature: 0 is greedy.
            top_p: Nucleus, in (0, 1].
            seed: Seed of the drawn answers; they depend on it, the text and the instruction, and not on batch_size.
            batch_size: Most texts in one pass.
            show_progress_bar: None shows one for long work in a terminal.

        Returns:
            One answer per text, or with n > 1 a list of n answers per text.

        Raises:
            InputError: When a text is not a string, or an option is out of range.
            ModelError: When the model's language-model head was never trained.
        """
        rows, instructions = check_texts(texts, instruction)
        sampling = Sampling(self.sampling.max_new_tokens, n, temperature, top_p, seed if temperature else 0)
        answers = self._answers(rows, instructions, sampling, batch_size, show_progress_bar)
        return answers if n > 1 else [answer[0] for answer in answers]
