# Needs make and Python 3.11 or newer; everything else is installed into .venv, also a Java if there is none.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.DEFAULT_GOAL := help
.PHONY: archive bench bench-quick changelog demo docs faults help lint live-pictures nexmark notebooks packages pictures rooms servers setup soak test test-beam test-connectors test-install test-spark

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1	\2/p' $(MAKEFILE_LIST)

setup: $(STAMP) ## make .venv and install into it; the other targets do this by themselves
	@$(BIN)/python -m beamlike.spark.session.java 2>/dev/null || \
	{ echo "No Java 17 or newer here: installing one into $(VENV)"; $(PIP_INSTALL) -e '.[dev,java]' && \
	$(BIN)/python -m beamlike.spark.session.java; }

archive: setup ## make the archive of Spark's classes if there is none, with which Spark starts faster
	@$(BIN)/python -m beamlike java --archive >/dev/null || true

demo: setup ## one million events through the flagship example, on Spark, and the examples of keyed state and timers
	$(BIN)/python -m examples.demo $(ARGS)
	$(BIN)/python -m examples.silence
	$(BIN)/python -m examples.carts
	$(BIN)/python -m examples.throttle

pictures: demo ## run the demo and take its pictures into docs/pictures, where README.md shows them
	cp build/demo/*.svg docs/pictures/

packages: setup ## what a cluster needs beside Spark, into build/packages: the code as a zip file, and its packages (docs/deploy.md)
	PYTHON=$(abspath $(BIN))/python docs/deploy/packages.sh build/packages $(CURDIR)

rooms: setup ## draw who imports whom, and runs that move, into docs/pictures
	$(BIN)/python -m tests.docs.rooms
	$(BIN)/python -m tests.docs.moving

live-pictures: setup ## take the pictures of docs/live.md in the browser of this machine
	$(BIN)/python -m tests.docs.live

notebooks: setup ## execute examples/notebooks into pages below build/notebooks, and draw the pictures of docs/notebook.md
	$(BIN)/python -m tests.docs.notebooks

docs: setup ## build the documentation site into build/site/html; a warning is an error
	$(BIN)/python -m tests.docs.site

test: archive ## run the tests; ARGS="-m 'not spark'" leaves out those that start Spark, ARGS='-m slow' runs the rest
	$(BIN)/python -m pytest -n 2 --dist worksteal $(ARGS)

servers: setup ## get the servers and jars that the tests of connectors start; says what could not be had
	$(BIN)/python -m tests.connectors

test-connectors: servers ## tests against real servers: Kafka, Redis, PostgreSQL, an object store, a cluster of Spark
	$(BIN)/python -m pytest -m "connectors or not slow" tests/connectors tests/beamlike/io/sql $(ARGS)

test-install: setup ## build the package and check it in empty environments, on each Python and with the lowest versions; ARGS=--quick
	$(BIN)/python -m tests.install $(ARGS)

test-spark: setup ## tests on other versions of Spark, each in an environment of its own; VERSIONS="3.5 4.1", ARGS=--quick
	$(BIN)/python -m tests.versions $(VERSIONS) $(ARGS)

test-beam: setup ## Beam's own test suites on BeamlikeRunner, in an environment of its own; ARGS=userstate runs some of them, ARGS=--spark those of Spark
	$(BIN)/python -m tests.beam $(ARGS)

faults: setup ## runs on Spark die 30 times, executors are killed, tasks have copies; ARGS="--kills 50 --seed 7", or ARGS="--runner local --kills 100" in process
	$(BIN)/python -m tests.faults $(ARGS)

soak: setup ## half an hour of generated input on Spark: nothing grows, nothing is lost; ARGS="--minutes 2" or "--hours 8" of a simulated clock
	$(BIN)/python -m tests.soak $(ARGS)

nexmark: setup ## the queries of Nexmark on ten million events, both runners, compared with DuckDB; ARGS="--events 100_000"
	$(BIN)/python -m benchmarks.nexmark.verify $(ARGS)

changelog: setup ## move the fragments of changelog.d into CHANGELOG.md; VERSION=0.2.0
	$(BIN)/towncrier build --yes --version $(VERSION)

lint: setup ## check style, types, imports between rooms, and subjects of commits
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m tests.typing.code_of_docs
	$(BIN)/basedpyright --project tests/typing/pyrightconfig.json
	$(BIN)/lint-imports --no-cache
	$(BIN)/python -m tests.docs.subjects

bench: setup ## measure all figures of benchmarks/README.md that are not of this commit, and write the page; some hours, a stopped run continues; ARGS="--only latency,cores"
	$(BIN)/python -m benchmarks.bench $(ARGS)

bench-quick: setup ## ratios to plain polars and PySpark in ten minutes, compared with those of the last commits
	$(BIN)/python -m benchmarks.quick $(ARGS)

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	{ echo "Python 3.11 or newer is needed, and $(PYTHON) is not: try make PYTHON=python3.12"; exit 1; }
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv $(VENV) || \
	{ echo "$(PYTHON) cannot make a virtual environment (on Debian and Ubuntu: apt install python3-venv)"; exit 1; }
	@echo "Installing into $(VENV); Spark is a large download"
	@$(PIP_INSTALL) -e '.[dev]'
	@touch $@
