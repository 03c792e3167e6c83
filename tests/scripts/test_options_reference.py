"""docs/options.md is generated from the dataclasses of the options."""

import re
from dataclasses import fields

import typer

from inbedder.cli.app import app
from inbedder.options import EncodingOptions, ModelOptions, Reencoding
from scripts.dev import options_reference as reference


def test_the_page_is_current():
    assert reference.PAGE.read_text(encoding="utf-8") == reference.render_page(), "run python scripts/dev/options_reference.py"


def test_the_options_page_shows_every_option():
    text = reference.render_page()
    for dataclass in (ModelOptions, EncodingOptions, Reencoding):
        assert f"## {dataclass.__name__}\n" in text
        for option in fields(dataclass):
            assert f"| `{option.name}` |" in text


def test_the_options_page_shows_the_flags_of_commands():
    cells = [line.split(" | ")[1] for line in reference.render_page().splitlines() if line.startswith("| `")]
    page_flags = set(re.findall(r"`(--[a-z-]+)`", " ".join(cells)))
    embed = typer.main.get_command(app).commands["embed"]
    command_flags = {flag for option in embed.params for flag in [*option.opts, *option.secondary_opts]}
    assert page_flags <= command_flags
    assert {"--model", "--raw-length", "--re-enc-n", "--filter-word"} <= page_flags
