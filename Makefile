# Relative paths only: the folder may have any name.
PYTHON ?= python3
BIN := .venv/bin
CODE := include spark_apps dags plugins scripts benchmarks tests
EXIT ?=
BENCH ?=
SOAK ?=
GUARDS ?=
TESTS ?= tests
# Each has a local stack and a Spark of its own, about 4 GiB; a file's tests stay together.
WORKERS ?= 2
# The order of the files is that of tests/durations.json, longest first.
PYTEST := $(BIN)/python -m pytest --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder

.DEFAULT_GOAL := help
.PHONY: help install java postgres check test test-quick measure-tests guards soak demo docs bench-archive bench-speed bench-plan bench-rebuild lock clean

help: ## Show this list
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/\1\t\2/p' Makefile | awk -F '\t' '{ printf "  make %-13s  %s\n", $$1, $$2 }'

install: java .venv/.installed .tidemark/jars/.verified ## Set up everything below this folder: Python packages, jars; quick when nothing changed

java:
	@$(PYTHON) scripts/setup_java.py

postgres:
	@$(PYTHON) scripts/setup_postgres.py

.venv/.installed: requirements.txt pyproject.toml scripts/setup_python.py scripts/setup_packages.py
	@$(PYTHON) scripts/setup_python.py
	@touch $@

.tidemark/jars/.verified: jars/ivy.xml jars/SHA256SUMS scripts/setup_jars.py | java .venv/.installed
	@$(PYTHON) scripts/setup_jars.py
	@touch $@

check: install ## Lint, types, layers, words
	$(BIN)/ruff check $(CODE)
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -q --no-header tests/test_language.py

test: install postgres ## Run the tests against a real Kafka, S3 server and Spark, in two processes (TESTS=path: some; WORKERS=0: one)
	$(PYTEST) --durations 10 $(TESTS)

test-quick: install ## Run the tests that need no server, and one day from Kafka to its proof: three minutes at most
	$(PYTEST) -m "spine or not (services or soak)" $(TESTS)

measure-tests: install postgres ## Run the tests, show where their time goes, and write how long each file takes
	@rm -f .tidemark/measured.jsonl
	$(PYTEST) --measure .tidemark/measured.jsonl $(TESTS)
	$(BIN)/python -m tests.measure .tidemark/measured.jsonl

guards: install ## Switch each guard off in a copy of the project and show that a test notices; half an hour (GUARDS="name name": some)
	@$(BIN)/python -u -m tests.run_guards --workers $(WORKERS) $(GUARDS)

soak: install ## Fifty random faults against both speed modes and the reconcile layer (SOAK="--seed 1 --faults 5": one seed)
	$(BIN)/python -m pytest -m soak tests
	$(BIN)/python -u -m tests.soak $(SOAK)

demo: install ## Replay two days of real departures, damage them, prove them complete (EXIT=1: exit at the end)
	$(BIN)/tidemark demo $(if $(EXIT),--exit)

docs: install ## Build the documentation below .tidemark/site, without a call to another host
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	@echo "Open .tidemark/site/index.html in a browser."

bench-archive: install ## Our sink against Spark's own, by turns, and its memory (BENCH="--records 400000 --runs 2": a trial)
	$(BIN)/python -m benchmarks.archive $(BENCH)

bench-speed: install ## The speed stream in both modes against Spark's bare Kafka sink, by turns, and its latency (BENCH as above)
	$(BIN)/python -m benchmarks.speed $(BENCH)

bench-plan: install ## Time and memory of plans: 1,000 new ranges after 1,000 to 1,000,000 in the ledger, and up to 100,000 new ones
	$(BIN)/python -m benchmarks.plan $(BENCH)

bench-rebuild: install ## A day's rebuild by ranges against a plain copy and dropDuplicates, and its memory (BENCH="--records 1000000": a trial)
	$(BIN)/python -m benchmarks.rebuild $(BENCH)

lock: .venv/.installed ## Pin and hash packages and jars again, after a change of requirements.in or jars/ivy.xml
	$(BIN)/uv pip compile --quiet --generate-hashes --no-emit-index-url --no-header --python-version 3.11 requirements.in -o requirements.txt
	$(PYTHON) scripts/setup_jars.py --lock

clean: ## Remove what install, tests and demo made, the local stacks' data included
	rm -rf .venv .tidemark .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
