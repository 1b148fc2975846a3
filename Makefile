# make demo | test | test-fast | fuzz | lint | docs | up | down. Needs Python 3.11 to 3.13 and make; everything else goes to .venv.
PYTHON ?= $(shell command -v python3.11 || command -v python3.12 || command -v python3.13 || echo python3)
BIN := .venv/bin
export UV_FIND_LINKS ?= $(PIP_FIND_LINKS)
export UV_COMPILE_BYTECODE := 1
export GX_ANALYTICS_ENABLED := False
export DVC_NO_ANALYTICS := 1
export HF_HUB_DISABLE_TELEMETRY := 1

export OMP_WAIT_POLICY ?= PASSIVE

.PHONY: help setup demo test test-fast core-test install-test fuzz lint docs up down cluster-up cluster-down cluster-test lock constraints clean

help:
	@echo "make demo    one release by the Airflow DAG, in process, on invented sample data"
	@echo "             another method: make demo METHOD=invisible_ink; images: make demo IMAGES=yes;"
	@echo "             texts with columns: make demo WITH_COLUMNS=yes"
	@echo "             own data: make demo DATA=file.jsonl.gz LABELS='A,B' [DOCUMENT='a support ticket' TEXT= LABEL= UNIT= TEST= TEXTS= EPSILON=]"
	@echo "make up      Airflow on 127.0.0.1:8080 and MLflow on 127.0.0.1:5000; make down ends both"
	@echo "make cluster-up  Airflow with two Celery workers that share no folder; make cluster-down ends it"
	@echo "make test    the whole suite, the same at every run"
	@echo "make test-fast  tests/unit alone: no process, no Airflow, no DVC"
	@echo "make core-test  the wheel without extras, in an environment of its own"
	@echo "make install-test  the wheel with the newest, the oldest and every older Airflow, in environments of their own"
	@echo "make cluster-test  a release on two workers, one of which dies; needs PostgreSQL and redis-server"
	@echo "make fuzz    its property tests on new random examples"
	@echo "make lint    ruff, names and phrases by STYLE.md, sizes by tools/ceilings.toml, and mypy"
	@echo "make docs    the documentation as pages, in site/"

setup: .venv/.installed

.venv/.installed: requirements.lock pyproject.toml
	@echo "setting up .venv (once)"
	@$(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	@$(BIN)/uv pip install --quiet --python $(BIN)/python -r requirements.lock
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation -e .
	@$(BIN)/privsyn models fetch smollm2 || true
	@touch $@

demo: setup
	@METHOD='$(METHOD)' DATA='$(DATA)' LABELS='$(LABELS)' TEXT='$(TEXT)' LABEL='$(LABEL)' UNIT='$(UNIT)' \
		DOCUMENT='$(DOCUMENT)' TEST='$(TEST)' TEXTS='$(TEXTS)' EPSILON='$(EPSILON)' IMAGES='$(IMAGES)' \
		WITH_COLUMNS='$(WITH_COLUMNS)' $(BIN)/python -m tools.local.demo $(ARGS)

test-fast: setup
	@$(BIN)/python -m pytest -q -n 2 --dist worksteal --benchmark-disable tests/unit $(ARGS)

test: setup
	@$(BIN)/python -m pytest -q -n 2 --dist loadfile --no-loadscope-reorder --benchmark-disable --ignore tests/system/cluster --ignore tests/system/install $(ARGS)

# PRIVSYN_INSTALL_PYTHON=python3.13 takes another Python. ARGS='-k newest' takes one environment.
install-test: setup
	@$(BIN)/python -m pytest -q tests/system/install/test_install.py $(ARGS)

# A minute: the wheel without extras.
core-test: setup
	@$(BIN)/python -m pytest -q tests/system/install/test_core.py $(ARGS)

# Some ten minutes, so by itself. Needs PRIVSYN_TEST_POSTGRES_URL, and redis-server on the path.
cluster-test: setup
	@$(BIN)/python -m pytest -q tests/system/cluster $(ARGS)

# What it finds becomes an @example of its test.
fuzz: setup
	@$(BIN)/python -m pytest -q -n 2 --dist loadfile -m hypothesis --hypothesis-profile fuzz $(ARGS)

lint: setup
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/python tools/style.py
	@$(BIN)/python tools/ceilings.py
	@$(BIN)/mypy

docs: setup
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "open site/index.html, or serve it: $(BIN)/python -m http.server -b 127.0.0.1 -d site"

up: setup
	@$(BIN)/python -m tools.local.services up

down: setup
	@$(BIN)/python -m tools.local.services down

cluster-up: setup
	@$(BIN)/python -m tools.local.cluster up

cluster-down: setup
	@$(BIN)/python -m tools.local.cluster down

# torch goes in without its build and without CUDA's packages: the installer adds what the build
# it finds (CPU or CUDA) asks for, so that one lock serves both. privsyn/constraints/ are the same
# versions for users, a file per version of Airflow and Python; the wheel carries them.
ANY_BUILD := sed -e 's/^\(torch==[0-9.]*\)+.*/\1/' -e '/^nvidia-/d' -e '/^cuda-/d' -e '/^triton==/d'
lock: setup
	@$(BIN)/uv pip compile --quiet --no-header --no-annotate --python-version 3.11 --extra all --group dev \
		--constraint constraints.txt pyproject.toml | $(ANY_BUILD) > requirements.lock.new
	@mv requirements.lock.new requirements.lock
	@$(MAKE) --no-print-directory constraints

# Older versions of Airflow, and what of the lock they or their pins do not take.
OLDER := 3.1.8 3.2.2
NOT_OLDER := /^\(apache-airflow\|universal-pathlib\|aiosqlite\|fastapi\|cadwyn\|starlette\)/d
constraints: setup
	@rm -f privsyn/constraints/*.txt
	@lock=$$(mktemp); newest=$$(sed -n 's/^apache-airflow==//p' requirements.lock); \
	for airflow in $(OLDER) $$newest; do \
		if [ $$airflow = $$newest ]; then cp requirements.lock $$lock; else \
			sed '$(NOT_OLDER)' requirements.lock > $$lock; \
			echo apache-airflow==$$airflow >> $$lock; \
		fi; \
		for python in 3.11 3.12 3.13; do \
			$(BIN)/uv pip compile --quiet --no-header --no-annotate --python-version $$python --extra all \
				--constraint $$lock pyproject.toml | $(ANY_BUILD) \
				> privsyn/constraints/airflow-$$airflow-python$$python.txt || exit 1; \
		done; \
	done; rm $$lock

clean:
	@rm -rf .venv .airflow build site *.egg-info
