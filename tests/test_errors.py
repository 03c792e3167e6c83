import errno

import pyarrow
import pytest
import torch

from inbedder.errors import InputError, describe_error, format_names, format_value, is_out_of_memory


@pytest.mark.parametrize(
    ("value", "text"),
    [("it", "'it'"), ("\x1b[2J\x9b2J\r", r"'\x1b[2J\x9b2J\r'"), (7, "7"), (["a"], "['a']"), ("Größe 😀", "'Größe 😀'")],
)
def test_a_value_is_formatted_as_its_repr(value, text):
    assert format_value(value) == text


def test_long_and_deep_values_are_cut():
    deep: list = []
    for _ in range(100_000):
        deep = [deep]
    for value in ("x" * 1000, ["x" * 100] * 100, {i: "x" * 100 for i in range(100)}, b"x" * 1000, deep):
        assert len(format_value(value)) <= 200
        assert format_value(value).isprintable()


def test_a_long_list_of_names_is_cut_and_counted():
    assert format_names(["a", "b"]) == "'a', 'b'"
    assert format_names(range(20)).endswith(", 19")
    assert format_names(range(1021)).endswith(", 19 and 1,001 more")


ALLOCATOR = "[enforce fail at alloc_cpu.cpp:118] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to ..."


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        pyarrow.ArrowMemoryError("malloc of size 64 failed"),
        torch.OutOfMemoryError("CUDA out of memory."),
        RuntimeError(ALLOCATOR),
        RuntimeError("std::bad_alloc"),
        OSError(errno.ENOMEM, "Cannot allocate memory"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_of_short_memory_says_what_to_do(error):
    assert is_out_of_memory(error)
    assert describe_error(error).startswith("Not enough memory. Use a smaller batch size (--batch-size)")
    try:
        raise InputError("t.xlsx cannot be read.") from error
    except InputError as wrapped:
        assert is_out_of_memory(wrapped)


@pytest.mark.parametrize(
    ("error", "text"),
    [(ValueError("bad"), "ValueError: bad"), (ValueError(), "ValueError"), (RuntimeError("a memory"), "RuntimeError: a memory")],
)
def test_another_error_is_described_by_type_and_message(error, text):
    assert not is_out_of_memory(error)
    assert describe_error(error) == text
