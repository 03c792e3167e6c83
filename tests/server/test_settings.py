"""Where settings come from, and which are refused."""

import pytest

from inbedder.errors import InputError
from inbedder.server.settings import Settings, is_loopback, load_settings


def test_the_command_line_wins_over_the_environment_and_this_over_the_file(tmp_path, monkeypatch):
    config = tmp_path / "serve.yaml"
    config.write_text("port: 1\nmax_items: 2\nmodel: [mini, other=folder]\n")
    monkeypatch.setenv("INBEDDER_PORT", "3")
    monkeypatch.setenv("INBEDDER_BATCH_SIZE", "4")
    settings = load_settings(config, port=5)
    assert (settings.port, settings.max_items, settings.batch_size) == (5, 2, 4)
    assert load_settings(config).port == 3
    monkeypatch.setenv("INBEDDER_CONFIG", str(config))
    monkeypatch.delenv("INBEDDER_PORT")
    assert load_settings().port == 1
    assert load_settings().named_models == {"mini": "mini", "other": "folder"}


@pytest.mark.parametrize("name", [name for name in Settings.model_fields if name.startswith("max_") or name == "threads"])
def test_every_limit_is_also_an_environment_variable(name, monkeypatch):
    monkeypatch.setenv(f"INBEDDER_{name.upper()}", "7")
    assert getattr(load_settings(), name) == 7


def test_models_in_the_environment_are_set_apart_by_commas(monkeypatch):
    monkeypatch.setenv("INBEDDER_MODEL", "mini, big=/models/big")
    assert load_settings().named_models == {"mini": "mini", "big": "/models/big"}


def test_a_folder_goes_by_its_last_part_and_no_name_stands_for_two():
    assert Settings(model=["/models/big"]).named_models == {"big": "/models/big"}
    with pytest.raises(InputError, match="Two models"):
        _ = Settings(model=["a/big", "b/big"]).named_models
    with pytest.raises(InputError, match="NAME=PATH"):
        _ = Settings(model=["big="]).named_models


@pytest.mark.parametrize("given", [{"port": 70000}, {"max_items": 0}, {"trust_remote_code": True}, {"body_timeout": "nan"}])
def test_settings_that_make_no_sense_are_refused(given):
    with pytest.raises(InputError, match=next(iter(given))):
        load_settings(**given)


@pytest.mark.parametrize("content", ["[1]", "a: [", "pord: 1"])
def test_a_file_that_holds_no_settings_is_refused(tmp_path, content):
    (tmp_path / "serve.yaml").write_text(content)
    with pytest.raises(InputError, match=r"serve\.yaml"):
        load_settings(tmp_path / "serve.yaml")


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.2", "example.org", ""])
def test_other_machines_may_connect_with_a_key_alone(host, tmp_path):
    with pytest.raises(InputError, match="Without a key"):
        Settings(host=host).key()
    (tmp_path / "key").write_text("secret\n")
    assert Settings(host=host, api_key_file=tmp_path / "key").key() == "secret"
    assert Settings(host=host, api_key="secret").key() == "secret"


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.1.2.3", "::1", "[::1]"])
def test_loopback_needs_no_key(host):
    assert is_loopback(host)
    assert Settings(host=host).key() is None


@pytest.mark.parametrize("key", ["", " ", "two words", "schlüssel", "a\nb"])
def test_keys_that_no_header_can_carry_are_refused(key, tmp_path):
    with pytest.raises(InputError, match="API key") as refused:
        Settings(api_key=key).key()
    assert not key.strip() or key not in str(refused.value)
    (tmp_path / "key").write_text(key)
    with pytest.raises(InputError, match="API key"):
        Settings(api_key_file=tmp_path / "key").key()


def test_a_key_file_that_is_missing_is_no_open_door(tmp_path):
    with pytest.raises(InputError, match="cannot be read"):
        Settings(api_key_file=tmp_path / "none").key()


def test_no_representation_of_the_settings_holds_the_key():
    settings = Settings(api_key="canary")
    assert "canary" not in repr(settings) + str(settings.model_dump())
