# `make` lists the targets. Everything is installed into .venv from the pinned, hashed lists in requirements/.

PYTHON ?= python3
# What `make test ARGS="tests/unit -k journal"`, `make bench ARGS=…` and `make run ARGS=…` pass on.
ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps
UV := uv==0.13.8
LOCKED := requirements/dev.lock requirements/data.lock
SPECS := /usr/share/amqp/specs

.DEFAULT_GOAL := help
.PHONY: help setup lake run test lint format bench soak lock docs clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(VENV)/.ready ## install everything but Spark into .venv (about a minute the first time)
	@echo "EscrowMQ is installed in $(VENV). Next: make run, or $(BIN)/escrowmq serve --data-dir data"

$(VENV)/.python:
	@command -v "$(PYTHON)" >/dev/null \
	  || { echo "$(PYTHON) was not found; say which Python with: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "EscrowMQ needs Python 3.11 or newer; say which with: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) \
	  || { echo "python3 cannot make virtual environments here; on Debian and Ubuntu: apt-get install python3-venv" >&2; exit 1; }
	@touch $@

# Wheels only, so that no compiler is ever needed. The data set and PySpark are published as sdists without any code to
# compile. Spark, some 900 MB, is installed by what needs it: a broker alone does without.
$(VENV)/.ready: $(VENV)/.python pyproject.toml $(LOCKED)
	@echo "Installing into $(VENV) …"
	@$(INSTALL) --require-hashes --only-binary :all: -r requirements/dev.lock
	@$(INSTALL) --require-hashes --no-build-isolation -r requirements/data.lock
	@$(INSTALL) --no-build-isolation --editable .
	@touch $@

$(VENV)/.spark: $(VENV)/.ready requirements/spark.lock
	@echo "Installing Spark into $(VENV), which takes another minute or two …"
	@$(INSTALL) --require-hashes --only-binary :all: --no-binary pyspark --no-build-isolation -r requirements/spark.lock
	@touch $@

# Delta and Iceberg are made for older Sparks than ours, so they have one of their own, in a folder of .venv that counts
# only for processes whose PYTHONPATH names it.
$(VENV)/.lake: $(VENV)/.spark requirements/lake.lock requirements/lake.jars
	@echo "Installing another Spark, Delta and Iceberg into $(VENV)/lake …"
	@rm -rf $(VENV)/lake
	@$(INSTALL) --require-hashes --only-binary :all: --no-binary pyspark --no-build-isolation --target $(VENV)/lake \
	  -r requirements/lake.lock
	@$(BIN)/python -m tools.lake $(VENV)/lake
	@touch $@

# The tests start Spark some fifty times.
$(VENV)/.archive: $(VENV)/.spark src/escrowmq/pipeline/archive.py
	@echo "Having Spark's Java keep its classes as they are loaded, which saves more than it takes …"
	@$(BIN)/python -m escrowmq.pipeline.archive || echo "The tests start Spark without it."
	@touch $@

lake: $(VENV)/.lake ## install what the tests of `audit --format delta` and `iceberg` need (500 MB); without, they are skipped

run: $(VENV)/.spark ## stream 336,776 events through broker and Spark, kill both in the middle, count, audit
	@exec $(BIN)/python -u -m escrowmq.demo --out build/run $(ARGS)

test: $(VENV)/.archive ## run the tests, long ones in their short form
	$(BIN)/python -m pytest -n auto --maxprocesses 4 --dist loadgroup $(ARGS)

lint: $(VENV)/.spark ## check style, types, generated files
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy src tests tools bench
	@if [ -d $(SPECS) ]; then echo "tools/gen_amqp.py --check"; $(BIN)/python tools/gen_amqp.py --check; \
	 else echo "generated AMQP code not compared: Debian's package amqp-specs is not installed"; fi
	$(BIN)/python -m tools.guarantees --check
	$(BIN)/python -m tools.configuration --check
	$(BIN)/python -m tools.commands --check
	$(BIN)/python -m tools.figures --check

format: $(VENV)/.ready ## let ruff put the sources in form
	$(BIN)/ruff check --fix-only --quiet .
	$(BIN)/ruff format .

docs: $(VENV)/.ready ## write the generated pages: guarantees, configuration, commands, the figures of pages
	$(BIN)/python -m tools.guarantees
	$(BIN)/python -m tools.configuration
	$(BIN)/python -m tools.commands
	$(BIN)/python -m tools.branches
	$(BIN)/python -m tools.figures

bench: $(VENV)/.spark ## measure against RabbitMQ side by side, write bench/results/latest.json
	@exec $(BIN)/python -u bench/run.py $(ARGS)

soak: $(VENV)/.spark ## run the long forms of the long tests
	HYPOTHESIS_PROFILE=soak $(BIN)/python -m pytest -m soak -n 0 --timeout 0 $(ARGS)

lock: $(VENV)/.python ## pin the newest versions that pyproject.toml allows
	@$(PYTHON) -m venv build/lock && build/lock/bin/python -m pip install --quiet $(UV)
	build/lock/bin/uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes --no-annotate \
	  --custom-compile-command "make lock" --group dev pyproject.toml -o requirements/dev.lock
	build/lock/bin/uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes --no-annotate \
	  --custom-compile-command "make lock" --no-deps --group pyproject.toml:data -o requirements/data.lock
	build/lock/bin/uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes --no-annotate \
	  --custom-compile-command "make lock" -c requirements/dev.lock --group pyproject.toml:spark -o requirements/spark.lock
	build/lock/bin/uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes --no-annotate \
	  --custom-compile-command "make lock" --group pyproject.toml:lake -o requirements/lake.lock
	@rm -rf build/lock

clean: ## remove what was installed and generated
	rm -rf $(VENV) build dist bench/data tests/interop/node/node_modules .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find src tests tools bench -name __pycache__ -type d -prune -exec rm -rf {} +
