# Every target needs Python 3.11+ and make; the rest is fetched into .venv and the user's cache.
PYTHON_BIN := .venv/bin/python
CODE := dagwright workflows activities worker.py starter.py tests

.DEFAULT_GOAL := help
.PHONY: help setup lock

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## Make .venv from the hash-locked requirements (a second run does nothing)
	@scripts/setup

lock: setup ## Write requirements/*.txt anew from requirements/*.in
	@for name in build runtime dev; do \
		CUSTOM_COMPILE_COMMAND="make lock" .venv/bin/pip-compile --quiet --generate-hashes --allow-unsafe \
			--no-emit-index-url --no-emit-find-links --no-emit-trusted-host --strip-extras \
			--output-file requirements/$$name.txt requirements/$$name.in; \
	done
