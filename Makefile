DATA ?= data/eval
.PHONY: install fix check test demo bench

install:
	python3 -m venv .venv
	.venv/bin/pip install -q -c constraints.txt -e '.[mini,finetune,evaluation,report,dev]'

fix:
	.venv/bin/ruff check --fix . && .venv/bin/ruff format .

check:
	.venv/bin/ruff check . && .venv/bin/ruff format --check . && .venv/bin/mypy && .venv/bin/pydoclint inbedder finetune evaluation

test: install check
	.venv/bin/pytest

demo:
	scripts/demo

bench:
	.venv/bin/inbedder evaluate --baseline all-MiniLM-L6-v2 --data $(DATA) -o evaluation/results/mini.json
