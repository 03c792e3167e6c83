"""Encode and group in forked processes, before and after their parent does. ``test_forks`` runs it, with a limit for a hang.

python -m tests.backbones.forked_encoding MODEL OPTIONS
"""

import json
import multiprocessing
import os
import sys
from functools import partial

import numpy as np

from inbedder import InBedder, cluster
from inbedder.server.batch_queue import BatchQueue, QueuedBackbone

TEXTS = [f"The {word} came {number} days late" for number in range(12) for word in ("lamp", "tea", "train")]
QUESTION = "What came late?"
POINTS = np.random.default_rng(0).normal(size=(600, 8)) + np.eye(8)[np.arange(600) % 3] * 20
FORK = multiprocessing.get_context("fork")


def encode(model):
    return model.encode(TEXTS, QUESTION), model.answer(TEXTS[:2], QUESTION)


def send(pipe, function):
    pipe.send(function())


def fork_workers(function):
    """Call a function in two workers, which inherit a model as those of ``multiprocessing`` and of a pre-fork server do."""
    results = []
    for _ in range(2):
        receiver, sender = FORK.Pipe(duplex=False)
        worker = FORK.Process(target=send, args=(sender, function))
        worker.start()
        results.append(receiver.recv())
        worker.join()
    return results


def fork_server(function):
    """Call a function in a bare fork, which ends as Python does."""
    reader, writer = os.pipe()
    if os.fork() == 0:
        vectors, answers = function()
        with os.fdopen(writer, "w") as file:
            json.dump([vectors.tolist(), answers], file)
        sys.exit()
    os.close(writer)
    with os.fdopen(reader) as file:
        vectors, answers = json.load(file)
    assert os.wait()[1] == 0
    return [(np.asarray(vectors), answers)]


def fork_map(model):
    """Embed in the workers of ``map`` of datasets, which load the model themselves."""
    from datasets import Dataset

    rows = Dataset.from_dict({"text": TEXTS})
    rows = rows.map(model.as_map(QUESTION), batched=True, batch_size=9, num_proc=2)
    return np.asarray(rows["vector"][:])


def group():
    return cluster([str(number) for number in range(600)], k=3, embeddings=POINTS).labels


def main(name, options):
    model = InBedder(name, **json.loads(options))
    queue = BatchQueue()
    queued_model = InBedder.from_pipeline(model.pipeline.wrap(lambda backbone: QueuedBackbone(backbone, queue)))
    results, vectors, labels = [], [], []
    for when in ("before", "after"):
        for fork, one in ((fork_workers, model), (fork_server, model), (fork_workers, queued_model)):
            print(when, fork.__name__, one is queued_model, flush=True)
            results += fork(partial(encode, one))
        print(when, "map and groups", flush=True)
        vectors.append(fork_map(model))
        labels += [*fork_workers(group), group()]
        expected, expected_answers = encode(model)
        encode(queued_model)
    for forked_vectors, answers in results:
        np.testing.assert_allclose(forked_vectors, expected, atol=1e-5)
        assert answers == expected_answers
    for forked_vectors in vectors:
        np.testing.assert_allclose(forked_vectors, expected, atol=1e-5)
    assert all((one == labels[0]).all() for one in labels)
    assert model.pipeline.store is None or model.pipeline.store.verify() == []


if __name__ == "__main__":
    main(*sys.argv[1:])
