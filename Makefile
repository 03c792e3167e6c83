.PHONY: install fix check test docs package demo bench

install:
	python3 -m venv .venv
	.venv/bin/pip install -q -c constraints.txt -e '.[mini,small,finetune,evaluation,onnx,ray,serve,report,search,langchain,rerankers,xlsx,dev,docs,release]'

fix:
	.venv/bin/ruff check --fix . && .venv/bin/ruff format .

check:
	.venv/bin/ruff check . && .venv/bin/ruff format --check . && .venv/bin/lint-imports --no-cache && .venv/bin/mypy && .venv/bin/pydoclint inbedder finetune evaluation

test:
	scripts/test

docs:
	NO_MKDOCS_2_WARNING=1 .venv/bin/mkdocs build --strict

package:
	rm -rf dist && .venv/bin/python -m build && .venv/bin/python -m build --wheel -o dist inbedder/models/small && .venv/bin/twine check --strict dist/*

demo:
	scripts/demo

bench:
	.venv/bin/python scripts/benchmark.py
	.venv/bin/python scripts/benchmark_gpu.py
