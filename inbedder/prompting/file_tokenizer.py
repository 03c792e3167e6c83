"""A tokenizer of one tokenizer.json with the methods of transformers' that inbedder calls, without importing transformers."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tokenizers import Encoding, Tokenizer

FILES = ("tokenizer.json", "tokenizer_config.json")
ROLES = ("bos", "eos", "unk", "sep", "pad", "cls", "mask")
"""The special tokens that tokenizer_config.json names, in transformers' order."""

NO_LIMIT = int(1e30)
"""transformers' number of tokens of a tokenizer without a limit."""


class Encoded(dict[str, Any]):
    """Token ids under "input_ids", and the encodings that hold them."""

    encodings: list[Encoding]


class FileTokenizer:
    """A tokenizer of a model folder; ids, tokens and texts are those of transformers' fast tokenizer."""

    is_fast = True
    chat_template = None
    bos_token_id: int | None
    eos_token_id: int | None
    unk_token_id: int | None
    sep_token_id: int | None
    pad_token_id: int | None
    cls_token_id: int | None
    mask_token_id: int | None

    def __init__(self, folder: Path) -> None:
        """Read ``tokenizer.json`` and the special tokens of ``tokenizer_config.json``."""
        self.name_or_path = str(folder)
        self.backend_tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.backend_tokenizer.no_padding()
        self.backend_tokenizer.no_truncation()
        config = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
        self.model_max_length: int = config.get("model_max_length") or NO_LIMIT
        tokens = {role: config.get(f"{role}_token") for role in ROLES}
        tokens = {role: token["content"] if isinstance(token, dict) else token for role, token in tokens.items()}
        for role, token in tokens.items():
            setattr(self, f"{role}_token", token)
            setattr(self, f"{role}_token_id", None if token is None else self.backend_tokenizer.token_to_id(token))
        self.all_special_tokens: list[str] = list(dict.fromkeys(token for token in tokens.values() if token is not None))
        self.all_special_ids = [self.convert_tokens_to_ids(token) for token in self.all_special_tokens]

    @property
    def vocab_size(self) -> int:
        """Number of tokens without the added ones."""
        return int(self.backend_tokenizer.get_vocab_size(with_added_tokens=False))

    def __len__(self) -> int:
        """Return the number of tokens."""
        return int(self.backend_tokenizer.get_vocab_size())

    def __call__(
        self, texts: str | list[str], *, add_special_tokens: bool = True, split_special_tokens: bool = False, **_options: Any
    ) -> Encoded:
        """Tokenize a text, or several; special tokens in it become plain characters if they are split."""
        if self.backend_tokenizer.encode_special_tokens != split_special_tokens:
            self.backend_tokenizer.encode_special_tokens = split_special_tokens
        strings = [texts] if isinstance(texts, str) else texts
        encodings = self.backend_tokenizer.encode_batch(strings, add_special_tokens=add_special_tokens)
        ids = [encoding.ids for encoding in encodings]
        encoded = Encoded(input_ids=ids[0] if isinstance(texts, str) else ids)
        encoded.encodings = encodings
        return encoded

    def save_pretrained(self, folder: Path) -> None:
        """Copy the two files into a folder."""
        for file in FILES:
            shutil.copy(Path(self.name_or_path) / file, folder)

    def get_vocab(self) -> dict[str, int]:
        """Return the ids by token."""
        return dict(self.backend_tokenizer.get_vocab())

    def convert_tokens_to_ids(self, token: str) -> int | None:
        """Return the id of a token, or that of the unknown one."""
        token_id: int | None = self.backend_tokenizer.token_to_id(token)
        return self.unk_token_id if token_id is None else token_id

    def convert_ids_to_tokens(self, ids: Iterable[int]) -> list[str | None]:
        """Return the tokens of ids."""
        return [self.backend_tokenizer.id_to_token(token_id) for token_id in ids]

    def batch_decode(self, rows: Sequence[Sequence[int]], skip_special_tokens: bool = False) -> list[str]:
        """Decode rows of ids."""
        texts: list[str] = self.backend_tokenizer.decode_batch(list(rows), skip_special_tokens=skip_special_tokens)
        return texts
