import json

import pytest

ANSWERS = {"cats": "cats", "dogs": "dogs", "voucher": "account voucher", "lamp": "lamp"}


@pytest.fixture
def data(tmp_path):
    rows = [
        {"input": f"I love {word} number {i}", "instruction": "What animals do they love?", "output": answer}
        for i in range(8)
        for word, answer in ANSWERS.items()
    ]
    (tmp_path / "qa.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path
