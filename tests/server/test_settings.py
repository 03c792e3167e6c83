"""Sources and checks of settings."""

import warnings

import pytest

from inbedder.errors import InputError
from inbedder.server.settings import Settings, is_loopback, load_settings


def test_the_command_line_precedes_the_environment_and_then_the_file(tmp_path, monkeypatch):
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


def test_models_in_the_environment_are_separated_by_commas(monkeypatch):
    monkeypatch.setenv("INBEDDER_MODEL", "mini, big=/models/big")
    assert load_settings().named_models == {"mini": "mini", "big": "/models/big"}


def test_a_folder_is_called_by_its_last_part_and_names_are_unique():
    assert Settings(model=["/models/big"]).named_models == {"big": "/models/big"}
    with pytest.raises(InputError, match="Two models"):
        _ = Settings(model=["a/big", "b/big"]).named_models
    with pytest.raises(InputError, match="NAME=PATH"):
        _ = Settings(model=["big="]).named_models


@pytest.mark.parametrize("invalid", [{"port": 70000}, {"max_items": 0}, {"trust_remote_code": True}, {"body_timeout": "nan"}])
def test_invalid_settings_are_refused(invalid):
    with pytest.raises(InputError, match=next(iter(invalid))):
        load_settings(**invalid)


@pytest.mark.parametrize("content", ["[1]", "a: [", "pord: 1"])
def test_a_file_that_holds_no_settings_is_refused(tmp_path, content):
    (tmp_path / "serve.yaml").write_text(content)
    with pytest.raises(InputError, match=r"serve\.yaml"):
        load_settings(tmp_path / "serve.yaml")


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.2", "example.org", ""])
def test_a_non_loopback_address_requires_a_key(host, tmp_path):
    with pytest.raises(InputError, match="requires an API key"):
        Settings(host=host).read_key()
    (tmp_path / "key").write_text("secret\n")
    assert Settings(host=host, api_key_file=tmp_path / "key").read_key() == "secret"
    assert Settings(host=host, api_key="secret").read_key() == "secret"


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.1.2.3", "::1", "[::1]"])
def test_loopback_needs_no_key(host):
    assert is_loopback(host)
    assert Settings(host=host).read_key() is None


@pytest.mark.parametrize("key", ["", " ", "two words", "schlüssel", "a\nb"])
def test_keys_that_no_header_can_contain_are_refused(key, tmp_path):
    with pytest.raises(InputError, match="API key") as refused:
        Settings(api_key=key).read_key()
    assert not key.strip() or key not in str(refused.value)
    (tmp_path / "key").write_text(key)
    with pytest.raises(InputError, match="API key"):
        Settings(api_key_file=tmp_path / "key").read_key()


@pytest.mark.parametrize(("mode", "is_warned"), [(0o600, False), (0o400, False), (0o640, True), (0o604, True), (0o644, True)])
def test_a_key_file_that_others_can_read_is_warned_of(tmp_path, mode, is_warned):
    key_file = tmp_path / "secret.key"
    key_file.write_text("canary-key")
    key_file.chmod(mode)
    with warnings.catch_warnings(record=True) as records:
        warnings.simplefilter("always")
        Settings(api_key_file=key_file).warn_of_readable_key()
    messages = [str(warning.message) for warning in records]
    assert messages == (["Other users can read the API key in 'secret.key'. Run chmod 600 on it."] if is_warned else [])


def test_allowed_origins_come_from_the_environment_or_a_file(tmp_path, monkeypatch):
    assert load_settings().allowed_origins == []
    config = tmp_path / "serve.yaml"
    config.write_text("allowed_origins: [https://app.example.org, http://localhost:3000]\n")
    assert load_settings(config).allowed_origins == ["https://app.example.org", "http://localhost:3000"]
    monkeypatch.setenv("INBEDDER_ALLOWED_ORIGINS", "https://a.example, tauri://localhost")
    assert load_settings().allowed_origins == ["https://a.example", "tauri://localhost"]


@pytest.mark.parametrize(
    "origin",
    ["*", "null", "example.org", "https://*.example.org", "https://a.example/", "https://A.example", "https://u@a.example"],
)
def test_an_origin_that_no_browser_sends_is_refused_by_name(origin):
    with pytest.raises(InputError, match="such as https://app") as refused:
        load_settings(allowed_origins=["https://a.example", origin])
    assert repr(origin) in str(refused.value)


def test_a_missing_key_file_is_an_error(tmp_path):
    with pytest.raises(InputError, match="cannot be read"):
        Settings(api_key_file=tmp_path / "none").read_key()


def test_no_representation_of_the_settings_holds_the_key():
    settings = Settings(api_key="canary")
    assert "canary" not in repr(settings) + str(settings.model_dump())
