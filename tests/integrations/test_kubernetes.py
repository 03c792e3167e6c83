"""The Kubernetes example against the API's own schemas."""

from pathlib import Path

import pytest
import yaml

EXAMPLE = Path(__file__).parents[2] / "docs" / "tutorials" / "kubernetes.yaml"


@pytest.mark.parametrize("version", ["1.30", "1.37"])
def test_every_object_is_one_of_the_api(version):
    kubernetes = pytest.importorskip("kubernetes_validate")
    objects = list(yaml.safe_load_all(EXAMPLE.read_text(encoding="utf-8")))
    assert [one["kind"] for one in objects] == ["Deployment", "Service", "HorizontalPodAutoscaler"]
    for one in objects:
        kubernetes.validate(one, version, strict=True)
    objects[0]["spec"]["template"]["spec"]["containers"][0]["readinessProb"] = {}
    with pytest.raises(kubernetes.ValidationError):
        kubernetes.validate(objects[0], version, strict=True)
