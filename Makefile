# Every target needs Python 3.11+ and make; the rest is fetched into .venv and the user's cache.
BIN := .venv/bin
CODE := dagwright worker.py starter.py examples benchmarks apps/maritime/dagwright_maritime apps/onboarding/dagwright_onboarding scripts/format_markdown.py scripts/reference tests
# Options of the test targets: files, folders or tests to run, and their timeout in minutes.
PATHS ?= tests
MINUTES ?= 75
# A broken link, or a page that the navigation omits, is an error.
SITE := NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build
RUN_TESTS := $(BIN)/python scripts/run_tests.py --minutes $(MINUTES)

# Tests start hundreds of processes; without bytecode each would compile every module that it imports.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup demo demo-ask demo-human demo-intents demo-onboarding demo-maritime recording test test-fast test-all check bench bench-gateway bench-large bench-many bench-peers bench-workers up clean lock lock-servers docs docs-format docs-reference docs-schema search-server search-server-stop screenshots

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "make %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## Make .venv from the hash-locked requirements (a second run does nothing)
	@scripts/setup

demo: setup ## Run an order on a real Temporal server, kill it in the middle, and run it again
	@$(BIN)/python -m examples.order_demo

demo-ask: setup ## Plan, run and answer a request in words; without OPENAI_API_KEY, a script replaces the model
	@$(BIN)/python -m examples.ask_demo

demo-human: setup ## Run a plan that asks two people; answer from a second terminal
	@echo "answer in a second terminal in this folder, after: . $(BIN)/activate"
	@$(BIN)/dagwright run examples/people/publish.yaml --keep-server

demo-intents: setup ## Onboard a fund in six steps; a second run changes nothing
	@$(BIN)/python -m examples.onboarding_demo

demo-onboarding: export DAGWRIGHT_STATE_DIR := .dagwright/demo-onboarding
demo-onboarding: setup ## Onboard a fund whose director could be two people; answer from a second terminal
	@echo "answer in a second terminal in this folder, after: . $(BIN)/activate; export DAGWRIGHT_STATE_DIR=$$DAGWRIGHT_STATE_DIR"
	@$(BIN)/dagwright entities load examples/onboarding/parties.csv
	@$(BIN)/python -m examples.director_demo

demo-maritime: setup ## Compare two carriers in rounds on a real search server; without OPENAI_API_KEY, a script replaces the model
	@$(BIN)/python -m examples.maritime_demo

test: setup ## Run the tests that need only Python, make and a Temporal server, without slow tests
	@$(RUN_TESTS) $(PATHS)

test-fast: setup ## Run the tests that need no server
	@$(RUN_TESTS) --stages fast $(PATHS)

test-all: setup ## Install the requirements of the remaining tests, and run all tests
	@$(RUN_TESTS) --stages fast,server,alone,slow,slow-alone,foreign $(PATHS)

check: setup ## Check format, lint rules, prose, names, types, import contracts, published schemas, generated pages, Markdown, the site
	@$(BIN)/ruff format --check --quiet . || { echo "run: $(BIN)/ruff format ."; exit 1; }
	@$(BIN)/ruff check --quiet .
	@$(BIN)/oxlint --format unix dagwright/interfaces/console/js
	@$(BIN)/python scripts/check_prose.py
	@$(BIN)/python -m scripts.check_names
	@$(BIN)/python scripts/check_types.py $(CODE)
	@$(BIN)/lint-imports
	@$(BIN)/python -m dagwright.plans.schema --check
	@$(BIN)/python -m dagwright.planner --check
	@$(BIN)/python -m dagwright_onboarding --check
	@$(BIN)/python -m scripts.reference --check
	@$(BIN)/python scripts/format_markdown.py --check
	@$(BIN)/rumdl check --quiet .
	@$(SITE)

docs: setup ## Build the site of the documentation in build/site; `.venv/bin/mkdocs serve` shows it while you write
	@$(SITE)

docs-reference: setup ## Write the generated parts of the documentation again
	@$(BIN)/python -m scripts.reference

docs-format: setup ## Format the Markdown of the documentation: one sentence per line
	@$(BIN)/python scripts/format_markdown.py

docs-schema: setup ## Update the JSON Schemas and the catalogue of verbs in docs
	@$(BIN)/python -m dagwright.plans.schema
	@$(BIN)/python -m dagwright.planner
	@$(BIN)/python -m dagwright_onboarding

recording: setup ## Record the demo as docs/run.svg
	@$(BIN)/python scripts/record_demo.py

screenshots: setup ## Update the screenshots of the console (needs Chromium)
	@$(BIN)/python -m tests.support.screenshots

bench: setup ## Compare the engine with hand-written workflows
	@$(BIN)/python -m benchmarks

bench-gateway: setup ## Measure the gateway: a thousand streams, 200 concurrent starts, streamed answers
	@$(BIN)/python -m benchmarks --set gateway

bench-large: setup ## Run the benchmarks that take many minutes: a million nodes, a run that continues as new, a map of 100,000 items
	@$(BIN)/python -m benchmarks --set large

bench-many: setup ## Measure 200 and 1,000 runs at once, 10,000 waiting runs, and lists of them
	@$(BIN)/python -m benchmarks.many_runs
	@$(BIN)/python -m benchmarks --set lists

bench-peers: setup ## Compare the same graphs on LangGraph and DBOS, each in an environment of its own
	@$(BIN)/python -m benchmarks.peers

bench-workers: setup ## Run 2, 4 and 8 workers, and separate roles, on one server with PostgreSQL, and kill some (Linux; needs PostgreSQL and Go)
	@$(BIN)/python -m benchmarks.workers

up: setup ## Start a Temporal server and a worker, which run until `dagwright down`
	@$(BIN)/dagwright up

search-server: setup ## Start an OpenSearch server and print its address; the first start builds it with Java 17 and Maven
	@$(BIN)/python -m dagwright_maritime.search up

search-server-stop: setup ## Stop the OpenSearch server
	@$(BIN)/python -m dagwright_maritime.search down

clean: ## Remove the files of the other targets; runs in .dagwright stay
	@rm -rf .venv build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	@find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +

# The extra `all` refers to the other extras through the distribution itself, which must not be locked.
EXTRAS := $(addprefix --extra ,gateway jinja mcp openai otel postgres s3 uvloop)
PIP_COMPILE := CUSTOM_COMPILE_COMMAND="make lock" $(BIN)/pip-compile --quiet --generate-hashes --allow-unsafe \
	--no-emit-index-url --no-emit-find-links --no-emit-trusted-host --strip-extras

lock: setup ## Write requirements/*.txt again from pyproject.toml and requirements/*.in
	@$(PIP_COMPILE) --output-file requirements/base.txt pyproject.toml
	@$(PIP_COMPILE) $(EXTRAS) --output-file requirements/apps.txt pyproject.toml requirements/apps.in
	@$(PIP_COMPILE) $(EXTRAS) --output-file requirements/dev.txt pyproject.toml requirements/dev.in
	@$(PIP_COMPILE) --output-file requirements/build.txt requirements/build.in
	@$(PIP_COMPILE) --output-file requirements/litellm.txt requirements/litellm.in
	@for name in langgraph dbos; do \
		$(PIP_COMPILE) --output-file benchmarks/peers/$$name.txt benchmarks/peers/$$name.in || exit 1; \
	done

lock-servers: setup ## Update the locks of the packages that tests run against (needs npm)
	@for name in mcp_servers mcp_inspector openai_client; do \
		(cd tests/support/$$name && npm install --package-lock-only --omit-lockfile-registry-resolved --silent --no-audit --no-fund) || exit 1; \
	done
	@CUSTOM_COMPILE_COMMAND="make lock-servers" $(BIN)/pip-compile --quiet --generate-hashes --allow-unsafe \
		--no-emit-index-url --no-emit-find-links --no-emit-trusted-host --strip-extras \
		--output-file tests/support/mcp_servers/requirements.txt tests/support/mcp_servers/requirements.in
