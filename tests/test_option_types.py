import subprocess
import sys
from dataclasses import fields

import pytest

from inbedder.option_types import ChangeableKwargs, ModelKwargs, PoolingName
from inbedder.options import EncodingOptions, ModelOptions
from inbedder.vectors.pooling import POOLINGS

SCRIPT = """
import numpy as np

from inbedder import InBedder, cluster, compare_wordings, crosstab

model = InBedder("mini", pooling="avg-gen", dtype="float32", max_length=256, cache="cache")
short = model.replace(pooling="1st-gen", layer=-2, truncate_dim=64)
texts = ["The phone broke.", "I love it."]
vectors = short.encode(texts, "What is it about?")
print(vectors.shape, np.linalg.norm(vectors), model.answer(texts, "What is it about?"))
result = cluster(texts, "What is it about?", model, k=2, method="agglomerative", namer="words", apart_from="Is it good?")
print(result.names, crosstab(result, {"stars": [1, 5]}), compare_wordings(texts, ["Topic?", "What topic?"], model))
"""


def test_every_option_has_a_type():
    names = {option.name for option in (*fields(ModelOptions), *fields(EncodingOptions))}
    assert {*ModelKwargs.__annotations__, *ChangeableKwargs.__annotations__} == names - {"model"}
    assert set(PoolingName.__args__) == POOLINGS.keys()


@pytest.mark.slow
def test_a_users_script_passes_strict_mypy_and_a_misspelt_option_does_not(tmp_path):
    script = tmp_path / "script.py"
    check = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", "--ignore-missing-imports", str(script)]
    script.write_text(SCRIPT)
    process = subprocess.run(check, cwd=tmp_path, capture_output=True, text=True)
    assert process.returncode == 0, process.stdout
    script.write_text(SCRIPT.replace("max_length=256", "max_lenght=256").replace('method="aggl', 'methods="aggl'))
    process = subprocess.run(check, cwd=tmp_path, capture_output=True, text=True)
    assert 'Unexpected keyword argument "max_lenght"' in process.stdout
    assert 'Unexpected keyword argument "methods"' in process.stdout
