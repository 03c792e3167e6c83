"""Clients of other packages against a real server."""

import asyncio

import numpy as np
import pytest

from inbedder.vectors.vectors import normalize_vectors

TEXTS = ["I love cats", "I love dogs"]
QUESTION = "What animals do they love?"
KEY = "key"


@pytest.fixture
def url(make_live):
    host, port = make_live(api_key=KEY)
    return f"http://{host}:{port}"


@pytest.fixture
def expected(tiny):
    return normalize_vectors(tiny.encode(TEXTS, QUESTION))


def test_openais_client_embeds_under_an_instruction(url, tiny, expected):
    openai = pytest.importorskip("openai")

    with openai.OpenAI(base_url=f"{url}/v1", api_key=KEY) as client:
        request = {"model": "tiny", "input": TEXTS, "extra_body": {"instruction": QUESTION}}
        for options in ({}, {"encoding_format": "float"}, {"encoding_format": "base64"}, {"dimensions": 32, "user": "me"}):
            rows = client.embeddings.create(**request, **options).data
            vectors = [row.embedding for row in rows]
            if options.get("encoding_format") == "base64" and isinstance(vectors[0], str):
                import base64

                vectors = [np.frombuffer(base64.b64decode(vector), "<f4") for vector in vectors]
            np.testing.assert_allclose(vectors, expected, atol=1e-5)
        ids = tiny.backbone.tokenizer(TEXTS, add_special_tokens=False)["input_ids"]
        decoded = [tiny.backbone.tokenizer.decode(row) for row in ids]
        for tokens, texts in ((ids, decoded), (ids[0], decoded[:1])):
            response = client.embeddings.with_raw_response.create(model="tiny", input=tokens).parse()
            np.testing.assert_allclose([row.embedding for row in response.data], normalize_vectors(tiny.encode(texts)), atol=1e-5)
        (listed,) = client.models.list()
        assert listed.id == "tiny"
        assert client.models.retrieve("tiny") == listed
        for name in ("gpt", "an/other"):
            with pytest.raises(openai.NotFoundError, match="There is no model of that name"):
                client.models.retrieve(name)
        with pytest.raises(openai.UnprocessableEntityError, match="Unknown field 'nonsense'"):
            client.embeddings.create(model="tiny", input="a", extra_body={"nonsense": 1})
        with pytest.raises(openai.NotFoundError):
            client.embeddings.create(model="gpt", input="a")
        with pytest.raises(openai.AuthenticationError):
            client.with_options(api_key="other").embeddings.create(model="tiny", input="a")


def test_openais_asynchronous_client_sends_many_requests_at_once(url, tiny):
    openai = pytest.importorskip("openai")

    async def embed_all():
        async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key=KEY) as client:
            calls = [
                client.embeddings.create(model="tiny", input=f"text {number}", extra_body={"instruction": QUESTION})
                for number in range(20)
            ]
            return [response.data[0].embedding for response in await asyncio.gather(*calls)]

    np.testing.assert_allclose(
        asyncio.run(embed_all()), normalize_vectors(tiny.encode([f"text {n}" for n in range(20)], QUESTION)), atol=1e-5
    )


def test_langchain_embeds_documents_and_queries(url, tiny, expected):
    OpenAIEmbeddings = pytest.importorskip("langchain_openai").OpenAIEmbeddings  # noqa: N806

    options = {"model": "tiny", "base_url": f"{url}/v1", "api_key": KEY, "check_embedding_ctx_length": False}
    model = OpenAIEmbeddings(**options, model_kwargs={"extra_body": {"instruction": QUESTION}})
    np.testing.assert_allclose(model.embed_documents(TEXTS), expected, atol=1e-5)
    np.testing.assert_allclose(model.embed_query(TEXTS[0]), expected[0], atol=1e-5)
    np.testing.assert_allclose(OpenAIEmbeddings(**options).embed_query("a"), normalize_vectors(tiny.encode("a")), atol=1e-5)


def test_coheres_client_embeds(url, tiny, expected):
    cohere = pytest.importorskip("cohere")

    client = cohere.ClientV2(api_key=KEY, base_url=url)
    request = {"model": "tiny", "texts": TEXTS, "embedding_types": ["float"]}
    vectors = client.embed(**request, input_type="search_query").embeddings.float_
    np.testing.assert_allclose(vectors, normalize_vectors(tiny.encode_query(TEXTS)), atol=1e-5)
    options = {"additional_body_parameters": {"instruction": QUESTION}}
    vectors = client.embed(**request, input_type="clustering", request_options=options).embeddings.float_
    np.testing.assert_allclose(vectors, expected, atol=1e-5)
