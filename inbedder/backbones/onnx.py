"""Masked LMs in int8 on a CPU with ONNX Runtime, for the last layer's states; torch computes answers and other layers.

The body is exported once (torch.onnx) and its matrix products are quantized. Weights are signed int8 with one scale per channel,
limited to 7 bits so that sums do not overflow on any CPU. Activations have one scale per batch, so a text's vector depends
slightly on its batch. The graph is in the user's cache folder; its name is a hash of the weights and library versions.
"""

from __future__ import annotations

import hashlib
import logging
import os
import tempfile
import warnings
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from inbedder.backbones.masked import MaskedBackbone
from inbedder.backbones.padding_check import make_example_prompts, split_by_length
from inbedder.backbones.traits import BackboneTraits
from inbedder.backbones.transformer import check_layer
from inbedder.errors import MissingExtraError, ModelError
from inbedder.io.files import atomic_write
from inbedder.options import Sampling
from inbedder.prompting.tokenization import PromptTokens
from inbedder.runtime.user_paths import expand_path
from inbedder.vectors.pooling import masked_mean

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

logger = logging.getLogger(__name__)

PACKAGES = ("onnx", "onnxruntime", "onnxscript")


class OnnxMaskedBackbone(MaskedBackbone):
    """A masked LM whose vectors come from an int8 graph."""

    runs_side_by_side = False  # ONNX Runtime has threads of its own
    embed_and_answer = BackboneTraits.embed_and_answer  # torch's model answers, the graph embeds

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, mask_length: int = 3) -> None:
        """Find or export the graph of a float32 model on a CPU; reject any other model, or one that cannot be exported."""
        super().__init__(model, tokenizer, mask_length)
        if model.device.type != "cpu":
            raise ModelError("ONNX Runtime's int8 needs a CPU. Choose device='cpu', or quantization='int8' (bitsandbytes).")
        self.compute_dtype = "int8"
        example, _ = self._make_inputs(make_example_prompts(tokenizer, mask_length))
        self.graph = GraphSession(get_int8_graph(self.body, example))

    @split_by_length
    @torch.inference_mode()
    def embed(
        self, prompts: Sequence[PromptTokens], pooling: str, layer: int, sampling: Sampling, filter_ids: Sequence[int] = ()
    ) -> Tensor:
        """Pool one batch; torch computes other layers than the last, and vectors with filtered words. See ``Backbone.embed``."""
        if filter_ids or check_layer(layer, self.num_layers) != self.num_layers:
            return super().embed(prompts, pooling, layer, sampling, filter_ids)
        inputs, is_mask = self._make_inputs(prompts)
        feed = {name: column.numpy() for name, column in _as_graph(inputs).items()}
        states = torch.from_numpy(self.graph.run(feed))
        return masked_mean(states, self._select_pooled(pooling, inputs, is_mask))


def _as_graph(inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    """Convert inputs to the graph's integers."""
    return {name: column.long() for name, column in inputs.items()}


def get_int8_graph(body: nn.Module, example: dict[str, Tensor]) -> Path:
    """Find the int8 .onnx file of a headless float32 model in the cache folder, or export it with an ``example`` batch."""
    try:
        versions = [f"{package} {version(package)}" for package in PACKAGES]
    except PackageNotFoundError as error:
        raise MissingExtraError(str(error.name or PACKAGES[0]), "onnx") from error
    digest = hashlib.sha256("\n".join([*versions, torch.__version__, repr(body), *example]).encode())
    for name, tensor in body.state_dict().items():
        digest.update(name.encode())
        digest.update(tensor.contiguous().numpy().data)
    path = expand_path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "inbedder" / "onnx" / f"{digest.hexdigest()[:32]}.onnx"
    if not path.exists():
        logger.info("Exporting the int8 graph %s, once for these weights.", path.name)
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as folder, atomic_write(path) as temporary:
            float_graph = Path(folder) / "whole.onnx"
            _export(body, _as_graph(example), float_graph)
            from onnxruntime.quantization import QuantType, quantize_dynamic

            quantize_dynamic(float_graph, temporary, per_channel=True, reduce_range=True, weight_type=QuantType.QInt8)
    return path


class _States(nn.Module):
    """A module that returns the last layer's states."""

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, position_ids: Tensor | None = None, token_type_ids: Tensor | None = None
    ) -> Any:
        inputs = {"attention_mask": attention_mask, "position_ids": position_ids, "token_type_ids": token_type_ids}
        return self.body(input_ids=input_ids, **inputs).last_hidden_state


def _export(body: nn.Module, example: dict[str, Tensor], path: Path) -> None:
    batch, length = torch.export.Dim("batch"), torch.export.Dim("length")
    dynamic_axes = {
        name: {0: batch, 2: length, 3: length} if t.ndim == 4 else {0: batch, 1: length} for name, t in example.items()
    }
    names = [name for name in ("input_ids", "attention_mask", "position_ids", "token_type_ids") if name in example]
    try:
        with torch.inference_mode(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.onnx.export(
                _States(body).eval(),
                tuple(example[name] for name in names),
                path,
                input_names=names,
                output_names=["states"],
                dynamic_shapes={name: dynamic_axes[name] for name in names},
                dynamo=True,
                external_data=False,
                verbose=False,
            )
    except Exception as error:  # torch.export raises many kinds
        raise ModelError(
            f"{type(body).__name__} cannot be exported to ONNX ({str(error).splitlines()[0]}). Use float32."
        ) from error


class GraphSession:
    """A session of ONNX Runtime, whose threads do not survive a fork: every process starts its own on first use."""

    def __init__(self, path: Path) -> None:
        """Set the .onnx file."""
        self._path = path
        self._session_by_process: dict[int, Any] = {}  # to delete the parent's session would wait for its threads

    def run(self, feed: dict[str, np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
        """Run the graph on its inputs by name, and return its first output."""
        process = os.getpid()
        if process not in self._session_by_process:
            self._session_by_process.setdefault(process, _start_session(self._path))
        output: np.ndarray[Any, Any] = self._session_by_process[process].run(None, feed)[0]
        return output


def _start_session(path: Path) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
