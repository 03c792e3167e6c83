"""Schemas of requests and responses. Unknown fields are rejected, and nothing is converted silently: "3" is not a number."""

from __future__ import annotations

from dataclasses import fields
from typing import Annotated, Any, Literal

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, create_model

from inbedder.grouping.cluster_options import ClusterOptions
from inbedder.grouping.names.namers import NAMERS
from inbedder.option_types import PrecisionName
from inbedder.options import get_option_info

Texts = Annotated[list[str], Field(fail_fast=True)]
"""Texts. Like every list of a request, they are validated up to the first error."""
TokenIds = Annotated[list[int], Field(fail_fast=True)]


Instruction = Annotated[
    str | Texts | None,
    Field(description="A question about the texts: one for all texts, or one per text. @name is a named instruction."),
]
INPUT_NAMES, TEXTS_NAMES = AliasChoices("input", "texts"), AliasChoices("texts", "input")
"""Names of the texts: those of OpenAI and of Cohere are accepted wherever there is only one list of texts."""
ModelName = Annotated[str | None, Field(description="A name from GET /v1/models; default: the first.")]
Truncate = Literal["END", "NONE"]


def make_config(**example: Any) -> ConfigDict:
    """Make the strict configuration of a request or a part of one, with an example of it."""
    return ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, json_schema_extra={"examples": [example]})


class EmbeddingsRequest(BaseModel):
    """OpenAI's request for embeddings, with an instruction."""

    model_config = make_config(model="mini", input=["I love cats", "I love dogs"], instruction="What animals do they love?")

    model: ModelName = None
    input: str | Texts | TokenIds | Annotated[list[TokenIds], Field(fail_fast=True)] = Field(
        validation_alias=INPUT_NAMES,
        description="A text, a list of texts, or token ids of the model's tokenizer for one or several texts.",
    )
    instruction: Instruction = None
    prompt: Instruction = Field(default=None, description="Another name for instruction.")
    prompt_name: str | None = Field(default=None, description="A named instruction such as @topic, or query or document.")
    encoding_format: Literal["float", "base64"] | None = Field(
        default=None, description="base64 contains little-endian float32, or the bytes of another precision."
    )
    dimensions: int | None = Field(default=None, ge=1, description="Length to which the vectors are cut.")
    truncate: Truncate | None = Field(default=None, description="Cut texts that are too long (END), or reject them (NONE).")
    normalized: bool = Field(default=True, description="Scale vectors to length 1.")
    precision: PrecisionName | None = Field(default=None, description="Number format of the vectors; null takes the model's.")
    return_answers: bool = Field(default=False, description="Return the model's answer with each vector.")
    user: str | None = Field(default=None, description="Ignored.")


class RerankRequest(BaseModel):
    """The rerank request that Cohere, Jina and vLLM share, with an instruction."""

    model_config = make_config(
        model="mini",
        query="My parcel came too late.",
        documents=["The box was crushed.", "Delivery took three weeks."],
        instruction="What is the complaint about?",
        top_n=1,
    )

    model: ModelName = None
    query: str
    documents: Annotated[list[str | TextDocument], Field(fail_fast=True)]
    instruction: str | None = Field(default=None, description="A question; query and documents are compared by their answers.")
    top_n: int | None = Field(default=None, ge=1, description="Maximum number of results; default: all.")
    return_documents: bool | None = Field(default=None, description="Include the documents in the response.")


class TextDocument(BaseModel):
    """A document as an object."""

    model_config = make_config(text="The box was crushed.")

    text: str


class CohereRequest(BaseModel):
    """Cohere's request for embeddings, with an instruction."""

    model_config = make_config(model="mini", input_type="search_query", texts=["late parcels"], embedding_types=["float"])

    model: ModelName = None
    texts: Texts
    input_type: Literal["search_query", "search_document", "classification", "clustering"]
    embedding_types: Annotated[list[Literal["float", "base64"]], Field(fail_fast=True)] | None = None
    truncate: Truncate | None = None
    output_dimension: int | None = Field(default=None, ge=1)
    instruction: Instruction = None


class AnswersRequest(BaseModel):
    """A request for answers to an instruction."""

    model_config = make_config(model="mini", input=["Terrible film."], instruction="Is the review positive or negative?")

    model: ModelName = None
    input: str | Texts = Field(validation_alias=INPUT_NAMES)
    instruction: Instruction = None
    n: int = Field(default=1, ge=1, le=16, description="Number of answers per text; they differ only if temperature is above 0.")
    temperature: float = Field(default=0.0, ge=0, le=10, description="0 decodes greedily.")
    top_p: float = Field(default=1.0, gt=0, le=1)
    seed: int = Field(default=0, ge=0, le=2**32 - 1)
    min_confidence: float | None = Field(
        default=None, ge=0, le=1, description='Less certain answers are ""; default: the model\'s setting.'
    )


def _make_option_fields() -> dict[str, Any]:
    """Make a field of each option of ``ClusterOptions``; a namer is a name, as requests load no models."""
    types = {"k": int | Literal["auto"], "levels": tuple[int, int] | None, "namer": Literal[tuple(NAMERS)]}
    model_fields = {}
    for option in fields(ClusterOptions):
        info = get_option_info(option)
        kind = types.get(option.name, info.kind if option.default is not None else info.kind | None)
        model_fields[option.name] = (kind, Field(default=option.default, description=info.help))
    return model_fields


_OptionFields: Any = create_model("_OptionFields", **_make_option_fields())


class ClustersRequest(_OptionFields):
    """A request to group texts, or cached vectors by their ids."""

    model_config = make_config(
        model="mini",
        texts=["The box was crushed.", "Delivery took three weeks.", "It came late.", "The lamp was broken."],
        instructions=["What is the complaint about?"],
        k=2,
    )

    model: ModelName = None
    texts: Texts | None = Field(default=None, validation_alias=TEXTS_NAMES)
    ids: Texts | None = Field(default=None, description="Ids that /v1/embeddings returned; the server needs a cache.")
    instructions: Texts | None = Field(
        default=None, description="One grouping per instruction; default: @generic. Not allowed with ids."
    )


class CategoryFields(BaseModel):
    """A category as an object."""

    model_config = make_config(name="damage", description="The item arrived broken.")

    name: str
    description: str = Field(default="", description="What the category means; default: its name.")


class ClassifyRequest(BaseModel):
    """A request to classify texts into categories."""

    model_config = make_config(
        model="mini",
        input=["It came three weeks late.", "The lamp was broken."],
        instruction="What is the complaint about?",
        categories=["late delivery", {"name": "damage", "description": "The item arrived broken."}],
        examples={"damage": ["The box was crushed."]},
    )

    model: ModelName = None
    input: str | Texts = Field(validation_alias=INPUT_NAMES)
    instruction: str | None = Field(default=None, description="The question whose answers the categories are.")
    categories: Annotated[list[str | CategoryFields], Field(fail_fast=True, description="At least two names, or objects.")]
    examples: dict[str, Texts] | None = Field(default=None, description="Example texts by category, about five each.")
    min_score: float | None = Field(default=None, ge=-1, le=1, description="Minimum score; below it a text is in no category.")
    min_lead: float | None = Field(
        default=None, ge=0, description="Minimum difference of the best and the second-best score; below it a text is not sure."
    )
    top_n: int = Field(default=1, ge=1, description="Maximum number of categories per text.")


class Usage(BaseModel):
    """Number of tokens processed, including prompts."""

    prompt_tokens: int
    total_tokens: int


class Embedding(BaseModel):
    """The vector of an input."""

    object: Literal["embedding"]
    index: int
    embedding: list[float] | str
    id: str | None = Field(default=None, description="Id of the vector for /v1/clusters, if the server has a cache.")
    answer: str | None = Field(default=None, description="The model's answer to the instruction, with return_answers.")


class Embeddings(BaseModel):
    """Vectors in the order of the input."""

    object: Literal["list"]
    model: str
    data: list[Embedding]
    usage: Usage


class RerankResult(BaseModel):
    """A document's cosine similarity to the query."""

    index: int
    relevance_score: float
    document: TextDocument | None = None


class Ranking(BaseModel):
    """Documents, the most relevant first."""

    id: str
    model: str
    results: list[RerankResult]
    usage: Usage


class CohereEmbeddings(BaseModel):
    """Vectors by encoding."""

    id: str
    embeddings: dict[Literal["float", "base64"], list[list[float]] | list[str]]
    meta: dict[str, Any]


class TextAnswers(BaseModel):
    """The answers of an input."""

    index: int
    answers: list[str]


class Answers(BaseModel):
    """Answers in the order of the input."""

    object: Literal["list"]
    model: str
    data: list[TextAnswers]
    usage: Usage


class CategoryScore(BaseModel):
    """A category of a text, its score, and a probability that is not calibrated."""

    category: str
    score: float
    probability: float


class TextCategories(BaseModel):
    """The categories of an input, the best first."""

    index: int
    category: str | None = Field(
        description="The best category; null if its score is below min_score or its lead below min_lead."
    )
    outcome: str = Field(description='The best category, "none of these" (below min_score) or "not sure" (below min_lead).')
    scores: list[CategoryScore]


class Categories(BaseModel):
    """Categories in the order of the input."""

    object: Literal["list"]
    model: str
    data: list[TextCategories]
    usage: Usage


class Grouping(BaseModel):
    """Groups, the largest first."""

    instruction: str | None
    labels: list[int]
    names: list[str]
    keywords: list[list[str]]


class Groupings(BaseModel):
    """One grouping per instruction."""

    object: Literal["list"]
    model: str
    data: list[Grouping]


class Problem(BaseModel):
    """An error, sent instead of a result."""

    error: dict[str, Any]
    message: str
