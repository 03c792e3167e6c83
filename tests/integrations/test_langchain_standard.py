"""LangChain's own tests of embeddings, from its package langchain-tests."""

import pytest

pytest.importorskip("langchain_tests")

from langchain_tests.integration_tests import EmbeddingsIntegrationTests
from langchain_tests.unit_tests import EmbeddingsUnitTests

from inbedder.integrations.langchain import InstructedEmbeddings


class Params:
    embeddings_class = InstructedEmbeddings

    @pytest.fixture(autouse=True)
    def tiny_model(self, make_model):
        self.name = make_model("bert")

    @property
    def embedding_model_params(self):
        return {"model": self.name, "instruction": "What is the complaint about?"}


class TestUnit(Params, EmbeddingsUnitTests):
    pass


class TestIntegration(Params, EmbeddingsIntegrationTests):
    @pytest.fixture
    def model(self, tiny_model):
        return InstructedEmbeddings(**self.embedding_model_params)
