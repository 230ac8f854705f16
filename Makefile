# Every target sets up .venv first; constraints.txt holds the versions that the project is tested with.
VENV := .venv
BIN := $(VENV)/bin
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
SOURCES := src tests tools benchmarks
BENCHMARKS := $(patsubst benchmarks/%/__main__.py,bench-%,$(sort $(wildcard benchmarks/*/__main__.py)))

.PHONY: demo test lint docs release bench $(BENCHMARKS) clean

demo: $(VENV)/.installed
	$(BIN)/python -m benchmarks.demo

# Two workers with one thread each: more threads than cores make torch slower, not faster.
test: lint
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2

lint: $(VENV)/.dev-installed
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache --no-logo

docs: $(VENV)/.docs-installed
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "The site is build/site/index.html"

# Source, wheel and documentation as files with their checksums: `cd build/release && sha256sum -c SHA256SUMS`.
release: docs
	rm -rf build/release
	$(BIN)/python -m build --no-isolation --outdir build/release
	tar -czf build/release/cafenet-docs.tar.gz -C build site
	cd build/release && sha256sum -- *.whl *.tar.gz > SHA256SUMS
	@echo "The release is in build/release"

bench: $(BENCHMARKS)

# `make bench-zoo` measures benchmarks/zoo, and so on; some need the tools that CafeNet is compared with.
bench-peers bench-reliability bench-zoo: $(VENV)/.peers-installed

$(BENCHMARKS): bench-%: $(VENV)/.dev-installed
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.$*

$(VENV)/.installed: pyproject.toml constraints.txt
	@echo "Installing cafenet into $(VENV) (the first time this downloads torch)"
	python3 -m venv $(VENV)
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
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis src/*.egg-info
	find $(SOURCES) -name __pycache__ -type d -prune -exec rm -rf {} +
