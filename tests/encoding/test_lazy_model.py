import time
from concurrent.futures import ThreadPoolExecutor

from inbedder.encoding.lazy_model import LazyModel


def test_eight_threads_load_the_model_once():
    loads = []

    def load():
        loads.append(1)
        time.sleep(0.05)
        return object()

    lazy = LazyModel(load)
    assert lazy.loaded is None
    with ThreadPoolExecutor(8) as pool:
        models = list(pool.map(lambda _: lazy.get(), range(8)))
    assert len(loads) == 1 and len(set(map(id, models))) == 1


def test_a_variant_loads_its_model_on_first_use():
    loads = []
    lazy = LazyModel(lambda: loads.append(1) or "model")
    variant = lazy.wrap(lambda model: f"{model}, changed")
    assert loads == []
    assert (variant.get(), lazy.get()) == ("model, changed", "model")
    assert loads == [1]
