# Relative paths only: the folder may have any name.
PYTHON ?= python3
BIN := .venv/bin
CODE := include spark_apps dags plugins scripts benchmarks tests
EXIT ?=
SECURE ?=
BENCH ?=
SOAK ?=
GUARDS ?=
TESTS ?= tests
# Each has a local stack and a Spark of its own, about 4 GiB; a file's tests stay together.
WORKERS ?= 2
# The order of the files is that of tests/durations.json, longest first.
PYTEST := $(BIN)/python -m pytest --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder
# Without bytecode each process compiles what it imports: Great Expectations' import takes twice the time then.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: FORCE help install classes java postgres prometheus helm browser chart schemas check test test-all test-quick measure-tests guards soak wheels demo docs secrets compose-test bench-archive bench-speed bench-plan bench-rebuild bench-audit bench-requests bench-late bench-pages bench-certificate lock clean

help: ## Show this list
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/\1\t\2/p' Makefile | awk -F '\t' '{ printf "  make %-13s  %s\n", $$1, $$2 }'

install: java .venv/.installed .tidemark/jars/.verified ## Set up everything below this folder: Python packages, jars; quick when nothing changed

java: .tidemark/python.txt
	@$(BIN)/python scripts/setup_java.py

postgres: .tidemark/python.txt
	@$(BIN)/python scripts/setup_postgres.py

prometheus: .tidemark/python.txt
	@$(BIN)/python scripts/setup_prometheus.py

helm: .tidemark/python.txt
	@$(BIN)/python scripts/setup_helm.py

browser: .tidemark/python.txt
	@$(BIN)/python scripts/setup_browser.py

chart: .tidemark/python.txt ## Render the examples of the Helm chart again, after a change below deploy/helm; needs Go
	@$(BIN)/python scripts/setup_helm.py --write

schemas: .tidemark/python.txt ## Write the commands' JSON schemas and the catalogue of checks again, after a change of their sources
	@$(BIN)/python -m tidemark.cli.schemas docs/reference/json
	@$(BIN)/python scripts/check_catalogue.py

# PYTHON=python3.12 replaces a .venv of another version; without it, .venv keeps its Python.
.tidemark/python.txt: FORCE
	@$(PYTHON) scripts/setup_python.py choose

.venv/.installed: .tidemark/python.txt requirements.txt pyproject.toml scripts/setup_python.py scripts/setup_packages.py
	@$(PYTHON) scripts/setup_python.py
	@touch $@

.tidemark/jars/.verified: jars/ivy.xml jars/SHA256SUMS scripts/setup_jars.py include/tidemark/spark/jars.py | java .venv/.installed
	@$(BIN)/python scripts/setup_jars.py
	@touch $@

check: install ## Lint, types, layers, words
	$(BIN)/ruff check $(CODE)
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -q --no-header tests/test_language.py

classes: install
	@$(BIN)/python -m tests.shared_classes

test: install postgres prometheus helm browser ## Run the default tests against a real Kafka, S3 server and Spark: 12 minutes (TESTS=path: some; WORKERS=0: one process)
	$(BIN)/python -u -m tests.run_tests --workers $(WORKERS) $(TESTS)

test-all: install postgres prometheus helm browser ## Run both tiers of the tests, in an hour (TESTS=path: all of a part)
	$(BIN)/python -u -m tests.run_tests --workers $(WORKERS) --mark "not soak" --limit-s 9000 $(TESTS)

test-quick: install ## Run the tests that need no server, and one day from Kafka to its proof: three minutes at most
	$(PYTEST) -m "spine or not (services or soak or full)" $(TESTS)

measure-tests: install postgres prometheus helm browser ## Run the tests, show where their time goes, and write how long each file takes
	@rm -f .tidemark/measured.jsonl
	$(PYTEST) -m "not soak" --measure .tidemark/measured.jsonl $(TESTS)
	$(BIN)/python -m tests.measure .tidemark/measured.jsonl

guards: install ## Switch each guard off in a copy of the project and show that a test notices; half an hour (GUARDS="name name": some)
	@$(BIN)/python -u -m tests.run_guards --workers $(WORKERS) $(GUARDS)

soak: install ## Fifty random faults against both speed modes and the reconcile layer (SOAK="--seed 1 --faults 5": one seed)
	$(BIN)/python -m pytest -m soak tests
	$(BIN)/python -u -m tests.soak $(SOAK)

wheels: install ## Build the two wheels below .tidemark/wheels: tidemark, and airflow-provider-tidemark
	@rm -rf .tidemark/wheels
	@$(BIN)/python -m hatchling build -t wheel -d .tidemark/wheels
	@cd airflow_provider && ../$(BIN)/python -m hatchling build -t wheel -d ../.tidemark/wheels

demo: install ## Replay two days of real departures, damage them, prove them complete (EXIT=1: exit at the end; SECURE=1: with TLS, users, ACLs and policies)
	$(BIN)/tidemark demo $(if $(EXIT),--exit) $(if $(SECURE),--secure)

docs: install ## Build the documentation below .tidemark/site, without a call to another host
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	@echo "Open .tidemark/site/index.html in a browser."

secrets: install ## Write what docker-compose.yaml needs, with random passwords: .env and secrets/; existing files stay
	@$(BIN)/python -m tidemark.stack.compose.secrets

compose-test: install ## Build and run docker-compose.yaml with the demo's data, and remove it again; needs Docker, half an hour
	$(BIN)/python -u scripts/compose_test.py

bench-archive: install ## Our sink against Spark's own, by turns, and its memory (BENCH="--records 400000 --runs 2": a trial)
	$(BIN)/python -m benchmarks.archive $(BENCH)

bench-speed: install ## The speed stream in both modes against Spark's bare Kafka sink, by turns, and its latency (BENCH as above)
	$(BIN)/python -m benchmarks.speed $(BENCH)

bench-plan: install ## Time and memory of plans: 1,000 new ranges after 1,000 to 1,000,000 in the ledger, and up to 100,000 new ones
	$(BIN)/python -m benchmarks.plan $(BENCH)

bench-requests: install ## Requests to S3 of streams and reconcile runs, counted and compared with the estimate; half an hour (BENCH=--write: for the page)
	$(BIN)/python -m benchmarks.s3_requests $(BENCH)

bench-rebuild: install ## A day's rebuild by ranges against a plain copy and dropDuplicates, and its memory (BENCH="--records 1000000": a trial)
	$(BIN)/python -m benchmarks.rebuild $(BENCH)

bench-certificate: install ## Check a certificate with 10 million rows of downloaded objects, in half a minute (BENCH="--records 1000000": a trial)
	$(BIN)/python -m benchmarks.certificate $(BENCH)

bench-audit: install ## The audit of a day against its rebuild, with 5 million rows (BENCH="--records 500000": a trial)
	$(BIN)/python -m benchmarks.audit $(BENCH)

bench-late: install ## How long a late record takes to reach readers, with 10,000 a day, in an hour (BENCH="--minutes 20": a trial)
	$(BIN)/python -m benchmarks.late_data $(BENCH)

bench-pages: install ## Times of the pages in Airflow with 50 streams, 100 partitions and three years (BENCH="--streams 5 --days 60": a trial)
	$(BIN)/python -m benchmarks.pages $(BENCH)

lock: .venv/.installed ## Pin and hash packages and jars again, after a change of a requirements*.in or jars/ivy.xml
	$(BIN)/uv pip compile --quiet --generate-hashes --no-emit-index-url --no-header --universal --python-version 3.11 requirements.in -o requirements.txt
	$(BIN)/uv pip compile --quiet --no-deps --generate-hashes --no-emit-index-url --no-header --universal --python-version 3.11 tests/dags/providers.in -o tests/dags/providers.txt
	$(BIN)/uv pip compile --quiet --generate-hashes --no-emit-index-url --no-header --universal --python-version 3.11 requirements-executors.in -o requirements-executors.txt
	$(BIN)/uv pip compile --quiet --no-emit-index-url --no-header --no-annotate --universal --python-version 3.11 -c requirements.txt tests/wheels/airflow.in -o tests/wheels/airflow.txt
	$(BIN)/uv pip compile --quiet --no-emit-index-url --no-header --no-annotate --universal --python-version 3.11 -c requirements.txt -c tests/wheels/airflow.txt --extra spark --extra quality --extra otel pyproject.toml -o tests/wheels/tidemark.txt
	$(BIN)/python scripts/setup_jars.py --lock

clean: ## Remove what install, tests and demo made, the local stacks' data included
	rm -rf .venv .tidemark .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
