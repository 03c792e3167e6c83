#!/usr/bin/env python3
"""Let a teacher, a decoder with a chat template, write training rows: short answers to open questions about texts without labels.

python scripts/train/write_rows.py --teacher MODEL --data FOLDER -o rows.jsonl [--texts 1000] [--minutes 30] [--pairs]

Each text is asked ``KINDS_PER_TEXT`` of the questions in ``finetune/questions/open.yaml``. A row is kept if its answer

1. is likely under one wording of the question (``MIN_PROBABILITY``, the geometric mean over its tokens),
2. is likely under a second wording (``MIN_AGREEMENT``),
3. is "none", or becomes likely by the text: its first token is ``MIN_LIFT`` times as likely as for an empty text, and
4. shares no word with the answer to another question about the text, unless it is the topic.

With ``--pairs`` the teacher writes the question itself, which two near texts answer differently. Both answers must pass
rules 1 to 3, say more than "none", and share no word.

Rows are appended after each batch, and a rerun continues after the last text of the file. Look at 200 rows before training.
"""

from __future__ import annotations

import argparse
import copy
import hashlib
import json
import math
import random
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer, DynamicCache

from inbedder import InBedder
from inbedder.models.bundled import resolve_name
from inbedder.prompting.batching import pad
from inbedder_finetune.questions import read_questions
from inbedder_finetune.sources import Source, filter_records, read_records
from inbedder_finetune.synthetic.compose import WRITTEN_FOLDER

SETTINGS = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
KINDS_PER_TEXT = 6
TEXTS_PER_BATCH = 12
MAX_ANSWER_TOKENS = 8
MAX_ANSWER_WORDS = 5
MIN_PROBABILITY = 0.5
MIN_AGREEMENT = 0.35
MIN_LIFT = 2.0
MAX_QUESTION_TOKENS = 20
MAX_SIMILARITY = 0.95
"""Cosine above which two texts say the same."""
NO_ANSWER = "none"


@dataclass(frozen=True)
class Answer:
    """An answer of the teacher."""

    text: str
    """The answer; "" if it is too long."""
    probability: float
    """Geometric mean of the probabilities of its tokens."""
    agreement: float
    """The same under a second wording of the question."""
    lift: float
    """How many times as likely the text makes its first token."""

    def is_likely(self) -> bool:
        """Return whether rules 1 to 3 keep the answer."""
        is_probable = self.probability >= MIN_PROBABILITY and self.agreement >= MIN_AGREEMENT
        return bool(self.text) and is_probable and (self.text == NO_ANSWER or self.lift >= MIN_LIFT)


class Teacher:
    """A decoder that answers questions after examples. It reads the examples once, and each text once for its questions."""

    def __init__(self, name: str) -> None:
        """Load a model, and read the examples."""
        folder = resolve_name(name)
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).eval()
        messages = [{"role": "system", "content": SETTINGS["system"]}]
        for example in SETTINGS["examples"]:
            for question, answer in example["answers"].items():
                content = SETTINGS["prompt"].format(text=example["text"], question=question)
                messages += [{"role": "user", "content": content}, {"role": "assistant", "content": answer}]
        messages.append({"role": "user", "content": SETTINGS["prompt"].format(text="\0", question="\0")})
        rendered = self.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        opening, self.middle, self.closing = (self._tokenize(part, fixed=True) for part in rendered.split("\0"))
        self.opening = torch.tensor([opening])
        ends = self.model.generation_config.eos_token_id
        self.end_ids = {self.tokenizer.eos_token_id, *(ends if isinstance(ends, list) else [ends])}
        self.empty_text = self._read_texts([""])
        self.priors: dict[str, Tensor] = {}

    def _tokenize(self, text: str, *, fixed: bool = False) -> list[int]:
        encoded = self.tokenizer(text, add_special_tokens=False, split_special_tokens=not fixed)
        return list(encoded["input_ids"])

    @torch.inference_mode()
    def answer(self, texts: Sequence[str], wordings: Sequence[Sequence[tuple[str, str]]]) -> list[list[Answer]]:
        """Answer questions about texts.

        Args:
            texts: n texts.
            wordings: For each text m pairs of wordings of one question.

        Returns:
            n lists of m answers.
        """
        cache, mask = self._read_texts(texts)
        count = len(wordings[0])
        first, second = ([pair[side] for pairs in wordings for pair in pairs] for side in (0, 1))
        caches = cache, copy.deepcopy(cache)
        for each in caches:
            each.batch_repeat_interleave(count)
        mask = mask.repeat_interleave(count, 0)
        answers, probabilities, first_logs = self._generate(caches[0], mask, first)
        agreements = self._score(caches[1], mask, second, answers)
        results = []
        for wording, ids, probability, agreement, log in zip(first, answers, probabilities, agreements, first_logs, strict=True):
            text = self.tokenizer.decode(ids).strip().rstrip(".")
            text = NO_ANSWER if text.lower() == NO_ANSWER else text
            lift = math.exp(min(log - float(self._get_prior(wording)[ids[0]]), 50)) if ids else 0.0
            results.append(Answer(text if len(text.split()) <= MAX_ANSWER_WORDS else "", probability, agreement, lift))
        return [results[start : start + count] for start in range(0, len(results), count)]

    @torch.inference_mode()
    def write_questions(self, pairs: Sequence[tuple[str, str]]) -> list[str]:
        """Write a question for each pair of texts, which the two answer differently."""
        settings, prompts = SETTINGS["pairs"], []
        opening = [{"role": "system", "content": settings["system"]}]
        for example in settings["examples"]:
            opening.append({"role": "user", "content": settings["prompt"].format(*example["texts"])})
            opening.append({"role": "assistant", "content": example["question"]})
        for pair in pairs:
            content = settings["prompt"].format(*(" ".join(text.split()) for text in pair))
            messages = [*opening, {"role": "user", "content": content}]
            prompts.append(self.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True))
        inputs = self.tokenizer(prompts, return_tensors="pt", padding=True, padding_side="left", add_special_tokens=False)
        ids = self.model.generate(**inputs, max_new_tokens=MAX_QUESTION_TOKENS, do_sample=False)
        replies = self.tokenizer.batch_decode(ids[:, inputs["input_ids"].shape[1] :], skip_special_tokens=True)
        return [reply.strip().splitlines()[0] if reply.strip() else "" for reply in replies]

    @torch.inference_mode()
    def _read_texts(self, texts: Sequence[str]) -> tuple[DynamicCache, Tensor]:
        """Read the examples and texts; returns their keys and values, and their mask."""
        cache = DynamicCache(config=self.model.config)
        self.model.model(self.opening, past_key_values=cache, use_cache=True)
        cache.batch_repeat_interleave(len(texts))
        mask = torch.ones(len(texts), self.opening.shape[1], dtype=torch.long)
        rows = [[*self._tokenize(" ".join(text.split())), *self.middle] for text in texts]
        return cache, self._read(cache, mask, rows)[1]

    def _read(self, cache: DynamicCache, mask: Tensor, rows: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
        """Read more tokens, left-padded; returns their states, and the mask of all positions."""
        ids, new_mask = pad([np.asarray(row, dtype=np.int32) for row in rows], 0, "left")
        mask = torch.cat([mask, new_mask.long()], 1)
        positions = (mask.cumsum(1) - 1).clamp(min=0)[:, -ids.shape[1] :]
        inputs = {"input_ids": ids, "attention_mask": mask, "position_ids": positions}
        return self.model.model(**inputs, past_key_values=cache, use_cache=True).last_hidden_state, mask

    def _predict(self, states: Tensor) -> Tensor:
        return self.model.lm_head(states.contiguous()).float().log_softmax(-1)

    def _make_question(self, wording: str) -> list[int]:
        return [*self._tokenize(wording), *self.closing]

    def _generate(
        self, cache: DynamicCache, mask: Tensor, wordings: Sequence[str]
    ) -> tuple[list[list[int]], list[float], list[float]]:
        """Answer greedily; returns the ids, their mean probability, and the log probability of the first."""
        rows = [self._make_question(wording) for wording in wordings]
        answers: list[list[int]] = [[] for _ in rows]
        logs: list[list[float]] = [[] for _ in rows]
        running = list(range(len(rows)))
        for _ in range(MAX_ANSWER_TOKENS):
            states, mask = self._read(cache, mask, rows)
            best_logs, tokens = self._predict(states[:, -1]).max(-1)
            positions = []
            for position, (log, token) in enumerate(zip(best_logs.tolist(), tokens.tolist(), strict=True)):
                logs[running[position]].append(log)
                if token not in self.end_ids:
                    answers[running[position]].append(token)
                    positions.append(position)
            if not positions:
                break
            if len(positions) < len(running):
                cache.batch_select_indices(torch.tensor(positions))
                mask = mask[positions]
            running = [running[position] for position in positions]
            rows = [[answers[number][-1]] for number in running]
        else:
            for number in running:
                answers[number] = []
        return answers, [math.exp(sum(row) / len(row)) for row in logs], [row[0] for row in logs]

    def _score(self, cache: DynamicCache, mask: Tensor, wordings: Sequence[str], answers: Sequence[list[int]]) -> list[float]:
        """Compute the mean probability of given answers; 0 for an empty one."""
        rows = [[*self._make_question(wording), *ids] for wording, ids in zip(wordings, answers, strict=True)]
        states, _ = self._read(cache, mask, rows)
        scores = []
        for number, ids in enumerate(answers):
            logs = self._predict(states[number, -len(ids) - 1 : -1]).gather(1, torch.tensor(ids).view(-1, 1))
            scores.append(math.exp(float(logs.mean())) if ids else 0.0)
        return scores

    @torch.inference_mode()
    def _get_prior(self, wording: str) -> Tensor:
        """Return the log probabilities of an answer's first token for an empty text."""
        if wording not in self.priors:
            cache, mask = copy.deepcopy(self.empty_text)
            states, _ = self._read(cache, mask, [self._make_question(wording)])
            self.priors[wording] = self._predict(states[0, -1])
        return self.priors[wording]


def iterate_texts(folder: Path, seed: int) -> Iterator[tuple[str, str, str]]:
    """Iterate over distinct texts, each with its source and family, from the sources in turn by their shares."""
    rng, queues, old_texts = random.Random(seed), [], set[str]()
    for settings in SETTINGS["sources"]:
        source = Source(settings["path"], keep=settings.get("keep", {}))
        path = WRITTEN_FOLDER / source.path if source.path.endswith(".yaml") else folder / source.path
        records = filter_records(read_records(path), source.path, source.keep, ())
        limits = settings.get("min_characters", 25), settings.get("max_characters", 300)
        texts = {record["input"] for _, record in records}
        texts = {text for text in texts if limits[0] <= len(text) <= limits[1] and "[NAME]" not in text and "http" not in text}
        order = sorted(texts, key=lambda text: hashlib.sha256(f"{seed} {text}".encode("utf-8", "surrogatepass")).hexdigest())
        queues.append((settings["share"], settings["family"], source.path, iter(order)))
    while queues:
        number = rng.choices(range(len(queues)), [share for share, *_ in queues])[0]
        _, family, path, queue = queues[number]
        if (text := next(queue, None)) is None:
            queues.pop(number)
        elif text not in old_texts:
            old_texts.add(text)
            yield text, path, family


def choose_questions(text: str, family: str, seed: int) -> list[tuple[str, tuple[str, str]]]:
    """Choose the questions of a text, one of any family, and two wordings of each."""
    rng = random.Random(f"{seed} {text}")
    random_name = rng.choice([name for names in SETTINGS["questions"].values() for name in names])
    family_names = [name for name in SETTINGS["questions"][family] if name != random_name]
    names = [*rng.sample(family_names, KINDS_PER_TEXT - 1), random_name]
    pairs = [rng.sample(read_questions()[name].ask, 2) for name in names]
    return [(name, (first, second)) for name, (first, second) in zip(names, pairs, strict=True)]


def select_rows(names: Sequence[str], answers: Sequence[Answer]) -> list[bool]:
    """Select the answers of one text that all rules keep."""
    words = [set(answer.text.lower().split()) - {NO_ANSWER} for answer in answers]
    return [
        answer.is_likely()
        and (name == "open_topic" or not any(words[number] & group for i, group in enumerate(words) if i != number))
        for number, (name, answer) in enumerate(zip(names, answers, strict=True))
    ]


def differ(first: Answer, second: Answer) -> bool:
    """Return whether two texts clearly have different answers."""
    words = [set(answer.text.lower().split()) for answer in (first, second)]
    return all(answer.is_likely() and answer.text != NO_ANSWER for answer in (first, second)) and not words[0] & words[1]


def find_pairs(entries: Sequence[tuple[str, str, str]]) -> list[list[tuple[str, str, str]]]:
    """Find pairs of near texts, each text in one pair at most."""
    vectors = np.asarray(InBedder("mini").encode([text for text, *_ in entries]))
    similarities = vectors @ vectors.T
    similarities[similarities > MAX_SIMILARITY] = -1
    pairs, remaining = [], set(range(len(entries)))
    for first, second in zip(*np.unravel_index(np.argsort(-similarities, axis=None), similarities.shape), strict=True):
        if first < second and {first, second} <= remaining:
            pairs.append([entries[first], entries[second]])
            remaining -= {first, second}
    return pairs


def iterate_answers(
    teacher: Teacher, batch: Sequence[Sequence[tuple[str, str, str]]], options: argparse.Namespace
) -> Iterator[tuple[tuple[str, str, str], list[str], list[Answer], list[bool]]]:
    """Iterate over the texts of a batch, each with its questions, their answers, and which of these all rules keep."""
    entries = [entry for group in batch for entry in group]
    texts = [text for text, *_ in entries]
    if options.pairs:
        written = teacher.write_questions([(first[0], second[0]) for first, second in batch])
        answers = [row[0] for row in teacher.answer(texts, [[(each, f"Tell me: {each}")] for each in written for _ in range(2)])]
        for number, (question, pair) in enumerate(zip(written, batch, strict=True)):
            pair_answers = answers[2 * number : 2 * number + 2]
            is_kept = question.endswith("?") and differ(*pair_answers)
            for entry, answer in zip(pair, pair_answers, strict=True):
                yield entry, [question], [answer], [is_kept]
        return
    questions = [choose_questions(text, family, options.seed) for text, _, family in entries]
    wordings = [[pair for _, pair in text_questions] for text_questions in questions]
    for entry, text_questions, text_answers in zip(entries, questions, teacher.answer(texts, wordings), strict=True):
        names = [name for name, _ in text_questions]
        yield entry, names, text_answers, select_rows(names, text_answers)


def write_rows(options: argparse.Namespace) -> None:
    """Write the rows of all texts that the file does not have yet."""
    texts = [entry for entry, _ in zip(iterate_texts(options.data, options.seed), range(options.texts), strict=False)]
    groups = find_pairs(texts) if options.pairs else [[entry] for entry in texts]
    lines = options.out.read_text(encoding="utf-8").splitlines() if options.out.exists() else []
    finished_texts = {json.loads(line)["input"] for line in lines}
    remaining = sorted((group for group in groups if group[0][0] not in finished_texts), key=lambda group: len(group[0][0]))
    size = TEXTS_PER_BATCH // (2 if options.pairs else 1)
    batches = [remaining[start : start + size] for start in range(0, len(remaining), size)]
    random.Random(options.seed).shuffle(batches)
    teacher, started, num_asked, num_kept = Teacher(options.teacher), time.monotonic(), 0, 0
    with options.out.open("a", encoding="utf-8") as file:
        for number, batch in enumerate(batches, 1):
            for (text, source, _), instructions, answers, is_kept in iterate_answers(teacher, batch, options):
                num_asked, num_kept = num_asked + len(instructions), num_kept + sum(is_kept)
                for instruction, answer, keep in zip(instructions, answers, is_kept, strict=True):
                    if keep:
                        row: dict[str, Any] = {"input": text, "instruction": instruction, "output": answer.text, "source": source}
                        file.write(json.dumps(row, ensure_ascii=False) + "\n")
            file.flush()
            minutes = (time.monotonic() - started) / 60
            minutes_left = minutes / number * (len(batches) - number)
            message = f"batch {number} of {len(batches)}, {num_kept} of {num_asked} rows kept, {minutes_left:.0f} minutes left"
            print(message, file=sys.stderr, flush=True)
            if minutes > options.minutes:
                return


def main() -> None:
    """Parse the command line and write the rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--teacher", required=True, help="the teacher: a folder, hub id or .gguf file")
    parser.add_argument("--data", type=Path, required=True, help="folder of the sources in write_rows.yaml")
    parser.add_argument("-o", "--out", type=Path, required=True, help="the rows (.jsonl)")
    parser.add_argument("--texts", type=int, default=1000, help="number of texts in the whole file")
    parser.add_argument("--minutes", type=float, default=math.inf, help="stop after this time")
    parser.add_argument("--pairs", action="store_true", help="write complementary questions of near texts")
    parser.add_argument("--seed", type=int, default=0, help="seed of texts and wordings")
    write_rows(parser.parse_args())


if __name__ == "__main__":
    main()
