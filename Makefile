# make demo   a small measurement against the twin of a cluster, which it starts itself
# make test   all tests
# make lab    the fabric lab: real packets over network namespaces, real agents and exporters; needs root, takes minutes
# make lint   style, types, directions of imports
#
# Each does all of its set-up in .venv; a second call starts at once. PYTHON=… chooses the interpreter.

PYTHON ?= python3
PYTEST_ARGS ?=
DEMO_ARGS ?=

VENV := .venv
PY := $(VENV)/bin/python
PIP := $(PY) -m pip --disable-pip-version-check --quiet
# Versions as of the last change of constraints.txt, the build's own included: hence no build isolation.
INSTALL := $(PIP) install --no-build-isolation --constraint constraints.txt

# An editable install points at this folder: do it again when the folder has moved.
MOVED := $(shell test "$$(cat $(VENV)/.place 2>/dev/null)" = "$$(pwd)" || echo moved)

.PHONY: demo test lab lint clean moved
.DELETE_ON_ERROR:

demo: $(VENV)/.demo
	$(PY) -m pinchpoint demo $(DEMO_ARGS)

# Exit code 5: nothing left to do for one of the two, where only what failed is run again.
# What reads files and numbers, or asks no run how fast it was, runs on every core, the files that take longest first;
# what drives real servers by the clock has the machine to itself.
PLAYED := $(wildcard tests/twin/test_alarm.py tests/twin/test_demo.py tests/twin/test_serve.py tests/twin/test_twin_ports.py)
RUNS := $(addprefix tests/e2e/test_,compare_results.py run_plan.py run_failures.py run_ended.py run_hostile.py run_recomputed.py \
	install.py) tests/drive/test_failures.py
UNTIMED := $(RUNS) $(filter-out $(PLAYED),$(wildcard tests/twin/test_*.py)) tests/report tests/analyse tests/plan tests/record \
	tests/wire tests/test_api.py tests/test_docs.py
TIMED := $(filter-out $(RUNS),$(wildcard tests/e2e/test_*.py tests/drive/test_*.py)) tests/engines tests/lab tests/watch $(PLAYED)

test: $(VENV)/.test
	@failed=0; \
	$(PY) -m pytest -n logical --dist loadfile --no-loadscope-reorder -o cache_dir=.pytest_cache/untimed $(PYTEST_ARGS) $(UNTIMED) \
		|| [ $$? = 5 ] || failed=1; \
	$(PY) -m pytest -o cache_dir=.pytest_cache/timed $(PYTEST_ARGS) $(TIMED) || [ $$? = 5 ] || failed=1; \
	exit $$failed

# As root, and with the daemons of `tests/lab` installed; where namespaces are refused it says so and is skipped.
lab: $(VENV)/.test
	$(PY) -m pytest -m lab -rs -s tests/lab $(PYTEST_ARGS)

lint: $(VENV)/.test
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy
	$(VENV)/bin/lint-imports

clean:
	rm -rf $(VENV) build src/*.egg-info .pytest_cache .mypy_cache .ruff_cache

$(VENV)/.demo: pyproject.toml constraints.txt $(VENV)/.made $(MOVED)
	$(INSTALL) --editable '.[demo]'
	pwd > $(VENV)/.place
	touch $@

$(VENV)/.test: pyproject.toml constraints.txt $(VENV)/.made $(MOVED)
	$(INSTALL) --editable '.[demo,watch,ray,test]'
	pwd > $(VENV)/.place
	touch $@ $(VENV)/.demo

# Debian's Python may come without ensurepip: then the system's pip fills the new environment.
$(VENV)/.made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "pinchpoint needs Python 3.11 or later; say which with: make PYTHON=/path/to/python3"; exit 1; }
	rm -rf $(VENV)
	$(PYTHON) -m venv $(VENV) >/dev/null 2>&1 || { \
		rm -rf $(VENV) && $(PYTHON) -m venv --without-pip $(VENV) \
		&& $(PYTHON) -m pip --disable-pip-version-check --quiet --python $(PY) install pip; } \
		|| { echo "no pip for $(PYTHON); on Debian: apt-get install python3-pip"; exit 1; }
	$(PIP) install --constraint constraints.txt setuptools
	touch $@
