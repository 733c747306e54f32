# Two commands do all the set-up: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test browser check bench clean

$(BIN)/gateway: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q -e .
	@touch $@

$(BIN)/pytest: pyproject.toml $(BIN)/gateway
	$(BIN)/pip install -q -e '.[dev]'
	@touch $@

demo: $(BIN)/gateway            ## the published scenarios, beside the published figures
	$(BIN)/gateway figures

browser:                        ## the browser that the console is tested in: Debian's Chromium
	@command -v chromium >/dev/null || { \
	  command -v apt-get >/dev/null || { echo "The console's tests need chromium: install it, and have it in PATH." >&2; exit 1; }; \
	  [ "$$(id -u)" = 0 ] || command -v sudo >/dev/null || { echo "The console's tests need chromium: as root, apt-get install chromium" >&2; exit 1; }; \
	  echo "installing chromium for the console's tests"; \
	  as_root=$$([ "$$(id -u)" = 0 ] || echo sudo); \
	  $$as_root apt-get update -q >/dev/null; \
	  DEBIAN_FRONTEND=noninteractive $$as_root apt-get install -y -q --no-install-recommends chromium >/dev/null; }

test: $(BIN)/pytest browser     ## everything that must hold
	$(BIN)/pytest

bench: $(BIN)/pytest            ## what the harness costs, beside a bare client loop
	$(BIN)/pip install -q -e '.[bench]'
	$(BIN)/gateway bench overhead

check: $(BIN)/pytest            ## style, types, and the direction of imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/basedpyright
	$(BIN)/lint-imports

clean:
	rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis
