# From a bare clone: "make demo" measures, "make test" proves. Nothing is done twice.
.DEFAULT_GOAL := help
.NOTPARALLEL:
SHELL := /bin/bash

PYTHON_BIN := .venv/bin/python
DISKPROOF := .venv/bin/diskproof
SECTION = @printf '\n== %s ==\n'
# The tests start hundreds of interpreters: none compiles again what the one before it compiled.
unexport PYTHONDONTWRITEBYTECODE
# A shell has what it starts with "&" ignore Ctrl-C.
BESIDE := env --default-signal=INT
# From nothing: pip keeps one processor busy, and cargo has the others meanwhile; what fails here fails again below.
EARLY_NATIVES := [ -e .venv ] || $(BESIDE) --chdir=native ../setup/cargo build --quiet --release --locked >/dev/null 2>&1 &
BUILD_INPUTS := pyproject.toml src/diskproof/__init__.py setup/venv

.PHONY: help
help: ## list the targets
	@sed -nE 's/^([a-z%-]+):.*## (.*)$$/\1\t\2/p' Makefile | sed 's/%/NAME/' | expand -t 16

.PHONY: demo
demo: setup guest-cached ## which cache mode is fast here, and which keep the data: a table and a page
	$(SECTION) 'demo: measure, then judge'
	@status=0; $(DISKPROOF) run studies/quick.toml || status=$$?; \
	[ $$status -le 1 ] || exit $$status; \
	$(DISKPROOF) report -o diskproof-quick.html || exit $$?; \
	printf '\nThe page is here: file://%s/diskproof-quick.html\n' "$$PWD"; \
	[ $$status -eq 0 ] || printf '%s\n' 'Error 1: not every answer is there; above are what failed, and what was only kept so far.'; \
	exit $$status

# In the order of tests/conftest.py, by files as in tests/support/spreading.py; more workers than
# processors, for most tests wait.
BY_FILE := --dist loadfile --no-loadscope-reorder
HEAVY := $(addprefix --ignore=tests/,integration vm e2e install)

.PHONY: test
test: setup-test suites-tools lint test-native guest-cached ## everything that must hold: lint, types, all tests
	@status=0; \
	suite() { printf '\n== %s ==\n' "$$1"; shift; $(PYTHON_BIN) -m pytest "$$@" || status=1; }; \
	suite 'unit tests' tests -n 3 --dist worksteal $(HEAVY); \
	suite 'integration, guest and end-to-end tests' $(addprefix tests/,integration vm e2e) -n 4 $(BY_FILE); \
	exit $$status

.PHONY: properties
properties: setup-test ## the property tests with inputs that no run had before, ten times as many
	@$(PYTHON_BIN) -m pytest tests -n 3 --dist worksteal $(HEAVY) -m hypothesis --hypothesis-profile=search
	@cd native && PROPTEST_CASES=2560 ../setup/cargo test --quiet --locked

.PHONY: lint
lint: setup-test ## style and types of Python, Rust and shell
	$(SECTION) 'lint and types'
	@$(PYTHON_BIN) -m ruff check
	@$(PYTHON_BIN) -m ruff format --check
	@grep -lE '^#!/bin/(ba)?sh' setup/* native/* .ci/* 2>/dev/null | xargs shellcheck
	@cd native && ../setup/cargo fmt --check
	@$(BESIDE) $(PYTHON_BIN) -m mypy & cd native; \
	../setup/cargo clippy --quiet --locked --lib --bins --tests -- -D warnings; status=$$?; \
	wait $$! && exit $$status

.PHONY: test-native
test-native: setup-test
	$(SECTION) 'native tests'
	@cd native && $(if $(CI),CARGO_INCREMENTAL=0) PROPTEST_RNG_SEED=1 ../setup/cargo test --quiet --locked

.PHONY: suites suites-tools
suites: setup-test suites-tools ## foreign test programs whole on recordfs, crash states against a slow model
	@DISKPROOF_SUITES=whole $(PYTHON_BIN) -m pytest tests/integration/test_recordfs_suites.py -n 2
	@cd native && DISKPROOF_LOGS=1000 ../setup/cargo test --locked -p diskproof-states --test exhaustive -- --nocapture
suites-tools:
	@setup/packages setup/packages-suites.txt
	@setup/once suites setup/suites -- setup/suites

.PHONY: fuzz
fuzz: setup ## coverage chooses inputs for every Rust reader of foreign bytes: EACH=60 seconds, TARGETS="log qmp"
	@$(PYTHON_BIN) benchmarks/fuzz.py $(or $(EACH),60) $(TARGETS)

.PHONY: audit-supply
audit-supply: ## ask what is known of the packages: cargo-deny, pip-audit; what cannot be asked is named
	@setup/audit-supply

.PHONY: shape
shape: setup-test ## how long and how tangled the source is, against its ceilings; shape-verbose lists
	@PYTHONPATH=tests $(PYTHON_BIN) -m shape

.PHONY: shape-verbose shape-lower
shape-verbose shape-lower: setup-test
	@PYTHONPATH=tests $(PYTHON_BIN) -m shape --$(@:shape-%=%)

.PHONY: setup
setup: ## packages, .venv with diskproof, native programs
	@setup/packages setup/packages-demo.txt
	@$(EARLY_NATIVES) setup/once python requirements.lock $(BUILD_INPUTS) -- setup/venv requirements.lock; status=$$?; wait; exit $$status
	@setup/once native native setup/natives.py -- $(PYTHON_BIN) setup/natives.py

.PHONY: setup-test
setup-test:
	@setup/packages setup/packages-demo.txt setup/packages-test.txt
	@$(EARLY_NATIVES) setup/once python-dev requirements-dev.lock $(BUILD_INPUTS) -- setup/venv requirements-dev.lock; status=$$?; wait; exit $$status
	@setup/once native native setup/natives.py -- $(PYTHON_BIN) setup/natives.py

.PHONY: guest
guest: setup guest-cached ## build the guest, or find it in the cache

.PHONY: guest-cached
guest-cached:
	$(SECTION) 'guest'
	@$(DISKPROOF) guest build

.PHONY: bench
bench: setup ## list the benchmarks, each with what it measures
	@for file in benchmarks/*.py; do \
		name=$${file##*/}; \
		printf 'make bench-%-20s %s\n' "$${name%.py}" "$$(sed -n '1s/"""//gp' $$file)"; \
	done

bench-%: setup guest-cached ## run one of them
	@PYTHONPATH=tests $(PYTHON_BIN) benchmarks/$*.py

.PHONY: lock
lock: ## choose versions anew (needs uv)
	@uv pip compile $(LOCK_OPTIONS) --extra parquet --extra postgres --extra report --group build \
		-o requirements.lock
	@uv pip compile $(LOCK_OPTIONS) --all-extras --group build --group dev -c requirements.lock -o requirements-dev.lock
LOCK_OPTIONS := pyproject.toml --quiet --universal --fork-strategy fewest --python-version 3.11 \
	--generate-hashes --no-emit-index-url --annotation-style line --custom-compile-command 'make lock'

.PHONY: schemas schemas-unreleased
schemas: setup-test ## docs/schemas/: the JSON Schema of all that --json prints; a change takes a new number
	@PYTHONPATH=tests $(PYTHON_BIN) -m support.json_schemas
schemas-unreleased: setup-test
	@PYTHONPATH=tests $(PYTHON_BIN) -m support.json_schemas --unreleased

.PHONY: wheel
wheel: setup ## dist/: what pip, pipx and uv install without a compiler, and the sources
	@$(PYTHON_BIN) setup/backend.py dist

.PHONY: release
release: setup-test ## dist/diskproof-VERSION/: wheel, sources, .deb, SBOM, licences, schemas, notes, checksums
	@$(PYTHON_BIN) setup/release.py dist

.PHONY: deb
deb: wheel ## dist/: a Debian package for each release, with everything below /opt/diskproof
	@setup/packages setup/packages-deb.txt
	@$(PYTHON_BIN) setup/deb.py dist

.PHONY: man
man: setup ## dist/man1: the manual pages, as --help has them
	@$(PYTHON_BIN) setup/man_pages.py dist/man1

.PHONY: test-install
test-install: setup-test wheel deb ## the wheel on fresh Debian 12 and 13 without compilers, from nothing to an answer
	@setup/packages setup/packages-install.txt
	$(SECTION) 'installation tests'
	@$(PYTHON_BIN) -m pytest tests/install -o log_cli=true -o faulthandler_timeout=0

.PHONY: test-zfs
test-zfs: setup-test guest-cached ## OpenZFS in a guest of its own: built (some minutes the first time) and tested
	@$(DISKPROOF) guest build --with zfs
	@$(PYTHON_BIN) -m pytest -n 2 -k zfs tests/vm/test_guest_zfs.py tests/vm/test_crash_zfs_guest.py tests/vm/test_backings_guest.py

.PHONY: clean
clean: ## remove what the targets above made; stores and the guest's cache stay
	rm -rf .venv dist build native/target src/*.egg-info diskproof-quick.html
	rm -rf .mypy_cache .pytest_cache .ruff_cache .hypothesis
