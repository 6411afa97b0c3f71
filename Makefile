# Everything from clone to green. `make` alone lists the targets; the first one that needs it sets up .venv.
.DEFAULT_GOAL := help
PYTHON ?=
BIN := .venv/bin
STAMP := .venv/.installed

# A .venv holds absolute paths: one that was moved or copied with its clone is made anew.
ifneq ($(shell cat .venv/.home 2>/dev/null),$(shell pwd -P))
$(STAMP): moved
endif

.PHONY: moved help setup demo dev bench bench-quick bench-peers test test-kafka simulate chaos chaos-quick check format lock clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' Makefile

setup: $(STAMP) ## a private .venv from the committed lock (the other targets do it by themselves)

moved:

$(STAMP): requirements.lock requirements.uv.lock pyproject.toml sdk/pyproject.toml ops/setup.sh
	@PYTHON='$(PYTHON)' sh ops/setup.sh
	@touch $@

demo: $(STAMP) ## the main job on real input, shown and checked
	@$(BIN)/python -m ops.demo

dev: $(STAMP) ## the whole stack kept running; workflow files are reloaded as they are saved
	@$(BIN)/a44 dev examples/invoice-settle examples/tenant-onboard

test: $(STAMP) ## the whole suite, on given addresses, containers or the embedded stack
	@$(BIN)/python -m pytest -n 3 --dist worksteal --durations=25 --durations-min=5

# What touches no broker would only run the same again.
KAFKA_SUITES := tests/integration/embedded tests/integration/kafka tests/integration/relay \
	tests/acceptance/broker_lost tests/acceptance/durable_pipelines/test_crashes.py tests/acceptance/main_job \
	tests/acceptance/stopping/test_graceful_stop.py

test-kafka: $(STAMP) compose/kafka/target/libs/.fetched ## the suites that touch a broker, on Apache Kafka (needs Java 17 and Maven)
	@A44_TEST_BROKER=apache $(BIN)/python -m pytest -n 3 --dist worksteal --durations=10 --durations-min=10 $(KAFKA_SUITES)

CHAOS := $(if $(SEED),--seed $(SEED)) $(if $(SOAK),--soak $(SOAK))

simulate: $(STAMP) ## seeded simulations in virtual time, 2,000 or SEEDS=20000 or SEEDS=1000:3000; SEED=17 tells the story of one
	@$(BIN)/python -m tests.simulation $(if $(SEED),--seed $(SEED),--seeds $(or $(SEEDS),2000))

chaos: $(STAMP) $(if $(filter apache,$(KAFKA)),compose/kafka/target/libs/.fetched) ## 20,000 runs under 65 faults, and the proof that nothing was lost or done twice; KAFKA=apache, SEED=, SOAK=seconds
	@$(BIN)/python -m tests.chaos $(CHAOS)

chaos-quick: $(STAMP) $(if $(filter apache,$(KAFKA)),compose/kafka/target/libs/.fetched) ## the same in about three minutes, with 14 faults
	@$(BIN)/python -m tests.chaos --quick $(CHAOS)

compose/kafka/target/libs/.fetched: compose/kafka/pom.xml compose/kafka/fetch.sh
	@sh compose/kafka/fetch.sh

bench: $(STAMP) ## every figure three times, beside the bare path, in about ten minutes; WRITE=1 puts them into docs/performance.md
	@$(BIN)/python -m benchmarks $(if $(WRITE),--write)

bench-quick: $(STAMP) ## the same figures once, in about a minute
	@$(BIN)/python -m benchmarks --quick $(if $(WRITE),--write)

bench-peers: $(STAMP) .a44/peers/.installed ## Restate, DBOS and Temporal at the same work in the same minutes (npm for Restate); from then on `bench` has the nearest two
	@$(BIN)/python -m benchmarks --only floor kafka rest restate dbos_in_process dbos_queue temporal_in_memory temporal_file

.a44/peers/.installed: benchmarks/peers/install.sh benchmarks/peers/requirements.txt
	@sh benchmarks/peers/install.sh

check: $(STAMP) ## lint, format, types, import contracts, module sizes
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/python -m pytest tests/architecture

format: $(STAMP) ## apply the formatter and the safe fixes
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

lock: $(STAMP) ## write requirements.lock anew from the pyproject files
	@UV_PYTHON_DOWNLOADS=never UV_CACHE_DIR=.venv/.uv-cache $(BIN)/uv pip compile pyproject.toml --group dev \
		--universal --python-version 3.11 --generate-hashes --no-annotate \
		--no-emit-package anthares44-automation --custom-compile-command 'make lock' --quiet -o requirements.lock

clean: ## remove what was built or installed here
	rm -rf .venv .a44 compose/kafka/target .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
