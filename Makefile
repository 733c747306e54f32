# Two commands do all the set-up: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

# How llama-cpp-python is built, once per machine. Without AMX: virtual machines announce it and cannot use it.
LLAMA_FLAGS := -DLLAVA_BUILD=OFF -DLLAMA_BUILD_COMMON=OFF -DLLAMA_BUILD_TOOLS=OFF
ifeq ($(shell uname -m),x86_64)
LLAMA_FLAGS += -DCMAKE_C_FLAGS=-mno-amx-int8 -DCMAKE_CXX_FLAGS=-mno-amx-int8
endif

# What the tests need besides Python: a program, and the Debian package that has it.
DEBIAN := promtool=prometheus systemd-analyze=systemd chromium=chromium

.PHONY: demo test soak-model check bench peers observe debian clean

$(BIN)/gateway: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q -e .
	@touch $@

$(BIN)/pytest: pyproject.toml $(BIN)/gateway
	CMAKE_ARGS="$(LLAMA_FLAGS)" $(BIN)/pip install -q -e '.[dev,local]'
	@touch $@

demo: $(BIN)/gateway            ## the published scenarios, beside the published figures
	$(BIN)/gateway figures

test: $(BIN)/pytest debian      ## everything that must hold
	$(BIN)/pytest

bench: $(BIN)/pytest            ## what the harness costs, beside a bare client loop
	$(BIN)/pip install -q -e '.[bench]'
	$(BIN)/gateway bench overhead

peers:                          ## other proxies, for `gateway bench proxy`
	$(PYTHON) -m venv .peers/venv
	.peers/venv/bin/pip install -q 'litellm[proxy]'
	npm install --silent --prefix .peers @portkey-ai/gateway

soak-model: $(BIN)/pytest       ## a thousand requests to the model server, a tenth of them aborted
	$(BIN)/pytest -s tests/model_server/soak_model.py

check: $(BIN)/pytest            ## style, types, and the direction of imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/basedpyright
	$(BIN)/lint-imports

observe: $(BIN)/gateway debian  ## a gateway under a mixed load, with Prometheus; FOR=60 ends it after a minute
	$(BIN)/python -m gateway.bench.observe $(if $(FOR),--for $(FOR))

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
	rm -rf $(VENV) .peers .pytest_cache .ruff_cache .hypothesis
