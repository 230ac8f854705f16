# Every target sets up .venv first; constraints.txt holds the versions that the project is tested with.
VENV := .venv
BIN := $(VENV)/bin
PYTHON := python3
# the pins are those of one Python; others take the newest releases that fit
PINS := $(if $(findstring 3.11.,$(shell $(PYTHON) --version)),-c constraints.txt)
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check $(PINS)
SOURCES := src tests tools benchmarks
BENCHMARKS := $(patsubst benchmarks/%/__main__.py,bench-%,$(sort $(wildcard benchmarks/*/__main__.py)))

.PHONY: demo test test-matrix tested lint docs release bench $(BENCHMARKS) clean

demo: $(VENV)/.installed
	$(BIN)/python -m benchmarks.demo

# Two workers with one thread each: more threads than cores make torch slower, not faster.
test: lint tested

# The quick tests with other Pythons, each in a .venv of its own: make test-matrix PYTHONS="python3.10 python3.13".
PYTHONS := python3.10 python3.11 python3.12 python3.13
test-matrix:
	set -e; for python in $(PYTHONS); do \
		$(MAKE) VENV=.venv-$$python PYTHON=$$python tested; \
	done

tested: $(VENV)/.dev-installed
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2

lint: $(VENV)/.dev-installed
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache --no-logo

docs: $(VENV)/.docs-installed
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "The site is build/site/index.html"

# Source, wheel, documentation (beside that of earlier versions, if build/docs has it) and the demo's slim models as files
# with their checksums: `cd build/release && sha256sum -c SHA256SUMS`. A second start continues the demo.
release: docs
	rm -rf build/release
	$(BIN)/python -m build --no-isolation --outdir build/release
	$(BIN)/python -m tools.docs.versions build/site build/docs
	tar -czf build/release/cafenet-docs.tar.gz -C build docs
	$(BIN)/cafenet run demo --output build/demo --quiet
	$(BIN)/python -m tools.release.models build/demo build/release
	cd build/release && sha256sum -- *.whl *.tar.gz > SHA256SUMS
	@echo "The release is in build/release"

bench: $(BENCHMARKS)

# `make bench-zoo` measures benchmarks/zoo, and so on; some need the tools that CafeNet is compared with.
bench-peers bench-reliability bench-zoo: $(VENV)/.peers-installed

$(BENCHMARKS): bench-%: $(VENV)/.dev-installed
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.$*

$(VENV)/.installed: pyproject.toml constraints.txt
	@echo "Installing cafenet into $(VENV) (the first time this downloads torch)"
	$(PYTHON) -m venv $(VENV)
	$(PIP_INSTALL) -e .
	@touch $@

$(VENV)/.dev-installed: $(VENV)/.installed
	@echo "Installing the development tools into $(VENV)"
	$(PIP_INSTALL) -e '.[dev]'
	@touch $@

$(VENV)/.peers-installed: $(VENV)/.dev-installed
	@echo "Installing the peers that the benchmarks compare with into $(VENV)"
	$(PIP_INSTALL) -e '.[dev,peers]'
	@touch $@

$(VENV)/.docs-installed: $(VENV)/.dev-installed
	@echo "Installing what builds the documentation into $(VENV)"
	$(PIP_INSTALL) -e '.[dev,docs]'
	@touch $@

clean:
	rm -rf $(VENV) .venv-* build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis src/*.egg-info
	find $(SOURCES) -name __pycache__ -type d -prune -exec rm -rf {} +
