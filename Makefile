# Two commands do all the set-up: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test check bench peers clean

$(BIN)/gateway: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q -e .
	@touch $@

$(BIN)/pytest: pyproject.toml $(BIN)/gateway
	$(BIN)/pip install -q -e '.[dev]'
	@touch $@

demo: $(BIN)/gateway            ## the published scenarios, beside the published figures
	$(BIN)/gateway figures

test: $(BIN)/pytest             ## everything that must hold
	$(BIN)/pytest

bench: $(BIN)/pytest            ## what the harness costs, beside a bare client loop
	$(BIN)/pip install -q -e '.[bench]'
	$(BIN)/gateway bench overhead

peers:                          ## other proxies, for `gateway bench proxy`
	$(PYTHON) -m venv .peers/venv
	.peers/venv/bin/pip install -q 'litellm[proxy]'
	npm install --silent --prefix .peers @portkey-ai/gateway

check: $(BIN)/pytest            ## style, types, and the direction of imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/basedpyright
	$(BIN)/lint-imports

clean:
	rm -rf $(VENV) .peers .pytest_cache .ruff_cache .hypothesis
