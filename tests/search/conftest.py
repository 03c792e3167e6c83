"""An index of six reviews, built with a tiny model."""

import pytest

pytest.importorskip("lancedb")

from inbedder import InBedder
from inbedder.search import Index

REVIEWS = [
    {"text": "The battery died after a week", "stars": "1", "shop": "north"},
    {"text": "Great battery and a fair price", "stars": "5", "shop": "south"},
    {"text": "The box was crushed", "stars": "2", "shop": None},
    {"text": "Nobody answered the phone", "stars": "1", "shop": "north"},
    {"text": "The battery died after a week", "stars": "1", "shop": "north"},
    {"text": "It's as good as new", "stars": "4", "shop": "south"},
]
QUESTION = "What is the complaint about?"


@pytest.fixture(scope="session")
def tiny(make_model):
    return InBedder(make_model("bert"))


@pytest.fixture
def index(tmp_path, tiny):
    return Index.create(tmp_path / "reviews.index", REVIEWS, tiny)
