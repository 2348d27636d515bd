# Every target sets up .venv first (scripts/setup.sh); nothing needs activating.
PY := .venv/bin/python

# One thread per process: the tests run in parallel, and idle OpenMP threads that spin cost more than they give.
test test-changed test-system test-both test-slow test-all test-sandbox test-no-sandbox: export OMP_NUM_THREADS := 1

# Of make demo-llm.
SEED := 0

# Whose names the lint checks.
NAMED := gem

# Of make test-changed: `make test-changed SINCE=main` for a branch.
SINCE := HEAD

# Where this is set (many containers do) every process would compile torch, sympy and pytest from source again:
# 35 s of CPU for each worker, and seconds for each `python -m gem` that a test starts.
unexport PYTHONDONTWRITEBYTECODE

# Where programs run, on the backend that GEM_SANDBOX names. Of the suites that go through every id, those ids; of
# the pages, those that are skipped where GEM_SANDBOX is none.
SANDBOXED := tests/contract tests/docs/test_pages.py tests/docs/test_recipes.py tests/envs/code \
	tests/envs/database/test_database.py tests/envs/database/test_database_hostile.py \
	tests/envs/terminal/test_terminal.py tests/golden tests/testing/test_audit_code.py tests/graders/test_code.py \
	tests/tools/test_calls.py tests/tools/test_python_code_tool.py tests/tools/test_shell_tool.py \
	tests/tools/test_tool_env_wrapper.py -k "not (test_every_id or test_golden or test_pages or test_recipes) or code: or db: or terminal: \
	or guides/code or guides/database or guides/programs or guides/sandbox or guides/terminal or guides/worlds \
	or show[build]"

# Whose code starts no program, so that it is the same where none can run.
PROGRAMLESS := $(addprefix --ignore tests/,adapters agents docs/test_check_site.py envs/games envs/kit envs/math \
	envs/seats envs/vision estimators evals graders/test_choice.py graders/test_compare.py graders/test_math.py \
	graders/test_number.py graders/test_stated.py graders/test_text.py hosts project rollout statistics tasks \
	test_codec.py test_parsing.py test_record.py tokens train vector viewer wrappers)

# Two more than there are processors: tests wait for half of their time; a worker costs 12 s of CPU for imports.
WORKERS := $(shell n=$$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2); echo $$((n < 3 ? n + 2 : 4)))

.DEFAULT_GOAL := help
.PHONY: help setup wheels demo demo-llm test test-changed test-system test-both test-slow test-all test-sandbox test-no-sandbox mutants lint check format docs bench clean

help: ## show this
	@sed -n 's/^\([a-z-]*\):[^#]*## /\1|/p' Makefile | while IFS='|' read -r name what; do printf '  make %-12s %s\n' "$$name" "$$what"; done

setup: ## make .venv and install into it; does nothing when it is ready
	@scripts/setup.sh

wheels: ## keep every wheel in wheels/, so that later set-ups need no network
	@scripts/setup.sh wheels

demo: ## train an agent on game:GuessTheNumber, start to finish
	@scripts/setup.sh demo
	$(PY) -m gem train --config examples/configs/demo.toml --overwrite

demo-llm: ## train a pretrained language model (135 million parameters) on the same game
	@scripts/setup.sh demo-llm
	$(PY) -m gem models --fetch smollm2
	$(PY) -m gem train --config examples/configs/demo-llm.toml --seed $(SEED) --overwrite

test: setup ## the fast tests
	$(PY) -m pytest -q --numprocesses $(WORKERS) --dist worksteal

test-changed: setup ## the fast tests of what differs from SINCE (default HEAD), and of what stands on it
	$(PY) scripts/changed_tests.py --since $(SINCE) --numprocesses $(WORKERS) --dist worksteal

test-system: setup ## those that start processes, train a model or go through every id
	$(PY) -m pytest -q -m "system and not slow" --numprocesses $(WORKERS) --dist worksteal

test-both: setup ## the fast and the system tests, in less time than one after the other
	$(PY) -m pytest -q -m "not slow" --numprocesses $(WORKERS) --dist worksteal

test-slow: setup ## the slow tests: every foreign world, every hostile program, training
	$(PY) -m pytest -q -m slow --numprocesses $(WORKERS) --dist worksteal

test-all: setup ## the fast and the system tests on every Python from 3.11 to 3.13 that is found
	$(PY) scripts/test_all.py

# The other tests have run on the backend that is used by default.
test-sandbox: setup ## the tests of the sandbox, and those that run programs on each other backend of it that is here
	$(PY) -m pytest -q -m "not slow" --numprocesses $(WORKERS) --dist worksteal tests/sandbox  # name backends themselves
	@set -e; default=$$($(PY) -m gem sandbox | sed -n '1s/:.*//p'); for backend in userns bwrap-slots landlock; do \
		if [ $$backend = "$$default" ] || ! $(PY) -m gem sandbox --backend $$backend; then continue; fi; \
		GEM_SANDBOX=$$backend $(PY) -m pytest -q -m "not slow" --numprocesses $(WORKERS) --dist worksteal $(SANDBOXED); done

test-no-sandbox: setup ## the fast tests as where no backend of the sandbox works, as on a Mac
	GEM_SANDBOX=none $(PY) -m pytest -q --ignore tests/sandbox $(PROGRAMLESS) --numprocesses $(WORKERS) --dist worksteal

mutants: setup ## change the code in 300 places, one at a time, and list what no test notices
	nice $(PY) scripts/mutants.py

lint: setup ## format, lint, types, layers, names
	$(PY) -m ruff format --check .
	$(PY) -m ruff check .
	$(PY) -m mypy
	$(PY) -c "from importlinter.cli import lint_imports_command; lint_imports_command()"
	$(PY) scripts/check_names.py $(NAMED)

check: lint ## the same, and the docs
	$(PY) scripts/build_site.py
	$(PY) scripts/check_site.py

format: setup ## format the code and mend what lint can mend
	$(PY) -m ruff format .
	$(PY) -m ruff check --fix .

docs: setup ## build the documentation into site/, and look at it in Chromium where that is here
	$(PY) scripts/build_site.py
	$(PY) scripts/check_site.py
	$(PY) scripts/site_pictures.py

bench: setup ## every figure of the README and the log
	@set -e; for module in $(filter-out common endpoint instances,$(notdir $(basename $(wildcard bench/[a-z]*.py)))); do \
		echo "$(PY) -m bench.$$module"; $(PY) -m bench.$$module; done

clean: ## remove what was built; runs/ and wheels/ stay
	rm -rf .venv .venv-* site dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
