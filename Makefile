# Two commands do all the set-up: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

# How llama-cpp-python is built, once per machine. Without AMX: virtual machines announce it and cannot use it.
LLAMA_FLAGS := -DLLAVA_BUILD=OFF -DLLAMA_BUILD_COMMON=OFF -DLLAMA_BUILD_TOOLS=OFF
ifeq ($(shell uname -m),x86_64)
LLAMA_FLAGS += -DCMAKE_C_FLAGS=-mno-amx-int8 -DCMAKE_CXX_FLAGS=-mno-amx-int8
endif

.PHONY: demo test soak-model check clean

$(BIN)/gateway: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q -e .
	@touch $@

$(BIN)/pytest: pyproject.toml $(BIN)/gateway
	CMAKE_ARGS="$(LLAMA_FLAGS)" $(BIN)/pip install -q -e '.[dev,local]'
	@touch $@

demo: $(BIN)/gateway            ## the published scenarios, beside the published figures
	$(BIN)/gateway figures

test: $(BIN)/pytest             ## everything that must hold
	$(BIN)/pytest

soak-model: $(BIN)/pytest       ## a thousand requests to the model server, a tenth of them aborted
	$(BIN)/pytest -s tests/model_server/soak_model.py

check: $(BIN)/pytest            ## style, types, and the direction of imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/basedpyright
	$(BIN)/lint-imports

clean:
	rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis
