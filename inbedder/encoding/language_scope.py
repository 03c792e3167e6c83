"""The scope within which a warning of unreadable texts sounds once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass
class _Scope:
    is_checked: bool


_SCOPE: ContextVar[_Scope | None] = ContextVar("scope", default=None)


@contextmanager
def check_language_once(*, is_checked: bool | None = None) -> Iterator[None]:
    """Let all calls in a block check once whether the model can read the texts.

    Args:
        is_checked: None joins a block around this one. Otherwise the block stands alone: False checks anew, and True does not
            check, because the texts were checked or are not the user's.
    """
    outer_scope = _SCOPE.get()
    token = _SCOPE.set(outer_scope if outer_scope is not None and is_checked is None else _Scope(bool(is_checked)))
    try:
        yield
    finally:
        _SCOPE.reset(token)


def begin_check() -> bool:
    """Tell whether texts are to be checked, and remember that they are."""
    scope = _SCOPE.get()
    if scope is None:
        return True
    is_first = not scope.is_checked
    scope.is_checked = True
    return is_first
