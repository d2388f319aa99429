# Every target sets up what it needs: a fresh machine has Python 3.11+ with pip, nothing else.
PYTHON ?= python3
VENV := .venv

# How long `make fuzz` takes for each target.
SECONDS ?= 60

BIN := $(VENV)/bin
READY := $(VENV)/.ready

# The version of Kubernetes that the end-to-end tests run on; `make matrix` takes several.
KUBERNETES := $(or $(KUBERNETES),$(STOWPLAN_E2E_KUBERNETES))

VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
IMAGE ?= localhost/stowplan:$(VERSION)
CONTAINER_TOOL ?= docker
KIND_CLUSTER ?= kind

# A program in Go; the Go proxy serves it, and its checksum database vouches for it.
ACTIONLINT := github.com/rhysd/actionlint/cmd/actionlint@v1.7.12

# Compiled modules are kept, even where the environment says otherwise: tests start many processes.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo test test-part search e2e matrix check bench budgets fuzz docs chart image load push release lock clean

help: ## Show this help
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "make %-9s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(READY) ## Run the main job on the embedded recorded cluster
	@$(BIN)/stowplan demo

test: $(READY) ## Run the tests: 4 to 12 minutes of CPU, on all cores
	@$(BIN)/pytest -q --numprocesses auto

search: $(READY) ## Check all examples of properties and state machines: 2 to 6 minutes of CPU
	@$(BIN)/pytest -q --numprocesses auto --hypothesis-profile search -m "hypothesis or search"

test-part: $(READY) ## Run the part that other versions of Python must pass: PYTHON=python3.13 VENV=.venv-3.13
	@$(BIN)/pytest -q --numprocesses auto tests/engine/test_pipeline.py tests/engine/policy/test_compile.py \
		tests/webhook/certificates tests/webhook/test_python.py tests/webhook/test_settings.py \
		tests/webhook/test_reviews_as_the_api_server_sends_them.py

e2e: export STOWPLAN_E2E_KUBERNETES = $(KUBERNETES)
e2e: $(READY) ## Run the tests on a real control plane, KUBERNETES=1.36; needs Go, and builds for minutes once
	@$(BIN)/python -m tests.e2e.build
	@$(BIN)/pytest -q --numprocesses 3 --dist loadfile tests/e2e

matrix: $(READY) ## Run what depends on the API server on KUBERNETES="1.34 1.35 1.36 1.37", one after the other
	@$(BIN)/python -m tests.e2e.matrix $(KUBERNETES)

check: $(READY) ## Run the static checks: format, lint, types, import direction, workflows
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/ruff check --quiet .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/zizmor --offline --pedantic --quiet .github
	@if command -v go >/dev/null; then go run $(ACTIONLINT); else echo "no Go here: actionlint is skipped" >&2; fi

bench: $(READY) ## Print the benchmarks; figures depend on the machine, compare the ratios
	@$(BIN)/python -m tests.bench

budgets: $(READY) ## Check that nothing became slower, by ratios to floors of the same run
	@$(BIN)/python -m tests.bench.budgets

fuzz: $(READY) ## Fuzz for SECONDS each: reviews, policies, expressions; coverage-guided
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --requirement requirements-fuzz.lock
	@for target in reviews policies expressions; do \
		$(BIN)/python -m tests.fuzz $$target --seconds $(SECONDS) || exit 1; done

docs: $(READY) ## Write the pages of docs/ that are made of code, and the schema for editors
	@$(BIN)/python -m tests.docs
	@$(BIN)/python -m tests.policy_docs

chart: $(READY) ## Write what the chart has twice: schema, tables of its README, copies of policies
	@$(BIN)/python -m tests.charts.generated

image: ## Build IMAGE with docker, or with CONTAINER_TOOL=podman
	$(CONTAINER_TOOL) build --tag $(IMAGE)$(PYTHON_IMAGE:%= --build-arg PYTHON_IMAGE=%) .

load: ## Load IMAGE into the kind cluster KIND_CLUSTER
	$(CONTAINER_TOOL) save --output stowplan-image.tar $(IMAGE)
	kind load image-archive stowplan-image.tar --name $(KIND_CLUSTER)
	rm stowplan-image.tar

push: ## Push IMAGE to its registry
	$(CONTAINER_TOOL) push $(IMAGE)

release: ## Build, push and sign IMAGE, with SBOM and provenance: see SECURITY.md
	@case "$(PYTHON_IMAGE)" in *@sha256:*) ;; *) echo "PYTHON_IMAGE names the base image by its digest, such as \
	docker.io/library/python@sha256:...: docker buildx imagetools inspect python:3.11-slim-bookworm" >&2; exit 1;; esac
	docker buildx build --platform linux/amd64,linux/arm64 --build-arg PYTHON_IMAGE=$(PYTHON_IMAGE) \
		--sbom=true --provenance=mode=max --tag $(IMAGE) --push --metadata-file stowplan-image.json .
	cosign sign --yes $(IMAGE)@$$(sed -n 's/.*"containerimage.digest": *"\([^"]*\)".*/\1/p' stowplan-image.json)
	rm stowplan-image.json

lock: $(READY) ## Renew the locks from pyproject.toml
	@$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
		--group dev --upgrade --custom-compile-command "make lock" \
		--output-file requirements.lock pyproject.toml
	@$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
		--group build --upgrade --custom-compile-command "make lock" \
		--output-file requirements-build.lock
	@$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
		--group fuzz --no-deps --upgrade --custom-compile-command "make lock" \
		--output-file requirements-fuzz.lock

clean: ## Remove the virtual environment and caches
	rm -rf $(VENV) .fuzz .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis

$(READY): requirements.lock pyproject.toml
	@echo "setting up $(VENV), once: a minute or two, most of it downloads"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --requirement requirements.lock
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --editable .
	@touch $@
