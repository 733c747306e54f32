# Each command does its own set-up.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

# llama.cpp without what is not used here, which more than halves the time that it takes to build; and without AMX,
# which virtual machines announce and may not have: llama.cpp dies of using it.
LLAMA_FLAGS := -DLLAVA_BUILD=OFF -DLLAMA_BUILD_COMMON=OFF -DLLAMA_BUILD_TOOLS=OFF
ifeq ($(shell uname -m),x86_64)
LLAMA_FLAGS += -DCMAKE_C_FLAGS=-mno-amx-int8 -DCMAKE_CXX_FLAGS=-mno-amx-int8
endif
LLAMA_BUILD := CMAKE_ARGS="$(LLAMA_FLAGS)" CMAKE_BUILD_PARALLEL_LEVEL=$(shell getconf _NPROCESSORS_ONLN)
MODEL := qwen2.5-0.5b-instruct-q4_0
STAND_IN := qwen2.5-coder-0.5b-instruct-q4_k_m

# What the tests need besides Python: a program, and the Debian package that has it.
DEBIAN := promtool=prometheus systemd-analyze=systemd chromium=chromium

# Clients that the tests drive, in an environment of their own, with a Node for those that are written for it.
CLIENTS := .clients
CONFORMANCE := tests/conformance

.PHONY: demo test check properties bench peers clients local accuracy soak-model observe debian clean

$(BIN)/gateway: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q -e .
	@touch $@

$(BIN)/pytest: pyproject.toml $(BIN)/gateway
	$(LLAMA_BUILD) $(BIN)/pip install -q -e '.[dev,local]'
	@touch $@

$(VENV)/.local: pyproject.toml $(BIN)/gateway
	@echo "Building llama-cpp-python from source unless it is there: some minutes, once."
	$(LLAMA_BUILD) $(BIN)/pip install -q -e '.[local]'
	@touch $@

demo: $(BIN)/gateway            ## the published scenarios, beside the published figures
	$(BIN)/gateway figures

# Where they cannot be had, the tests that need them are skipped and say so.
$(CLIENTS)/.python: $(CONFORMANCE)/requirements.txt
	-$(PYTHON) -m venv $(CLIENTS) && $(CLIENTS)/bin/pip install -q -r $< && touch $@

$(CLIENTS)/.node: $(CONFORMANCE)/package-lock.json $(CLIENTS)/.python
	-$(CLIENTS)/bin/npm ci --prefix $(CONFORMANCE) --silent --ignore-scripts --no-audit --no-fund && touch $@

clients: $(CLIENTS)/.node       ## OpenAI's clients and others, unmodified, for tests/conformance

test: $(BIN)/pytest clients debian ## everything that must hold
	$(BIN)/pytest

properties: $(BIN)/pytest       ## what must hold of any history, at random and for longer: many minutes
	HYPOTHESIS_PROFILE=deep $(BIN)/pytest -o timeout=0 tests/core tests/contracts tests/replay tests/model_server/test_scheduler.py

bench: $(BIN)/pytest            ## what the harness costs, beside a bare client loop
	$(BIN)/pip install -q -e '.[bench]'
	$(BIN)/gateway bench overhead

peers:                          ## other proxies, for `gateway bench proxy`
	$(PYTHON) -m venv .peers/venv
	.peers/venv/bin/pip install -q 'litellm[proxy]'
	npm install --silent --prefix .peers @portkey-ai/gateway

soak-model: $(BIN)/pytest       ## a thousand requests to the model server, a tenth of them aborted
	$(BIN)/pytest -s tests/model_server/soak_model.py

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

observe: $(BIN)/gateway debian  ## a gateway under a mixed load, with Prometheus; FOR=60 ends it after a minute
	$(BIN)/python -m gateway.bench.observe $(if $(FOR),--for $(FOR)) $(OPTIONS)

debian:                         ## installs what is missing of it; its services are not started
	@missing=; \
	for each in $(DEBIAN); do command -v $${each%=*} >/dev/null || missing="$$missing $${each#*=}"; done; \
	if [ -z "$$missing" ]; then exit 0; fi; \
	if [ "$$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then \
	  echo "Not installed:$$missing. The tests that need them are skipped; as root on Debian, \`make debian\` installs them." >&2; \
	  exit 0; \
	fi; \
	export DEBIAN_FRONTEND=noninteractive RUNLEVEL=1; \
	apt-get update -qq && apt-get install -qq --no-install-recommends -o DPkg::Lock::Timeout=300 $$missing >/dev/null

clean:
	rm -rf $(VENV) .peers $(CLIENTS) $(CONFORMANCE)/node_modules .pytest_cache .ruff_cache .hypothesis
