"""Causal LMs (OPT, Llama, GPT-2, Qwen, Mistral, ...): the answer is what they would say next.

1st-gen and avg-ppt take one pass of the model without its head. The other poolings decode, greedily or drawn, with a key-value
cache and keep the states of the asked layer alone.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from transformers import LogitsProcessor, LogitsProcessorList

from inbedder.backbones.hub import Settings
from inbedder.backbones.sampling import DrawnTokens, next_numbers, next_token, uniform_numbers
from inbedder.backbones.transformer import (
    body_of,
    check_layer,
    dtype_name,
    likeliest_words,
    pad_id_of,
    position_limit,
    special_ids,
    stop_ids,
    tapped,
)
from inbedder.backbones.weights import Loaded
from inbedder.options import ModelOptions, Sampling
from inbedder.pooling import kept_generated, kept_positions, masked_mean, poolings_of
from inbedder.prompting.batching import pad
from inbedder.prompting.tokenization import PromptTokens

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


def causal_backbone(loaded: Loaded, _options: ModelOptions) -> tuple[CausalBackbone, Settings]:
    """The backbone of a loaded causal LM."""
    backbone = CausalBackbone(loaded.model, loaded.tokenizer)
    backbone.answers = not loaded.untrained
    return backbone, loaded.settings


class CausalBackbone:
    """A decoder-only language model."""

    kind: str = "causal"
    called = "A causal LM"
    continues_prompt = True
    bare = False
    poolings: tuple[str, ...] = poolings_of("causal")
    mask_length = 0

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, padding_side: str = "left") -> None:
        """Wrap a loaded model; ``padding_side``, "left" or "right", is for poolings that decode nothing and changes no vector."""
        self.model = model.eval()
        self.precision = dtype_name(model)
        self.body = body_of(model)
        self.tokenizer = tokenizer
        self.pad_id = pad_id_of(tokenizer)
        self.answers = True
        self.adapter: str | None = None
        self.weight_files: Any = None
        self.padding_side = padding_side
        self.num_layers: int = model.config.get_text_config().num_hidden_layers
        self.position_limit = position_limit(model)
        self.takes_positions = "position_ids" in inspect.signature(self.body.forward).parameters

    def _inputs(self, prompts: Sequence[PromptTokens], side: str) -> dict[str, Tensor]:
        ids, attention = pad([prompt.ids for prompt in prompts], self.pad_id, side)
        inputs = {"input_ids": ids, "attention_mask": attention.long()}
        if self.takes_positions:
            inputs["position_ids"] = (attention.cumsum(1) - 1).clamp(min=0)
        return {name: tensor.to(self.model.device) for name, tensor in inputs.items()}

    @torch.inference_mode()
    def embed(
        self, prompts: Sequence[PromptTokens], pooling: str, layer: int, sampling: Sampling, filter_ids: Sequence[int] = ()
    ) -> Tensor:
        """Pool one batch, as ``Backbone.embed``."""
        layer = check_layer(layer, self.num_layers)
        decodes = pooling in ("avg-gen", "last-gen", "avg-all")
        inputs = self._inputs(prompts, "left" if decodes else self.padding_side)
        prompt = inputs["attention_mask"].bool()
        body, states = tapped(self.body, self.body, layer, self.num_layers)
        if decodes:
            predicted = self._decode(body, inputs, sampling, next_numbers(prompts, sampling, self.model.device))
            generated = kept_generated(predicted, special_ids(self.tokenizer, filter_ids, prompt.device))
        else:
            body(**inputs, use_cache=False)
            generated = prompt[:, :0]
        return masked_mean(torch.cat(states, 1), kept_positions(pooling, prompt, generated))

    def _decode(self, body: nn.Module, inputs: dict[str, Tensor], sampling: Sampling, numbers: Iterator[Tensor]) -> Tensor:
        """One answer of left-padded prompts: y_0 .. y_{G-1}, shape (batch, G), padding after the end token."""
        feed, past = dict(inputs), None
        head = self.model.get_output_embeddings()
        stops = torch.tensor(self._stop_ids(), device=self.model.device)
        ended = torch.zeros(len(inputs["input_ids"]), dtype=torch.bool, device=self.model.device)
        predicted: list[Tensor] = []
        while True:
            output = body(**feed, past_key_values=past, use_cache=True)
            token = next_token(head(output.last_hidden_state[:, -1]), sampling, numbers).masked_fill(ended, self.pad_id)
            predicted.append(token)
            ended |= torch.isin(token, stops)
            if len(predicted) == sampling.max_new_tokens or (len(predicted) > 1 and bool(ended.all())):
                return torch.stack(predicted, 1)
            past = output.past_key_values
            feed["input_ids"] = token.unsqueeze(1)
            feed["attention_mask"] = torch.cat([feed["attention_mask"], torch.ones_like(feed["input_ids"])], 1)
            if "position_ids" in feed:
                feed["position_ids"] = feed["position_ids"][:, -1:] + 1

    def _stop_ids(self) -> list[int]:
        return stop_ids(self.model.generation_config, self.tokenizer)

    @torch.inference_mode()
    def answer(self, prompts: Sequence[PromptTokens], sampling: Sampling) -> list[list[str]]:
        """Answer one batch, as ``Backbone.answer``."""
        inputs = self._inputs(prompts, "left")
        inputs.pop("position_ids", None)
        numbers = uniform_numbers(prompts, sampling, sampling.max_new_tokens)
        return generated_answers(self.model, self.tokenizer, inputs, sampling, numbers, inputs["input_ids"].shape[1])

    @torch.inference_mode()
    def read_vectors(self, vectors: Tensor, top: int) -> list[list[str]]:
        """Apply the language-model head, as ``Backbone.read_vectors``."""
        logits = self.model.get_output_embeddings()(vectors.to(self.model.device, self.model.dtype))
        return likeliest_words(logits, self.tokenizer, top)


def generated_answers(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    inputs: dict[str, Tensor],
    sampling: Sampling,
    numbers: Tensor,
    prompt_length: int,
) -> list[list[str]]:
    """Let transformers generate, and decode what follows the prompt.

    Args:
        model: A model with ``generate``.
        tokenizer: Its tokenizer.
        inputs: Padded prompts.
        sampling: Length, number, temperature and top_p of the answers.
        numbers: The numbers that decide the draws, from ``uniform_numbers``.
        prompt_length: How many leading positions of the output are the prompt's.

    Returns:
        ``sampling.n`` answers per prompt.
    """
    drawing: list[LogitsProcessor] = []
    each = 1
    if sampling.temperature > 0:
        drawing, each = [DrawnTokens(sampling, numbers.to(model.device))], sampling.n
    sequences = model.generate(
        **{name: tensor.repeat_interleave(each, 0) for name, tensor in inputs.items()},
        max_new_tokens=sampling.max_new_tokens,
        do_sample=False,
        num_beams=1,
        repetition_penalty=1.0,
        pad_token_id=pad_id_of(tokenizer),
        logits_processor=LogitsProcessorList(drawing),
    )
    answers = tokenizer.batch_decode(sequences[:, prompt_length:], skip_special_tokens=True)
    if not drawing:
        return [[answer] * sampling.n for answer in answers]
    return [answers[start : start + each] for start in range(0, len(answers), each)]
