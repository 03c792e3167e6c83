"""The clients that people have, against a real server; and the README's lines."""

import asyncio
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from inbedder.vectors import unit
from tests.server.test_run_server import PLACES, serving

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
TEXTS = ["I love cats", "I love dogs"]
ASKED = "What animals do they love?"
KEY = "key"


@pytest.fixture
def url(make_live):
    host, port = make_live(api_key=KEY)
    return f"http://{host}:{port}"


@pytest.fixture
def expected(tiny):
    return unit(tiny.encode(TEXTS, ASKED))


def test_openais_client_asks_with_an_instruction(url, expected):
    openai = pytest.importorskip("openai")

    with openai.OpenAI(base_url=f"{url}/v1", api_key=KEY) as client:
        asked = {"model": "tiny", "input": TEXTS, "extra_body": {"instruction": ASKED}}
        for options in ({}, {"encoding_format": "float"}, {"encoding_format": "base64"}, {"dimensions": 32, "user": "me"}):
            found = client.embeddings.create(**asked, **options).data
            vectors = [row.embedding for row in found]
            if options.get("encoding_format") == "base64" and isinstance(vectors[0], str):
                import base64

                vectors = [np.frombuffer(base64.b64decode(vector), "<f4") for vector in vectors]
            np.testing.assert_allclose(vectors, expected, atol=1e-5)
        assert [model.id for model in client.models.list()] == ["tiny"]
        with pytest.raises(openai.UnprocessableEntityError, match="Unknown field 'nonsense'"):
            client.embeddings.create(model="tiny", input="a", extra_body={"nonsense": 1})
        with pytest.raises(openai.NotFoundError):
            client.embeddings.create(model="gpt", input="a")
        with pytest.raises(openai.AuthenticationError):
            client.with_options(api_key="other").embeddings.create(model="tiny", input="a")


def test_openais_asynchronous_client_asks_many_at_once(url, tiny):
    openai = pytest.importorskip("openai")

    async def ask():
        async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key=KEY) as client:
            calls = [
                client.embeddings.create(model="tiny", input=f"text {number}", extra_body={"instruction": ASKED})
                for number in range(20)
            ]
            return [response.data[0].embedding for response in await asyncio.gather(*calls)]

    np.testing.assert_allclose(asyncio.run(ask()), unit(tiny.encode([f"text {n}" for n in range(20)], ASKED)), atol=1e-5)


def test_langchain_embeds_documents_and_queries(url, tiny, expected):
    OpenAIEmbeddings = pytest.importorskip("langchain_openai").OpenAIEmbeddings  # noqa: N806

    options = {"model": "tiny", "base_url": f"{url}/v1", "api_key": KEY, "check_embedding_ctx_length": False}
    model = OpenAIEmbeddings(**options, model_kwargs={"extra_body": {"instruction": ASKED}})
    np.testing.assert_allclose(model.embed_documents(TEXTS), expected, atol=1e-5)
    np.testing.assert_allclose(model.embed_query(TEXTS[0]), expected[0], atol=1e-5)
    np.testing.assert_allclose(OpenAIEmbeddings(**options).embed_query("a"), unit(tiny.encode("a")), atol=1e-5)


def test_coheres_client_embeds(url, tiny, expected):
    cohere = pytest.importorskip("cohere")

    client = cohere.ClientV2(api_key=KEY, base_url=url)
    asked = {"model": "tiny", "texts": TEXTS, "embedding_types": ["float"]}
    found = client.embed(**asked, input_type="search_query").embeddings.float_
    np.testing.assert_allclose(found, unit(tiny.encode_query(TEXTS)), atol=1e-5)
    options = {"additional_body_parameters": {"instruction": ASKED}}
    found = client.embed(**asked, input_type="clustering", request_options=options).embeddings.float_
    np.testing.assert_allclose(found, expected, atol=1e-5)


def block(start):
    """The code block of the README that begins with a line."""
    return next(code for code in re.findall(r"```\w*\n(.*?)```", README, re.S) if code.startswith(start))


def readme_address(text, url):
    assert "http://127.0.0.1:8765" in text
    return text.replace("http://127.0.0.1:8765", url)


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_the_readmes_lines_lead_from_nothing_to_an_answer():
    pytest.importorskip("openai")
    install, serve, curl = block("pip install 'inbedder[").strip().splitlines()
    assert "[mini,serve]" in install
    assert serve.split()[:2] == ["inbedder", "serve"]
    with serving(*serve.removesuffix("&").split()[2:]) as (_, url):
        found = subprocess.run(readme_address(curl, url), shell=True, capture_output=True, text=True, check=True).stdout
        assert '"answers":["' in found
        code = readme_address(block("from openai import OpenAI"), url)
        ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, **PLACES})
        assert ran.returncode == 0, ran.stderr
        assert ran.stdout.strip() == "384"
