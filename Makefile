# The one list of commands, for people and for CI. `make` prints it.
#
# Build results and downloads live outside the clone, in POWERCONTEXT_CACHE; `make clean` removes the build results.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help

export POWERCONTEXT_CACHE ?= $(or $(HOME),/tmp)/.cache/powercontext
export CARGO_TARGET_DIR ?= $(POWERCONTEXT_CACHE)/target
# rustup's cargo, where the shell has not been told about it.
export PATH := $(PATH):$(HOME)/.cargo/bin

# The demonstration's input, and what else to hand to the commands: make test TEST_ARGS='-p powercontext-core'.
CONVERSATION ?= docs/examples/conversation.jsonl
RUN_ARGS ?=
DISTRIBUTED_ARGS ?=
TEST_ARGS ?= --workspace
# Sections (sqlite, oceanbase, served, distributed) and --quick: make bench BENCH_ARGS='sqlite --quick'.
BENCH_ARGS ?=
# Scenarios, and --short for those that `make test` runs: make e2e E2E_ARGS='install upgrade'.
E2E_ARGS ?=

.PHONY: help
help: ## Print this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' Makefile

.PHONY: run
run: ## Build, start one server with the deterministic model, and show capture, flush, Memory and search
	@tests/support/deps cargo cc
	@cargo build --package powercontext
	@"$(CARGO_TARGET_DIR)/debug/powercontext" dev demo --conversation "$(CONVERSATION)" $(RUN_ARGS)

.PHONY: distributed
distributed: ## Start an OceanBase kernel and a distributed deployment of seven processes, and show it until Ctrl-C
	@tests/support/deps cargo cc python3
	@cargo build --package powercontext
	@tests/support/distributed "$(CARGO_TARGET_DIR)/debug/powercontext" $(DISTRIBUTED_ARGS)

.PHONY: build
build: ## Build optimised binaries into dist/
	@tests/support/deps cargo cc
	@cargo build --release --package powercontext --package powercontext-operator --features powercontext-operator/jemalloc
	@install -D --target-directory dist "$(CARGO_TARGET_DIR)/release/powercontext" "$(CARGO_TARGET_DIR)/release/powercontext-operator"
	@ln -f dist/powercontext-operator dist/kubectl-powercontext
	@ls -l dist

.PHONY: test
test: ## Run every test, on SQLite and on an OceanBase kernel that it starts and stops
	@tests/support/deps cargo cc python3
	@tests/support/run-tests $(TEST_ARGS)

.PHONY: e2e
e2e: ## Run chart, operator and roles as pods: on KUBECONFIG's cluster, else on kind where Docker is, else on a node of its own (root)
	@tests/support/deps cargo cc python3
	@e2e/run $(E2E_ARGS)

.PHONY: demo-cluster
demo-cluster: ## The same cluster with a sample deployment, left running; prints how to look at it and how to end it
	@tests/support/deps cargo cc python3
	@e2e/run --demo

.PHONY: lint
lint: ## Check format, lints, import direction, generated files, licences
	@tests/support/deps cargo cc
	cargo fmt --all -- --check
	cargo clippy --workspace --all-targets -- -D warnings
	cargo clippy --workspace --test cluster --test chart --test render -- -D warnings
	cargo xtask layers
	cargo xtask gen --check
	@if cargo deny --version >/dev/null 2>&1; then cargo deny check; \
	else echo 'cargo-deny is not installed: licences and advisories (deny.toml) were not checked'; fi

.PHONY: gen
gen: ## Write the generated files again
	@tests/support/deps cargo cc
	cargo xtask gen

.PHONY: bench
bench: ## Measure throughput, latency and size beside what the machine can do (docs/performance.md)
	@tests/support/deps cargo cc python3
	@tests/support/run-bench $(BENCH_ARGS)

.PHONY: clean
clean: ## Remove build results and dist/; downloads stay
	cargo clean
	rm -rf dist
