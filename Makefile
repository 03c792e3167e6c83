.PHONY: install fix check test docs package release-check demo bench

install:
	python3 -m venv .venv
	.venv/bin/pip install -q 'pip>=25.1'
	.venv/bin/pip install -q -c constraints.txt -e '.[mini,search,serve,quantization,onnx,ray]' -e ./finetune -e './evaluation[mteb]' --group dev

fix:
	.venv/bin/ruff check --fix . && .venv/bin/ruff format .

check:
	.venv/bin/ruff check . && .venv/bin/ruff format --check . && .venv/bin/lint-imports --no-cache && .venv/bin/mypy && .venv/bin/pydoclint -q inbedder finetune/inbedder_finetune evaluation/inbedder_evaluation && .venv/bin/python scripts/dev/list_names.py && .venv/bin/typos

test:
	scripts/test && scripts/test-slow

docs:
	NO_MKDOCS_2_WARNING=1 .venv/bin/mkdocs build --strict

package:
	rm -rf dist && .venv/bin/python -m build && for part in finetune evaluation; do .venv/bin/python -m build --wheel -o dist $$part || exit 1; done && .venv/bin/twine check --strict dist/*

release-check:
	.venv/bin/python scripts/dev/release_check.py

demo:
	scripts/demo

bench:
	.venv/bin/python -m scripts.bench.saved_work
	-PYTHON=.venv/bin/python scripts/bench/gpu_suite run
