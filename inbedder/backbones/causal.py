"""Causal LMs (OPT, Llama, GPT-2, Qwen, Mistral, ...): the answer continues the prompt.

1st-gen and avg-ppt take one pass of the model without its head. soft-gen feeds soft tokens (``soft_tokens``). The other poolings
generate an answer, greedy or sampled, with a key-value cache, and keep the states of one layer only.

An adapter of the question leaves the text to its base (``question_adapter``): ``text_model`` reads what precedes the instruction,
and the adapted model reads the rest with those keys and values (``kv_cache.read_texts``).
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from inbedder.backbones.confidence import ScoredAnswer, measure_confidences
from inbedder.backbones.hub import Settings
from inbedder.backbones.kv_cache import KVCache, read_texts
from inbedder.backbones.padding_check import split_by_length, split_by_prompt
from inbedder.backbones.sampling import ChosenTokenProcessor, choose_tokens, iterate_numbers, sample_uniform_numbers
from inbedder.backbones.soft_tokens import get_called_body, run_soft_tokens
from inbedder.backbones.traits import TransformersBackbone
from inbedder.backbones.transformer import (
    capture_layer,
    check_layer,
    decode_top_tokens,
    get_body,
    get_pad_id,
    list_special_ids,
    list_stop_ids,
)
from inbedder.backbones.weights import LoadedModel
from inbedder.options import ModelOptions, Sampling
from inbedder.prompting.batching import pad
from inbedder.prompting.tokenization import PromptTokens
from inbedder.vectors.pooling import list_poolings, mask_generated, mask_positions, masked_mean

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from inbedder.backbones.protocol import AnsweredVector, JointReading
    from inbedder.backbones.revision import WeightFiles


def build_causal_backbone(loaded: LoadedModel, _options: ModelOptions) -> tuple[CausalBackbone, Settings]:
    """Build the backbone of a loaded causal LM."""
    backbone = CausalBackbone(loaded.model, loaded.tokenizer)
    if loaded.text_reader is not None:
        backbone.set_text_reader(loaded.text_reader)
    return backbone, loaded.settings


class CausalBackbone(TransformersBackbone):
    """A decoder-only language model."""

    kind = "causal"
    display_name = "A causal LM"
    continues_prompt = True
    poolings = list_poolings("causal")

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, padding_side: str = "left") -> None:
        """Wrap a loaded model; ``padding_side``, "left" or "right", is for poolings without an answer and changes no vector."""
        super().__init__(model, tokenizer)
        self.body = get_body(model)
        self.num_layers = model.config.get_text_config().num_hidden_layers
        self.text_model: PreTrainedModel | None = None
        self.text_files: WeightFiles | None = None
        self.padding_side = padding_side
        self.takes_positions = "position_ids" in inspect.signature(self.body.forward).parameters

    def set_text_reader(self, reader: LoadedModel) -> None:
        """Encode the text with the base model, without the adapter; no pooling reads these states."""
        self.text_model, self.text_files = reader.model, reader.files
        self.display_name = "A causal LM with an adapter of the question"
        self.poolings = tuple(pooling for pooling in self.poolings if pooling not in ("avg-ppt", "avg-all"))

    @property
    def text_revision(self) -> str:
        """Revision of the model that computed the cached keys and values; "" if that is this model."""
        return "" if self.text_files is None else f"{self.text_files.revision} {self.compute_dtype}"

    def make_inputs(
        self, rows: Sequence[NDArray[np.int32]], side: str = "left", past_mask: Tensor | None = None
    ) -> dict[str, Tensor]:
        """Make the inputs of a pass.

        Args:
            rows: Token ids, one array per row.
            side: Padding side, "left" or "right".
            past_mask: Attention mask of cached positions before them, bool, shape (batch, past positions).

        Returns:
            input_ids and, if the model takes them, position_ids, shape (batch, positions); attention_mask, with the past's.
        """
        ids, mask = pad(rows, self.pad_id, side)
        mask = mask if past_mask is None else torch.cat([past_mask, mask], 1)
        inputs = {"input_ids": ids, "attention_mask": mask.long()}
        if self.takes_positions:
            inputs["position_ids"] = (mask.cumsum(1) - 1).clamp(min=0)[:, -ids.shape[1] :]
        return {name: tensor.to(self.model.device) for name, tensor in inputs.items()}

    def _start(
        self, prompts: Sequence[PromptTokens], side: str, kv_cache: KVCache | None = None
    ) -> tuple[dict[str, Tensor], Any]:
        """Make the inputs of prompts; with a cache, or if the base reads texts, of what follows the texts, and their states."""
        if kv_cache is None and self.text_model is None:
            empty = np.array([self.pad_id], dtype=np.int32)  # a prompt without tokens counts as one padding token
            return self.make_inputs([prompt.ids if len(prompt.ids) else empty for prompt in prompts], side), None
        texts = read_texts(self, prompts, kv_cache or KVCache(0))
        return self.make_inputs(texts.following_ids, side, texts.mask), texts.past_key_values

    @split_by_length
    @torch.inference_mode()
    def embed(
        self,
        prompts: Sequence[PromptTokens],
        pooling: str,
        layer: int,
        sampling: Sampling,
        filter_ids: Sequence[int] = (),
        kv_cache: KVCache | None = None,
    ) -> Tensor:
        """Pool one batch; see ``Backbone.embed``. With ``kv_cache`` only what follows each cached text is computed."""
        layer = check_layer(layer, self.num_layers)
        has_answer = pooling not in ("1st-gen", "avg-ppt")
        inputs, past_key_values = self._start(prompts, "left" if has_answer else self.padding_side, kv_cache)
        if pooling == "soft-gen":
            return self.pool_soft_tokens(inputs, past_key_values, layer, sampling.max_new_tokens)
        prompt_mask = inputs["attention_mask"][:, -inputs["input_ids"].shape[1] :].bool()
        body, states = capture_layer(self.body, self.body, layer, self.num_layers)
        if has_answer:
            numbers = iterate_numbers(prompts, sampling, self.model.device)
            predicted = self._decode(body, inputs, past_key_values, sampling, numbers)
            generated = mask_generated(predicted, list_special_ids(self.tokenizer, filter_ids, prompt_mask.device))
        else:
            cache_kwargs = {"use_cache": False} if past_key_values is None else {"past_key_values": past_key_values}
            body(**inputs, **cache_kwargs)
            generated = prompt_mask[:, :0]
        return masked_mean(torch.cat(states, 1), mask_positions(pooling, prompt_mask, generated))

    def pool_soft_tokens(self, inputs: dict[str, Tensor], past_key_values: Any, layer: int, count: int) -> Tensor:
        """Pool one batch by soft-gen.

        Args:
            inputs: Left-padded prompts, from ``make_inputs``.
            past_key_values: Keys and values of the positions before them, or None.
            layer: 0 .. L.
            count: Number of soft tokens.

        Returns:
            float32, shape (batch, d).
        """
        model, states = capture_layer(self.model, get_called_body(self.model), layer, self.num_layers)
        output = model(**inputs, past_key_values=past_key_values, use_cache=True, logits_to_keep=1)
        run_soft_tokens(
            model,
            self.model,
            output.logits[:, -1],
            output.past_key_values,
            inputs["attention_mask"],
            count,
            takes_positions=self.takes_positions,
        )
        return torch.cat(states[1:], 1).float().mean(1)

    def _decode(
        self, body: nn.Module, inputs: dict[str, Tensor], past_key_values: Any, sampling: Sampling, numbers: Iterator[Tensor]
    ) -> Tensor:
        """Generate one answer per left-padded prompt: y_0 .. y_{G-1}, shape (batch, G), padding after the end token."""
        step_inputs = dict(inputs)
        head = self.model.get_output_embeddings()
        stops = torch.tensor(self._list_stop_ids(), device=self.model.device)
        is_finished = torch.zeros(len(inputs["input_ids"]), dtype=torch.bool, device=self.model.device)
        predicted: list[Tensor] = []
        while True:
            output = body(**step_inputs, past_key_values=past_key_values, use_cache=True)
            token = choose_tokens(head(output.last_hidden_state[:, -1]), sampling, numbers).masked_fill(is_finished, self.pad_id)
            predicted.append(token)
            is_finished |= torch.isin(token, stops)
            if len(predicted) == sampling.max_new_tokens or (len(predicted) > 1 and bool(is_finished.all())):
                return torch.stack(predicted, 1)
            past_key_values = output.past_key_values
            step_inputs["input_ids"] = token.unsqueeze(1)
            step_inputs["attention_mask"] = torch.cat(
                [step_inputs["attention_mask"], torch.ones_like(step_inputs["input_ids"])], 1
            )
            if "position_ids" in step_inputs:
                step_inputs["position_ids"] = step_inputs["position_ids"][:, -1:] + 1

    def _list_stop_ids(self) -> list[int]:
        return list_stop_ids(self.model.generation_config, self.tokenizer)

    @split_by_prompt
    @torch.inference_mode()
    def answer(
        self, prompts: Sequence[PromptTokens], sampling: Sampling, kv_cache: KVCache | None = None
    ) -> list[list[ScoredAnswer]]:
        """Answer one batch; see ``Backbone.answer``. With ``kv_cache`` only what follows each cached text is read."""
        return self._generate(self.model, prompts, sampling, kv_cache)

    def embed_and_answer(
        self, prompts: Sequence[PromptTokens], reading: JointReading, **cached_texts: Any
    ) -> list[AnsweredVector]:
        """Pool and answer one batch, for 1st-gen in one pass; see ``Backbone.embed_and_answer``."""
        if reading.pooling != "1st-gen" or reading.answering.temperature or self.reads_padding:
            return super().embed_and_answer(prompts, reading, **cached_texts)
        with torch.inference_mode():
            layer = check_layer(reading.layer, self.num_layers)
            model, states = capture_layer(self.model, get_called_body(self.model), layer, self.num_layers)
            answers = self._generate(model, prompts, reading.answering, **cached_texts)
            return list(zip(states[0][:, -1].float(), answers, strict=True))

    def _generate(
        self, model: PreTrainedModel, prompts: Sequence[PromptTokens], sampling: Sampling, kv_cache: KVCache | None = None
    ) -> list[list[ScoredAnswer]]:
        inputs, past_key_values = self._start(prompts, "left", kv_cache)
        inputs.pop("position_ids", None)
        past_length = inputs["attention_mask"].shape[1] - inputs["input_ids"].shape[1]
        inputs["input_ids"] = F.pad(inputs["input_ids"], (past_length, 0), value=self.pad_id)  # generate takes all ids
        numbers = sample_uniform_numbers(prompts, sampling, sampling.max_new_tokens)
        length = inputs["input_ids"].shape[1]
        return generate_answers(model, self.tokenizer, inputs, sampling, numbers, length, past_key_values)

    @torch.inference_mode()
    def read_vectors(self, vectors: Tensor, top: int) -> list[list[str]]:
        """Apply the language-model head; see ``Backbone.read_vectors``."""
        logits = self.model.get_output_embeddings()(vectors.to(self.model.device, self.model.dtype))
        return decode_top_tokens(logits, self.tokenizer, top)


def generate_answers(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    inputs: dict[str, Tensor],
    sampling: Sampling,
    numbers: Tensor,
    prompt_length: int,
    past_key_values: Any = None,
) -> list[list[ScoredAnswer]]:
    """Generate answers with transformers, and decode them.

    Args:
        model: A model with ``generate``.
        tokenizer: Its tokenizer.
        inputs: Padded prompts.
        sampling: Length, number, temperature and top_p of the answers.
        numbers: The random numbers that decide sampled tokens, from ``sample_uniform_numbers``.
        prompt_length: Number of leading output positions that belong to the prompt.
        past_key_values: Keys and values of the first positions, or None.

    Returns:
        ``sampling.n`` answers per prompt, each with its confidence.
    """
    from transformers import LogitsProcessorList

    answers_per_prompt = sampling.n if sampling.temperature else 1
    processor = ChosenTokenProcessor(sampling, numbers.to(model.device))
    if past_key_values is not None:
        past_key_values.batch_repeat_interleave(answers_per_prompt)
    repeated_inputs = {name: tensor.repeat_interleave(answers_per_prompt, 0) for name, tensor in inputs.items()}
    if "logits_to_keep" in inspect.signature(model.forward).parameters:  # transformers' 1 is a view, multiplied row by row
        repeated_inputs["logits_to_keep"] = torch.tensor([-1], device=model.device)
    sequences = model.generate(
        **repeated_inputs,
        past_key_values=past_key_values,
        max_new_tokens=sampling.max_new_tokens,
        do_sample=False,
        num_beams=1,
        repetition_penalty=1.0,
        pad_token_id=get_pad_id(tokenizer),
        logits_processor=LogitsProcessorList([processor]),
    )
    tokens = sequences[:, prompt_length:]
    stop_ids = list_stop_ids(model.generation_config, tokenizer)
    confidences = measure_confidences(torch.stack(processor.log_probs, 1), tokens, stop_ids).tolist()
    answers = list(map(ScoredAnswer, tokenizer.batch_decode(tokens, skip_special_tokens=True), confidences))
    if not sampling.temperature:
        return [[answer] * sampling.n for answer in answers]
    return [answers[start : start + answers_per_prompt] for start in range(0, len(answers), answers_per_prompt)]
