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

test: $(VENV)/.test
	$(PY) -m pytest $(PYTEST_ARGS)

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
