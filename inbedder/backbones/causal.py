"""Causal LMs (OPT, Llama, GPT-2, Qwen, Mistral, ...): the answer continues the prompt.

1st-gen and avg-ppt take one pass of the model without its head. The other poolings generate an answer, greedy or sampled, with a
key-value cache, and keep the states of one layer only.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from transformers import LogitsProcessor, LogitsProcessorList

from inbedder.backbones.hub import Settings
from inbedder.backbones.padding_check import split_by_length, split_by_prompt
from inbedder.backbones.sampling import SampledTokenProcessor, choose_tokens, iterate_numbers, sample_uniform_numbers
from inbedder.backbones.transformer import (
    capture_layer,
    check_layer,
    decode_top_tokens,
    find_position_limit,
    get_body,
    get_dtype_name,
    get_pad_id,
    list_special_ids,
    list_stop_ids,
)
from inbedder.backbones.weights import LoadedModel
from inbedder.options import ModelOptions, Sampling
from inbedder.pooling import list_poolings, mask_generated, mask_positions, masked_mean
from inbedder.prompting.batching import pad
from inbedder.prompting.tokenization import PromptTokens

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


def build_causal_backbone(loaded: LoadedModel, _options: ModelOptions) -> tuple[CausalBackbone, Settings]:
    """Build the backbone of a loaded causal LM."""
    backbone = CausalBackbone(loaded.model, loaded.tokenizer)
    backbone.answers = not loaded.untrained
    return backbone, loaded.settings


class CausalBackbone:
    """A decoder-only language model."""

    kind: str = "causal"
    display_name: str = "A causal LM"
    continues_prompt = True
    without_template = False
    poolings: tuple[str, ...] = list_poolings("causal")
    mask_length = 0

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, padding_side: str = "left") -> None:
        """Wrap a loaded model; ``padding_side``, "left" or "right", is for poolings without an answer and changes no vector."""
        self.model = model.eval()
        self.compute_dtype = get_dtype_name(model)
        self.body = get_body(model)
        self.tokenizer = tokenizer
        self.pad_id = get_pad_id(tokenizer)
        self.answers = True
        self.reads_padding = False
        self.adapter: str | None = None
        self.weight_files: Any = None
        self.padding_side = padding_side
        self.num_layers: int = model.config.get_text_config().num_hidden_layers
        self.position_limit = find_position_limit(model)
        self.takes_positions = "position_ids" in inspect.signature(self.body.forward).parameters

    def _make_inputs(self, prompts: Sequence[PromptTokens], side: str) -> dict[str, Tensor]:
        ids, attention = pad([prompt.ids for prompt in prompts], self.pad_id, side)
        inputs = {"input_ids": ids, "attention_mask": attention.long()}
        if self.takes_positions:
            inputs["position_ids"] = (attention.cumsum(1) - 1).clamp(min=0)
        return {name: tensor.to(self.model.device) for name, tensor in inputs.items()}

    @split_by_length
    @torch.inference_mode()
    def embed(
        self, prompts: Sequence[PromptTokens], pooling: str, layer: int, sampling: Sampling, filter_ids: Sequence[int] = ()
    ) -> Tensor:
        """Pool one batch; see ``Backbone.embed``."""
        layer = check_layer(layer, self.num_layers)
        needs_answer = pooling in ("avg-gen", "last-gen", "avg-all")
        inputs = self._make_inputs(prompts, "left" if needs_answer else self.padding_side)
        prompt_mask = inputs["attention_mask"].bool()
        body, states = capture_layer(self.body, self.body, layer, self.num_layers)
        if needs_answer:
            predicted = self._decode(body, inputs, sampling, iterate_numbers(prompts, sampling, self.model.device))
            generated = mask_generated(predicted, list_special_ids(self.tokenizer, filter_ids, prompt_mask.device))
        else:
            body(**inputs, use_cache=False)
            generated = prompt_mask[:, :0]
        return masked_mean(torch.cat(states, 1), mask_positions(pooling, prompt_mask, generated))

    def _decode(self, body: nn.Module, inputs: dict[str, Tensor], sampling: Sampling, numbers: Iterator[Tensor]) -> Tensor:
        """Generate one answer per left-padded prompt: y_0 .. y_{G-1}, shape (batch, G), padding after the end token."""
        step_inputs, past_key_values = dict(inputs), None
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
    def answer(self, prompts: Sequence[PromptTokens], sampling: Sampling) -> list[list[str]]:
        """Answer one batch; see ``Backbone.answer``."""
        inputs = self._make_inputs(prompts, "left")
        inputs.pop("position_ids", None)
        numbers = sample_uniform_numbers(prompts, sampling, sampling.max_new_tokens)
        return generate_answers(self.model, self.tokenizer, inputs, sampling, numbers, inputs["input_ids"].shape[1])

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
) -> list[list[str]]:
    """Generate answers with transformers, and decode them.

    Args:
        model: A model with ``generate``.
        tokenizer: Its tokenizer.
        inputs: Padded prompts.
        sampling: Length, number, temperature and top_p of the answers.
        numbers: The random numbers that decide sampled tokens, from ``sample_uniform_numbers``.
        prompt_length: Number of leading output positions that belong to the prompt.

    Returns:
        ``sampling.n`` answers per prompt.
    """
    processors: list[LogitsProcessor] = []
    answers_per_prompt = 1
    if sampling.temperature > 0:
        processors, answers_per_prompt = [SampledTokenProcessor(sampling, numbers.to(model.device))], sampling.n
    sequences = model.generate(
        **{name: tensor.repeat_interleave(answers_per_prompt, 0) for name, tensor in inputs.items()},
        max_new_tokens=sampling.max_new_tokens,
        do_sample=False,
        num_beams=1,
        repetition_penalty=1.0,
        pad_token_id=get_pad_id(tokenizer),
        logits_processor=LogitsProcessorList(processors),
    )
    answers = tokenizer.batch_decode(sequences[:, prompt_length:], skip_special_tokens=True)
    if not processors:
        return [[answer] * sampling.n for answer in answers]
    return [answers[start : start + answers_per_prompt] for start in range(0, len(answers), answers_per_prompt)]
