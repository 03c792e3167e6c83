"""Encoder-decoder LMs (T5, BART, ...): avg-ppt from the encoder, the other poolings from the decoder.

Paper, appendix C: there is no avg-all, because encoder and decoder do not share a space, and 1st-gen is the decoder's state at
its start token. The decoder's position j predicts the answer's token y_j. avg-gen and last-gen leave out positions that predict
a special token; if no position remains, they keep the first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from inbedder.backbones.causal import generate_answers
from inbedder.backbones.confidence import ScoredAnswer
from inbedder.backbones.hub import Settings
from inbedder.backbones.padding_check import split_by_length, split_by_prompt
from inbedder.backbones.sampling import choose_tokens, iterate_numbers, sample_uniform_numbers
from inbedder.backbones.traits import TransformersBackbone
from inbedder.backbones.transformer import capture_layer, check_layer, decode_top_tokens, list_special_ids
from inbedder.backbones.weights import LoadedModel
from inbedder.options import ModelOptions, Sampling
from inbedder.prompting.batching import pad
from inbedder.prompting.tokenization import PromptTokens
from inbedder.vectors.pooling import keep_last_true, list_poolings, masked_mean

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


def build_seq2seq_backbone(loaded: LoadedModel, _options: ModelOptions) -> tuple[Seq2SeqBackbone, Settings]:
    """Build the backbone of a loaded encoder-decoder."""
    return Seq2SeqBackbone(loaded.model, loaded.tokenizer), loaded.settings


class Seq2SeqBackbone(TransformersBackbone):
    """An encoder-decoder language model."""

    kind = "seq2seq"
    display_name = "A seq2seq LM"
    poolings = list_poolings("seq2seq")

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
        """Wrap a loaded model."""
        super().__init__(model, tokenizer)
        self.encoder, self.decoder = model.get_encoder(), model.get_decoder()
        config = model.config
        self.encoder_layers: int = config.num_hidden_layers
        self.num_layers = getattr(config, "num_decoder_layers", None) or getattr(config, "decoder_layers", self.encoder_layers)

    def _make_inputs(self, prompts: Sequence[PromptTokens]) -> dict[str, Tensor]:
        ids, attention = pad([prompt.ids for prompt in prompts], self.pad_id)
        return {"input_ids": ids.to(self.model.device), "attention_mask": attention.long().to(self.model.device)}

    @split_by_length
    @torch.inference_mode()
    def embed(
        self, prompts: Sequence[PromptTokens], pooling: str, layer: int, sampling: Sampling, filter_ids: Sequence[int] = ()
    ) -> Tensor:
        """Pool one batch; see ``Backbone.embed``."""
        inputs = self._make_inputs(prompts)
        if pooling == "avg-ppt":
            layer = check_layer(layer, self.encoder_layers)
            encoder, states = capture_layer(self.encoder, self.encoder, layer, self.encoder_layers)
            encoder(**inputs)
            return masked_mean(states[0], inputs["attention_mask"].bool())
        model, states = capture_layer(self.model, self.decoder, check_layer(layer, self.num_layers), self.num_layers)
        if pooling == "1st-gen":
            sampling = Sampling(1)
        predicted = self._decode(model, inputs, sampling, iterate_numbers(prompts, sampling, self.model.device))
        keep = ~torch.isin(predicted, list_special_ids(self.tokenizer, filter_ids, predicted.device))
        keep[:, 0] |= ~keep.any(1)
        if pooling == "1st-gen":
            keep = torch.ones_like(keep)
        return masked_mean(torch.cat(states, 1), keep_last_true(keep) if pooling == "last-gen" else keep)

    def _decode(self, model: nn.Module, inputs: dict[str, Tensor], sampling: Sampling, numbers: Iterator[Tensor]) -> Tensor:
        """Generate one answer per prompt: y_0 .. y_{G-1}, shape (batch, G), padding after the end token."""
        encoded = self.encoder(**inputs)
        rows, device = len(inputs["input_ids"]), self.model.device
        start = self.model.config.decoder_start_token_id
        token = torch.full((rows,), start, dtype=torch.long, device=device)
        is_finished = torch.zeros(rows, dtype=torch.bool, device=device)
        past_key_values, predicted = None, []
        while True:
            output = model(
                encoder_outputs=encoded,
                attention_mask=inputs["attention_mask"],
                decoder_input_ids=token.unsqueeze(1),
                past_key_values=past_key_values,
                use_cache=True,
            )
            token = choose_tokens(output.logits[:, -1], sampling, numbers).masked_fill(is_finished, self.pad_id)
            predicted.append(token)
            is_finished |= token == self.tokenizer.eos_token_id
            if len(predicted) == sampling.max_new_tokens or bool(is_finished.all()):
                return torch.stack(predicted, 1)
            past_key_values = output.past_key_values

    @split_by_prompt
    @torch.inference_mode()
    def answer(self, prompts: Sequence[PromptTokens], sampling: Sampling) -> list[list[ScoredAnswer]]:
        """Answer one batch; see ``Backbone.answer``."""
        numbers = sample_uniform_numbers(prompts, sampling, sampling.max_new_tokens)
        return generate_answers(self.model, self.tokenizer, self._make_inputs(prompts), sampling, numbers, prompt_length=1)

    @torch.inference_mode()
    def read_vectors(self, vectors: Tensor, top: int) -> list[list[str]]:
        """Apply the language-model head to vectors of the decoder's last layer; see ``Backbone.read_vectors``."""
        logits = self.model.get_output_embeddings()(vectors.to(self.model.device, self.model.dtype))
        return decode_top_tokens(logits, self.tokenizer, top)
