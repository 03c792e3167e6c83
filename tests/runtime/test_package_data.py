"""Data is found inside an installed package and next to a package of a checkout."""

import sys

import pytest

from inbedder.runtime.package_data import find_data_folder


@pytest.mark.parametrize("package", ["inbedder", "inbedder_finetune", "inbedder_evaluation"])
def test_a_checkout_has_data_next_to_the_package(package):
    name = {"inbedder": "prompts", "inbedder_finetune": "recipes", "inbedder_evaluation": "data"}[package]
    assert any(find_data_folder(package, name).iterdir())


def test_installed_data_takes_precedence(tmp_path, monkeypatch):
    (tmp_path / "package_of_a_wheel" / "prompts").mkdir(parents=True)
    (tmp_path / "package_of_a_wheel" / "__init__.py").touch()
    (tmp_path / "prompts").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    assert find_data_folder("package_of_a_wheel", "prompts") == tmp_path / "package_of_a_wheel" / "prompts"
    del sys.modules["package_of_a_wheel"]
