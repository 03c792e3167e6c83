"""The lines of the server's log."""

import logging

import pytest

from inbedder.server.log_format import LINE_FORMAT, LogFormatter, configure_log, describe_origin

CANARY = "canary7261"


def make_record(message, *args, error=None):
    exc_info = error and (type(error), error, error.__traceback__)
    return logging.LogRecord("asyncio", logging.ERROR, f"/home/{CANARY}/x.py", 3, message, args, exc_info)


def raise_and_catch():
    try:
        raise ValueError(f"/etc/{CANARY}")
    except ValueError as error:
        return error


def test_an_exception_is_named_without_traceback_message_and_path():
    error = raise_and_catch()
    line = LogFormatter().format(make_record("Task %s failed\nfuture: <Task at /home/%s>", "one", CANARY, error=error))
    line_number = raise_and_catch.__code__.co_firstlineno + 2
    assert line.endswith(f"ERROR asyncio: Task one failed (ValueError in raise_and_catch, line {line_number})")
    assert CANARY not in line
    assert "\n" not in line
    assert describe_origin(error) == f"ValueError in raise_and_catch, line {line_number}"


def test_other_formatters_still_see_the_whole_record():
    record = make_record("Failed\nat x", error=raise_and_catch())
    LogFormatter().format(record)
    assert CANARY in logging.Formatter(LINE_FORMAT).format(record)


@pytest.mark.parametrize("debug", [False, True])
def test_only_debug_writes_tracebacks_and_other_libraries_are_quiet(debug, monkeypatch, capsys):
    names = ("", "inbedder", "uvicorn")
    levels = [logging.getLogger(name).level for name in names]
    monkeypatch.setattr(logging.root, "handlers", [])
    try:
        configure_log(debug=debug)
        logging.getLogger("inbedder.server.middleware").info("/health 200 1.0 ms")
        logging.getLogger("httpx").info("GET")
        logging.getLogger("uvicorn.error").error("It failed", exc_info=raise_and_catch())
    finally:
        for name, level in zip(names, levels, strict=True):
            logging.getLogger(name).setLevel(level)
    output = capsys.readouterr().err
    assert "/health 200 1.0 ms" in output
    assert "GET" not in output
    assert ("Traceback" in output) == (CANARY in output) == debug
