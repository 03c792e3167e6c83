import pytest
import torch

from inbedder import InBedder
from inbedder.errors import ModelError
from inbedder.models.gguf import MANIFEST, check_converted, convert, gguf_folder


def test_a_gguf_file_gives_the_weights_that_it_holds(tiny_gguf, home):
    path, model = tiny_gguf
    ours = InBedder(path, dtype="float32").backbone.model.state_dict()
    theirs = model.state_dict()
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_a_gguf_file_embeds_and_answers(tiny_gguf, home):
    model = InBedder(str(tiny_gguf[0]))
    assert model.backbone.kind == "causal"
    assert model.encode(["I love cats", ""], "What?").shape == (2, 32)
    assert len(model.answer(["I love cats", ""], "What?")) == 2


def test_a_file_is_converted_once(tiny_gguf, home, monkeypatch):
    first = gguf_folder(tiny_gguf[0])
    monkeypatch.setattr("inbedder.models.gguf.convert", lambda *_: pytest.fail("converted again"))
    assert gguf_folder(tiny_gguf[0]) == first


def test_a_changed_file_is_converted_again(tiny_gguf, home, tmp_path):
    copy = tmp_path / "tiny.gguf"
    copy.write_bytes(tiny_gguf[0].read_bytes())
    first = gguf_folder(copy)
    copy.write_bytes(tiny_gguf[0].read_bytes() + b"\0")
    assert gguf_folder(copy) != first


def test_a_file_that_is_no_gguf_leaves_nothing(home, tmp_path):
    bad = tmp_path / "bad.gguf"
    bad.write_bytes(b"GGUF and then nothing")
    with pytest.raises(ModelError, match=r"bad.gguf cannot be read as the GGUF file of a decoder"):
        InBedder(bad)
    assert not [path for path in home.rglob("*") if path.is_file()]


def test_an_interrupted_conversion_leaves_nothing(tiny_gguf, home, monkeypatch):
    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("inbedder.models.gguf.sha256_of", stop)
    with pytest.raises(KeyboardInterrupt):
        convert(tiny_gguf[0], home / "gguf" / "x")
    assert not [path for path in home.rglob("*") if path.is_file()]


def test_converted_weights_that_changed_are_refused(tiny_gguf, home):
    folder = home / "gguf" / "x"
    convert(tiny_gguf[0], folder)
    check_converted(folder)
    data = bytearray((folder / "model.safetensors").read_bytes())
    data[-1] ^= 1
    (folder / "model.safetensors").write_bytes(data)
    with pytest.raises(ModelError, match=r"model.safetensors in .* changed since it was written"):
        check_converted(folder)
    (folder / MANIFEST).unlink()
    with pytest.raises(ModelError, match="is damaged"):
        check_converted(folder)


def test_no_room_is_said(tiny_gguf, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("INBEDDER_HOME", str(tmp_path / "file"))
    with pytest.raises(ModelError, match="Set INBEDDER_HOME"):
        gguf_folder(tiny_gguf[0])
