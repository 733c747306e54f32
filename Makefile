# Each command does its own set-up.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

# llama.cpp without what is not used here, which more than halves the time that it takes to build
LLAMA_CMAKE_ARGS ?= -DLLAVA_BUILD=OFF -DLLAMA_BUILD_COMMON=OFF -DLLAMA_BUILD_TOOLS=OFF $(NO_AMX)
# Virtual machines may announce AMX and not have it: llama.cpp dies of using it
NO_AMX := $(shell grep -qsw hypervisor /proc/cpuinfo && grep -qsw amx_int8 /proc/cpuinfo && \
  echo -DCMAKE_C_FLAGS=-mno-amx-int8 -DCMAKE_CXX_FLAGS=-mno-amx-int8)
JOBS ?= $(shell getconf _NPROCESSORS_ONLN)
MODEL := qwen2.5-0.5b-instruct-q4_k_m
STAND_IN := qwen2.5-coder-0.5b-instruct-q4_k_m

.PHONY: demo test check bench local accuracy clean

$(BIN)/gateway: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q -e .
	@touch $@

$(BIN)/pytest: pyproject.toml $(BIN)/gateway
	$(BIN)/pip install -q -e '.[dev]'
	@touch $@

$(VENV)/.local: pyproject.toml $(BIN)/gateway
	@echo "Building llama-cpp-python from source unless it is there: some minutes, once."
	CMAKE_ARGS="$(LLAMA_CMAKE_ARGS)" CMAKE_BUILD_PARALLEL_LEVEL=$(JOBS) $(BIN)/pip install -q -e '.[local]'
	@touch $@

demo: $(BIN)/gateway            ## the published scenarios, beside the published figures
	$(BIN)/gateway figures

test: $(BIN)/pytest             ## everything that must hold
	$(BIN)/pytest

bench: $(BIN)/pytest            ## what the harness costs, beside a bare client loop
	$(BIN)/pip install -q -e '.[bench]'
	$(BIN)/gateway bench overhead

local: $(VENV)/.local           ## a model on this machine: build, fetch, and run the six published tasks
	$(BIN)/model-server fetch $(MODEL) || { \
	  echo "The model of record cannot be had here, so its stand-in is used: the same speed, other answers."; \
	  $(BIN)/model-server fetch $(STAND_IN); }
	$(BIN)/gateway bench six-tasks

accuracy: $(VENV)/.local        ## which quantisation calls tools best, and how fast: many minutes
	$(BIN)/python -m model_server.accuracy

check: $(BIN)/pytest            ## style, types, and the direction of imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/basedpyright
	$(BIN)/lint-imports

clean:
	rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis
