"""Answers of a model behind an endpoint that speaks OpenAI's chat completions, such as OpenAI's own or a vLLM server.

The settings are those of the C-STS authors: greedy decoding and, by default, at most five tokens. Models that reason before they
answer do not take them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, cast

from inbedder.errors import MissingExtraError, ModelError

if TYPE_CHECKING:
    from openai.types.chat import ChatCompletionMessageParam

KEY_VARIABLE = "OPENAI_API_KEY"
"""Environment variable of the key; endpoints that need none ignore it."""
MAX_TOKENS = 5
MAX_RETRIES = 6
"""Maximum number of retries, with growing pauses, after a timeout, a lost connection, and the status 408, 409, 429 or 5xx."""
TIMEOUT_SECONDS = 60.0


class ChatEndpoint:
    """A model behind an endpoint."""

    def __init__(self, url: str, model: str, max_tokens: int = MAX_TOKENS) -> None:
        """Prepare the client; nothing is sent yet.

        Args:
            url: The endpoint's base, such as https://api.openai.com/v1.
            model: The endpoint's name of the model.
            max_tokens: Maximum length of an answer in tokens.

        Raises:
            MissingExtraError: If openai is not installed.
        """
        try:
            from openai import OpenAI
        except ImportError as error:
            raise MissingExtraError("openai") from error
        self.url, self.model, self.max_tokens = url, model, max_tokens
        self._key = os.environ.get(KEY_VARIABLE) or "none"
        self._client = OpenAI(base_url=url, api_key=self._key, max_retries=MAX_RETRIES, timeout=TIMEOUT_SECONDS)

    def answer(self, prompts: Sequence[str], batch_size: int = 8) -> list[str]:
        """Answer prompts, each of which is one message of the user.

        Args:
            prompts: n prompts.
            batch_size: Maximum number of requests at a time.

        Returns:
            n answers; empty where the model declines.
        """
        return self.reply([[{"role": "user", "content": prompt}] for prompt in prompts], batch_size)

    def reply(self, conversations: Sequence[Sequence[Mapping[str, str]]], batch_size: int = 8) -> list[str]:
        """Reply to conversations.

        Args:
            conversations: n lists of messages, each with its role and content.
            batch_size: Maximum number of requests at a time.

        Returns:
            n answers; empty where the model declines.

        Raises:
            ModelError: If a request fails after its retries; the message never holds the key.
        """
        with ThreadPoolExecutor(batch_size) as executor:
            try:
                return list(executor.map(self._request_answer, conversations))
            except BaseException:
                executor.shutdown(cancel_futures=True)
                raise

    def _request_answer(self, messages: Sequence[Mapping[str, str]]) -> str:
        from openai import OpenAIError

        try:
            completion = self._client.chat.completions.create(
                model=self.model,
                messages=cast("list[ChatCompletionMessageParam]", list(messages)),
                temperature=0,
                top_p=1,
                max_tokens=self.max_tokens,
                frequency_penalty=0,
                presence_penalty=0,
            )
            return completion.choices[0].message.content or ""
        except (OpenAIError, LookupError, TypeError, AttributeError) as error:
            reason = str(error).replace(self._key, "***") if self._key != "none" else str(error)
            raise ModelError(
                f"{self.url} did not answer for the model {self.model!r} ({type(error).__name__}: {reason}). Check the address, "
                f"the model's name and the key in the environment variable {KEY_VARIABLE}, then rerun: finished results are kept."
            ) from None
