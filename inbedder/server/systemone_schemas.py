"""Schemas of typed decisions: System One's request and response, as TypeSafe's SDK 0.7 sends and reads them."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, Field, JsonValue

from inbedder.server.schemas import ModelName, make_config

Content = str | dict[str, JsonValue] | list[JsonValue]
"""Text, or JSON that is read as lines of text."""
MAX_OPTIONS = 255
"""Maximum number of options of a choice."""
MAX_LEVELS = 10
"""Maximum number of levels of a score."""


class NoulCriteria(BaseModel):
    """Descriptions of both outcomes of a question of yes or no."""

    model_config = make_config(true="The customer is angry.", false="The customer is calm.")

    true: Content | None = Field(default=None, description="What counts as yes.")
    false: Content | None = Field(default=None, description="What counts as no.")


class Noul(BaseModel):
    """A question of yes or no, or a statement."""

    model_config = make_config(type="noul", instructions="Is it about a late delivery?")

    type: Literal["noul"]
    instructions: Content | None = None
    criteria: NoulCriteria | None = None


class Choice(BaseModel):
    """A question with options; a description of null leaves the name of an option to say what it means."""

    model_config = make_config(
        type="choice", instructions="What is the complaint about?", criteria={"delivery": "It came late.", "food": "Bad food."}
    )

    type: Literal["choice"]
    instructions: Content | None = None
    criteria: dict[str, Content | None] = Field(min_length=2, max_length=MAX_OPTIONS)


class Score(BaseModel):
    """A question with an ordered scale."""

    model_config = make_config(type="score", instructions="How does the writer feel?", criteria=["furious", "annoyed", "happy"])

    type: Literal["score"]
    instructions: Content | None = None
    criteria: list[Content] = Field(min_length=2, max_length=MAX_LEVELS, description="Levels from 0 on.")


class Open(BaseModel):
    """A question without options: the model discovers them. inbedder's own type."""

    model_config = make_config(type="open", instructions="What is the complaint about?")

    type: Literal["open"]
    instructions: Content
    samples: int = Field(default=20, ge=1, le=100, description="Number of sampled answers that are counted.")


Question = Annotated[Noul | Choice | Score | Open, Field(discriminator="type")]


class SystemOneRequest(BaseModel):
    """A request for typed decisions about one state."""

    model_config = make_config(
        model="mini",
        state="My parcel came three weeks late!",
        questions={
            "late": {"type": "noul", "instructions": "Is it about a late delivery?"},
            "topic": {
                "type": "choice",
                "instructions": "What is the complaint about?",
                "criteria": {"delivery": "It came late.", "food": "Bad food."},
            },
            "feeling": {
                "type": "score",
                "instructions": "How does the writer feel?",
                "criteria": ["furious", "annoyed", "happy"],
            },
            "subject": {"type": "open", "instructions": "What is the complaint about?"},
        },
    )
    max_depth: ClassVar[int] = 10
    """Maximum nesting of lists and objects."""
    max_fields: ClassVar[int] = MAX_OPTIONS
    """Maximum number of fields of an object."""

    model: ModelName = None
    state: Content = Field(description="The text to decide about, or JSON that is read as lines of text.")
    questions: dict[str, Question] = Field(min_length=1, max_length=64)
    min_confidence: float | None = Field(
        default=None, ge=0, le=1, description='Minimum confidence; a decision below it is "not sure".'
    )
    min_score: float | None = Field(
        default=None, ge=-1, le=1, description='Minimum cosine of the best option; a choice or score below it is "none of these".'
    )


class SystemOneUsage(BaseModel):
    """Number of tokens processed, including prompts."""

    input_tokens: int
    output_tokens: int


class SystemOneAnswers(BaseModel):
    """Decisions by the name of the question.

    Each has its type and confidence (0 to 1), and ``cannot_tell``: null, "not sure" or "none of these". A noul has the
    probability of yes, a choice the best option, a score its mean level and legend; choice and score have the probabilities of
    all. An open question has its commonest answer, and the share of each.
    """

    model: str
    answers: dict[str, dict[str, Any]]
    usage: SystemOneUsage
