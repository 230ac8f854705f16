# Every target sets up .venv first; constraints.txt holds the versions that the project is tested with.
VENV := .venv
BIN := $(VENV)/bin
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
SOURCES := src tests tools $(wildcard benchmarks)

.PHONY: demo test lint docs bench bench-zoo bench-pricing bench-efficiency bench-pretrained bench-search bench-kernels bench-ranking bench-ablations bench-peers bench-reliability bench-startup clean

demo: $(VENV)/.installed
	$(BIN)/cafenet run demo --output runs/demo

# Two workers with one thread each: more threads than cores make torch slower, not faster.
test: lint
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2

lint: $(VENV)/.dev-installed
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/mypy

docs: $(VENV)/.docs-installed
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "The site is build/site/index.html"

bench: bench-zoo bench-pricing bench-efficiency bench-pretrained bench-search bench-kernels bench-ranking bench-ablations bench-peers bench-reliability bench-startup

bench-zoo: $(VENV)/.peers-installed
	$(BIN)/python benchmarks/zoo.py

bench-pricing: $(VENV)/.dev-installed
	$(BIN)/python benchmarks/pricing.py

bench-efficiency: $(VENV)/.dev-installed
	$(BIN)/python benchmarks/efficiency.py

bench-pretrained: $(VENV)/.dev-installed
	$(BIN)/python benchmarks/pretrained_start.py

bench-search: $(VENV)/.dev-installed
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/search.py

bench-kernels: $(VENV)/.dev-installed
	$(BIN)/python -m benchmarks.kernels

bench-ranking: $(VENV)/.dev-installed
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.ranking

bench-ablations: $(VENV)/.dev-installed
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.ablations

bench-peers: $(VENV)/.peers-installed
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.peers

bench-reliability: $(VENV)/.peers-installed
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.reliability

bench-startup: $(VENV)/.dev-installed
	$(BIN)/python -m benchmarks.startup

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
	find src tests $(wildcard benchmarks) -name __pycache__ -type d -prune -exec rm -rf {} +
