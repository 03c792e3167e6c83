"""What is minimised: the answer's tokens, and the amortised re-encoding of the answer.

Re-encoding (InBedder paper, section 4.1, equation 2) embeds a text x under an instruction I by sampling answers and embedding
them with another encoder R: the mean of R(y) over y ~ P(y | I, x). That costs generation. Its amortised form trains the
model's own pooled state v(I, x) towards the re-encoded reference answer e = R(y), y from the data, so that one forward pass
gives what sampling and re-encoding would::

    L = token_weight * CE(y | I, x) + reencode_weight * A
    A = mean_i -log( exp(cos(v_i, e_i)/t) / sum_j exp(cos(v_i, e_j)/t) )      "info_nce"
    A = mean_i 1 - cos(v_i, e_i)                                                "cosine"

``cosine_weight`` adds some of the second to the first. With a teacher T, a model that already follows instructions, there is also
``teacher_weight`` times the cross-entropy between its similarities and those of the model to it, or the distance to its vectors::

    T = mean_i - sum_j softmax_j(cos(t_i, t_j)/t) log softmax_j(cos(v_i, t_j)/t),   t_i = T(I_i, x_i)      "similarities"
    T = mean_i 1 - cos(v_i, t_i)                                                                           "cosine"

v is the pooled state, or what is left of it without the vector of the instruction alone where ``subtract`` names a model that
gives this: then what is drawn is what ``subtract_instruction`` reads, and what all answers to a question share stays with it.

j runs over the answers of the step (of all processes and micro-batches) that differ from answer i, and i itself; in T over all of
the step's rows. v is the mean of the masks' states (masked LMs), the state that predicts the first token (1st-gen), or the mean
of the states that predict the answer (avg-gen). A near neighbour is InstEmb (ICML 2026), which distils answers into look-ahead
tokens of the prompt; here no token is added.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

from finetune.answering.examples import IGNORED
from finetune.answering.recipe import Objective
from inbedder.backbones.late_interaction import ATTENTION
from inbedder.backbones.masked import kept_alone
from inbedder.backbones.packed_row import pack, parts_of
from inbedder.backbones.transformer import body_of

if TYPE_CHECKING:
    from transformers import PreTrainedModel

TARGETS = ("vector", "answer", "taught", "alone")
"""What a batch may hold for vectors to be drawn to: answers' vectors, the answers' ids, a teacher's vectors, and the
vectors of the instructions alone, which are subtracted first."""


@dataclass(frozen=True)
class Read:
    """What one forward pass tells of a batch."""

    logits: Tensor
    """Logits where a label stands, shape (labels, vocabulary)."""
    labels: Tensor
    """The labels, shape (labels,)."""
    states: Tensor
    """The states of the last layer that predict the labels, shape (labels, d)."""
    owner: Tensor
    """The example of each label, shape (labels,); those of one example stand together, in order."""


@contextmanager
def last_states(body: nn.Module, keep: Tensor | None = None) -> Iterator[list[Tensor]]:
    """Collect the last layer's states at every pass of a model in training, which may be wrapped: one thread trains it.

    Args:
        body: The model without its head.
        keep: Positions that alone reach the head, bool, shape (batch, positions), the same number in each row; None for all.

    Yields:
        A list that grows by one tensor, shape (batch, positions, d), at every pass.
    """
    states: list[Tensor] = []

    def look(_module: nn.Module, _args: Any, output: Any) -> Any:
        states.append(output[0])
        return output if keep is None else kept_alone(output, keep)

    handle = body.register_forward_hook(look)
    try:
        yield states
    finally:
        handle.remove()


def read_masked(model: Any, plain: PreTrainedModel, batch: dict[str, Tensor]) -> Read:
    """A masked LM's pass, with logits at the masks alone.

    Args:
        model: The model to call, wrapped or not.
        plain: The model itself.
        batch: input_ids, attention_mask, is_mask, labels (the targets of the masks, in order).

    Returns:
        Logits, labels and states.
    """
    if plain.config._attn_implementation == ATTENTION:
        return _read_apart(model, plain, batch)
    is_mask = batch["is_mask"]
    body = body_of(plain)
    carries = batch["labels"] != IGNORED
    inputs = {"input_ids": batch["input_ids"], "attention_mask": batch["attention_mask"]}
    if bool(carries.all()):
        with last_states(body, is_mask) as states:
            logits = model(**inputs).logits.flatten(0, 1)
    else:
        with last_states(body) as states:
            logits = model(**inputs).logits[is_mask]
    return Read(logits, batch["labels"][carries], states[0][is_mask], is_mask.nonzero()[:, 0])


def _read_apart(model: Any, plain: PreTrainedModel, batch: dict[str, Tensor]) -> Read:
    """A pass of a masked LM that reads each text and each question of the batch once, as in inference."""
    ids, is_mask = batch["input_ids"].cpu().numpy().astype(np.int32), batch["is_mask"].cpu().numpy()
    lengths, first = batch["attention_mask"].sum(1).tolist(), is_mask.argmax(1).tolist()
    masks = int(is_mask[0].sum())
    splits = batch["split"].tolist() if "split" in batch else [length // 2 for length in first]
    parts = [
        parts_of(row[:length], split, start, row[start + masks : length])
        for row, length, split, start in zip(ids, lengths, splits, first, strict=True)
    ]
    packed = pack(parts, masks, int(ids[0, first[0]]), plain.device)
    with last_states(body_of(plain), packed.is_mask) as states:
        logits = model(**packed.inputs).logits
    rows = torch.arange(len(parts), device=plain.device).repeat_interleave(masks)
    return Read(logits[0], batch["labels"].flatten(), states[0][packed.is_mask], rows)


def read_causal(model: Any, plain: PreTrainedModel, batch: dict[str, Tensor]) -> Read:
    """A causal LM's pass, with logits at the columns where any row of the batch answers.

    Args:
        model: The model to call, wrapped or not.
        plain: The model itself.
        batch: input_ids, attention_mask, labels (``IGNORED`` at the prompt).

    Returns:
        Logits, labels and states.
    """
    next_label = F.pad(batch["labels"][:, 1:], (0, 1), value=IGNORED)
    carries = next_label != IGNORED
    if "owner" in batch:
        return _read_packed(model, plain, batch, next_label, carries)
    columns = carries.any(0).nonzero().flatten()
    inputs = {"input_ids": batch["input_ids"], "attention_mask": batch["attention_mask"]}
    if "position_ids" in inspect.signature(body_of(plain).forward).parameters:
        inputs["position_ids"] = (inputs["attention_mask"].cumsum(1) - 1).clamp(min=0)
    logits, states = _causal_pass(model, plain, inputs, columns)
    return Read(logits[carries[:, columns]], next_label[carries], states[carries], carries.nonzero()[:, 0])


def _causal_pass(model: Any, plain: PreTrainedModel, inputs: dict[str, Tensor], columns: Any) -> tuple[Tensor, Tensor]:
    """Logits at some columns, and the last layer's states."""
    body = body_of(plain)
    body = getattr(body, "decoder", body)  # OPT's head calls the decoder past its body
    with last_states(body) as states:
        logits = model(**inputs, use_cache=False, logits_to_keep=columns).logits
    return logits, states[0]


def _read_packed(model: Any, plain: PreTrainedModel, batch: dict[str, Tensor], labels: Tensor, carries: Tensor) -> Read:
    """A causal LM's pass over packs (``packing``): the head reads the labelled states alone, which stand anywhere."""
    seen = batch["attention_mask"]
    if plain.config._attn_implementation == "eager":  # which adds its mask to the scores
        seen = torch.zeros(seen.shape, device=seen.device).masked_fill(~seen, torch.finfo(torch.float32).min)
    inputs = {"input_ids": batch["input_ids"], "position_ids": batch["position_ids"], "attention_mask": seen}
    _, states = _causal_pass(model, plain, inputs, 1)
    owner = batch["owner"][carries]
    order = owner.argsort(stable=True)
    found = states[carries][order]
    return Read(plain.get_output_embeddings()(found), labels[carries][order], found, owner[order])


def read_seq2seq(model: Any, plain: PreTrainedModel, batch: dict[str, Tensor]) -> Read:
    """An encoder-decoder's pass.

    Args:
        model: The model to call, wrapped or not.
        plain: The model itself.
        batch: input_ids, attention_mask, labels (the answer).

    Returns:
        Logits, labels and the decoder's states.
    """
    config = plain.config
    answer_ids = batch["labels"].masked_fill(batch["labels"] == IGNORED, config.pad_token_id)
    start = torch.full_like(answer_ids[:, :1], config.decoder_start_token_id)
    with last_states(plain.get_decoder()) as states:
        logits = model(
            input_ids=batch["input_ids"],
            attention_mask=batch["attention_mask"],
            decoder_input_ids=torch.cat([start, answer_ids[:, :-1]], 1),
            use_cache=False,
        ).logits
    carries = batch["labels"] != IGNORED
    return Read(logits[carries], batch["labels"][carries], states[0][carries], carries.nonzero()[:, 0])


def pooled(read: Read, pooling: str | None) -> Tensor:
    """The vector that is drawn to the answer.

    Args:
        read: States and where they answer.
        pooling: "1st-gen" for the first of them, otherwise their mean.

    Returns:
        float32, shape (batch, d).
    """
    states, counts = read.states.float(), read.owner.bincount()
    if pooling == "1st-gen":
        return states[counts.cumsum(0) - counts]
    return states.new_zeros(len(counts), states.shape[1]).index_add(0, read.owner, states) / counts.unsqueeze(1)


def info_nce(vectors: Tensor, targets: Tensor, answers: Tensor, temperature: float, alike: float = 1.0) -> Tensor:
    """InfoNCE of each vector to its own target among the targets of other answers, those of all processes.

    Args:
        vectors: v, shape (batch, d).
        targets: e, shape (batch, d); they carry no gradient.
        answers: Ids of the answers, shape (batch,); equal ids are the same answer and never each other's negative.
        temperature: t.
        alike: Targets with at least this cosine to a row's own are not its negatives either; 1 keeps all that differ.

    Returns:
        The mean loss, a scalar.
    """
    everyone, names, places = _gathered(targets, answers)
    unit = F.normalize(everyone.float(), dim=-1)
    similarity = F.normalize(vectors.float(), dim=-1) @ unit.T / temperature
    same = answers.unsqueeze(1) == names.unsqueeze(0)
    if alike < 1:
        same |= unit[places] @ unit.T >= alike
    same[torch.arange(len(places), device=places.device), places] = False
    return F.cross_entropy(similarity.masked_fill(same, float("-inf")), places)


def _gathered(targets: Tensor, answers: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Targets and answers of all processes, and where the own ones stand."""
    places = torch.arange(len(targets), device=targets.device)
    if not (dist.is_available() and dist.is_initialized()) or dist.get_world_size() == 1:
        return targets, answers, places
    parts: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(parts, (targets.cpu(), answers.cpu()))
    before = sum(len(part[1]) for part in parts[: dist.get_rank()])
    vectors, names = (torch.cat([part[i] for part in parts]).to(targets.device) for i in (0, 1))
    return vectors, names, places + before


def distilled(vectors: Tensor, taught: Tensor, objective: Objective) -> Tensor:
    """What draws the model's vectors to a teacher's (T of the module's text).

    Args:
        vectors: v, shape (batch, d).
        taught: t, the teacher's vectors of the same rows, shape (batch, d); they carry no gradient.
        objective: Which loss, and its temperature.

    Returns:
        The mean loss, a scalar.
    """
    if objective.teacher_loss == "cosine":
        return (1 - F.cosine_similarity(vectors.float(), taught.float(), dim=-1)).mean()
    everyone, _, _ = _gathered(taught, torch.arange(len(taught)))
    student, own, unit = (F.normalize(one.float(), dim=-1) for one in (vectors, taught, everyone))
    return F.cross_entropy(student @ unit.T / objective.temperature, (own @ unit.T / objective.temperature).softmax(-1))


def drawn(vectors: Tensor, targets: Mapping[str, Tensor], objective: Objective) -> Tensor:
    """All that draws vectors: to the re-encoded answers, and to a teacher's.

    Args:
        vectors: v, float32, shape (batch, d).
        targets: Some of ``TARGETS``, as the collator gives them.
        objective: Which losses, and their weights.

    Returns:
        A scalar.
    """
    loss = vectors.new_zeros(())
    if "alone" in targets:
        vectors = vectors - targets["alone"].to(vectors.dtype)
    if "vector" in targets:
        loss = loss + objective.reencode_weight * amortised(vectors, targets, objective)
    if "taught" in targets:
        loss = loss + objective.teacher_weight * distilled(vectors, targets["taught"], objective)
    return loss


def amortised(vectors: Tensor, targets: Mapping[str, Tensor], objective: Objective) -> Tensor:
    """The amortised re-encoding (A of the module's text).

    Args:
        vectors: v, float32, shape (batch, d).
        targets: vector (e, shape (batch, d)) and answer (ids, shape (batch,)), as the collator gives them.
        objective: Which loss.

    Returns:
        A scalar.
    """
    distance = (1 - F.cosine_similarity(vectors, targets["vector"].to(vectors.dtype), dim=-1)).mean()
    if objective.reencode_loss == "cosine":
        return distance
    contrast = info_nce(vectors, targets["vector"], targets["answer"], objective.temperature, objective.alike)
    return contrast + objective.cosine_weight * distance
