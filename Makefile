# Everything runs in a virtual environment of its own, made from requirements.lock on first use.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Each worker compiles kernels; more of them than cores only makes them wait. A file's are compiled once, by one worker.
# NumPy's threads would wait for more to do in loops, on the cores of the other workers.
WORKERS ?= auto

.PHONY: help demo test mutants lint goldens lock clean

help:
	@echo "make demo    optimize the bundled examples and compare them with the originals in ONNX Runtime"
	@echo "make test    run the tests"
	@echo "make mutants break the program on purpose, one place at a time, and see whether the tests notice (GPU=1: all)"
	@echo "make lint    check style and types"
	@echo "make goldens write anew the plans, sources and pages that tests compare with"
	@echo "make lock    choose dependency versions anew (needs uv)"
	@echo "make clean   remove the environment and what demo and tests leave"

demo: $(VENV)/ready
	$(BIN)/python -m examples.demo

test: $(VENV)/ready
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -q -n $(WORKERS) --dist loadfile

mutants: $(VENV)/ready
	$(BIN)/python -m tests.mutants $(if $(GPU),--gpu)

lint: $(VENV)/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

$(VENV)/ready: requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "$(PYTHON) is older than 3.11; name a newer one: make PYTHON=python3.12 ..."; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

goldens: $(VENV)/ready
	$(BIN)/python -m tests.goldens

lock:
	uv pip compile --no-config --universal --generate-hashes --python-version 3.11 --extra cpu --extra dev \
		--no-header --no-annotate pyproject.toml --output-file requirements.lock

clean:
	rm -rf $(VENV) demo-out dist .pytest_cache .mypy_cache .ruff_cache
