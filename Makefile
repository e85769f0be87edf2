# Relative paths only: the folder may have any name.
PYTHON ?= python3
BIN := .venv/bin
CODE := include spark_apps dags plugins scripts benchmarks tests
EXIT ?=
BENCH ?=
TESTS ?= tests

.DEFAULT_GOAL := help
.PHONY: help install java check test demo bench-archive lock clean

help: ## Show this list
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/\1\t\2/p' Makefile | awk -F '\t' '{ printf "  make %-13s  %s\n", $$1, $$2 }'

install: java .venv/.installed .tidemark/jars/.verified ## Set up everything below this folder: Python packages, jars; quick when nothing changed

java:
	@$(PYTHON) scripts/setup_java.py

.venv/.installed: requirements.txt pyproject.toml scripts/setup_python.py scripts/setup_packages.py
	@$(PYTHON) scripts/setup_python.py
	@touch $@

.tidemark/jars/.verified: jars/ivy.xml jars/SHA256SUMS scripts/setup_jars.py | java .venv/.installed
	@$(PYTHON) scripts/setup_jars.py
	@touch $@

check: install ## Lint, types, layers
	$(BIN)/ruff check $(CODE)
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/mypy
	$(BIN)/lint-imports

test: install ## Run the tests against a real Kafka, S3 server and Spark (TESTS=path for some of them)
	$(BIN)/python -m pytest $(TESTS)

demo: install ## Replay two days of real departures, damage them, prove them whole (EXIT=1: leave at the end)
	$(BIN)/tidemark demo $(if $(EXIT),--exit)

bench-archive: install ## Our sink against Spark's own, by turns, and its memory (BENCH="--records 400000 --runs 2": a trial)
	$(BIN)/python benchmarks/archive.py $(BENCH)

lock: .venv/.installed ## Pin and hash packages and jars anew, after a change of requirements.in or jars/ivy.xml
	$(BIN)/uv pip compile --quiet --generate-hashes --no-emit-index-url --no-header --python-version 3.11 requirements.in -o requirements.txt
	$(PYTHON) scripts/setup_jars.py --lock

clean: ## Remove what install, tests and demo made, the local stacks' data included
	rm -rf .venv .tidemark .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
