# Every target does its own set-up in .venv; nothing else on the machine is touched.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Python compiles what is imported when it is; compiling all of it takes half of an installation
QUIETLY := --quiet --disable-pip-version-check --no-compile
# $(call install,PYTHON,WHAT): by uv, several times as quick as pip; by pip where the machine names an index of its own,
# which only pip reads, or where uv fails
comma := ,
install = { ! $(1) -m pip config list 2>/dev/null | grep -qE '\.(index-url|no-index)=' \
  && $(1) -m pip install $(QUIETLY) 'uv>=0.9' 2>/dev/null && UV_SYSTEM_CERTS=1 $(1) -m uv pip install --quiet --python $(1) $(2) 2>/dev/null; } \
  || $(1) -m pip install $(QUIETLY) $(2)
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo develop test check test-extended test-processes test-torch test-mlflow lint coverage mutants bench tables around notebooks pictures site soak images dist recipes lock sbom licences audit-dependencies sign verify-signature clean

# ARGS="--clicks 20000 --stay" is quick and keeps both services for their pages; ARGS=--help lists the options.
demo: $(VENV)/.runtime
	@$(BIN)/python -m deploy.demo $(ARGS)

# One service on the demo's data in this terminal, started again when a source file changes: PARTY=labels-party, or
# PARTY=features-party. `breakpoint()` stops in it; ARGS="--port 9001" and more, ARGS=--help lists the options.
develop: $(VENV)/.runtime
	@$(BIN)/python -m deploy.demo.develop $(or $(PARTY),labels-party) $(ARGS)

# What protects the core promise, with a light set of packages, in the processes of pytest alone: ten minutes on two
# quiet cores, after each change.
test: $(VENV)/.test
	@$(BIN)/python -m pytest -n 2 --dist worksteal -m "not extended and not processes and not torch and not mlflow"

# The rest, before a change is handed in: linters, strict types, import contracts, what takes longer or needs the full set
# of packages, the tests that start services, kill them or run commands and documents as a user does, and the network.
# Each test belongs to exactly one of the two.
check: lint test-extended test-processes test-torch test-mlflow

# PostgreSQL, object stores, other libraries' models, generated calls, answers beside the message, slow learners, long data.
test-extended: $(VENV)/.dev
	@$(BIN)/python -m pytest -n 2 --dist worksteal -m "extended and not processes and not torch and not mlflow"

test-processes: $(VENV)/.dev
	@$(BIN)/python -m pytest -n 2 --dist worksteal -m "processes and not torch and not mlflow"

# The paper's network and all that trains it, with PyTorch, which no other target needs.
test-torch: $(VENV)/.torch
	@REQUIRE_TORCH=1 $(BIN)/python -m pytest -m torch tests/unit

# MLflow's own servers. The tracking server has libraries of its own, older than ours.
test-mlflow: $(VENV)/.mlflow
	@REQUIRE_MLFLOW=1 $(BIN)/python -m pytest -n 0 tests/integration/test_mlflow.py -m mlflow

lint: $(VENV)/.dev
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

# Lines and branches of the product that all tests reach, a line a room; ARGS="tests/unit -n 2" asks for a part.
coverage: $(VENV)/.measures
	@$(BIN)/python -m tests.measures.coverage_by_room $(ARGS)

# A seeded sample of small changes of the core's rooms: how many of them the tests notice, and which they do not. Ten
# minutes with ARGS=--quick, otherwise hours; fails below the floors of tests/measures; ARGS=--help lists the options.
mutants: $(VENV)/.measures
	@$(BIN)/python -m tests.measures.mutants $(ARGS)

# Speed, each figure a ratio against something named in the same run: ten minutes. ARGS="--compare" says which ratios got
# worse than those kept in tests/benchmarks/results, "--keep" keeps this run's, ARGS=--help lists the options.
bench: $(VENV)/.dev
	@$(BIN)/python -m tests.benchmarks $(ARGS)

# The paper's tables and figures on the data of ../shared/data, kept in tests/benchmarks/utility/results; goes on where
# it was stopped. `make tables ARGS="--quick"` takes two minutes, ARGS=--help lists the options.
tables: $(VENV)/.dev
	@$(BIN)/python -m tests.benchmarks.utility $(ARGS)

# Clipping bounds, calibration, private prediction …: what they achieve beside the bounds of their papers, kept in
# tests/benchmarks/around/results. `make around ARGS="clipping --quick"` runs one of them on a small scale.
around: $(VENV)/.dev
	@$(BIN)/python -m tests.benchmarks.around $(ARGS)

# The notebooks of the guides, run from top to bottom and kept with what they print. ONLINE_RETAIL names a Parquet file of
# UCI's Online Retail lines; without it they make clicks up.
notebooks: $(VENV)/.dev
	@PATH="$(CURDIR)/$(BIN):$$PATH" PYTHONPATH="$(CURDIR)" $(BIN)/jupyter-execute --inplace deploy/guides/notebooks/*.ipynb

# Long runs of what the tests try shortly, a dozen parts of 180 seconds: `make soak SECONDS_EACH=600 SEED=1`.
# One table at the end (tried, survived, limit, seed), kept in tests/soak/results; PARTS="large_domain or kills" runs some.
soak: $(VENV)/.dev
	@$(BIN)/python -m pytest tests/soak -o python_files='soak_*.py' $(if $(SECONDS_EACH),--seconds $(SECONDS_EACH)) $(if $(SEED),--seed $(SEED)) $(if $(PARTS),-k "$(PARTS)")

# Both images built, and the Compose section of deploy/README.md played with a real engine: the demo twice, a kill, a
# restart, an edit. ARGS="--stand-ins FOLDER" on a Debian machine that reaches no image registry, ARGS=--help lists the options.
images: $(VENV)/.runtime
	@$(BIN)/python -m tests.images $(ARGS)

# Wheel, sdist and the verifier as one file, in dist/; then each extra alone in a clean environment, where it does its work:
# labels, features, all, a plain install, and the verifier beside `cryptography`. A minute, with warm caches of packages.
dist: $(VENV)/.runtime
	@$(BIN)/python -m tests.distribution

# Each recipe of deploy/guides/recipes in its tool (Airflow, Dagster, dbt, DuckDB, Polars, Daft, Ray), in an environment of its own.
recipes: $(VENV)/.dev
	@$(BIN)/python -m tests.distribution.recipes

# Versions and hashes of all packages, for the images and for tests with LOCKED=1; UPGRADE=1 takes newer versions.
lock: $(VENV)/.tools
	@PATH="$(CURDIR)/$(VENV)/tools/bin:$$PATH" UPGRADE=$(UPGRADE) deploy/locks/make.sh

# The bill of materials of each party in CycloneDX: dist/labels-party.cdx.json, dist/features-party.cdx.json.
sbom: $(VENV)/.tools
	@mkdir -p dist
	@for party in labels-party features-party; do $(VENV)/tools/bin/cyclonedx-py requirements --pyproject pyproject.toml \
	  --mc-type application --output-reproducible -o dist/$$party.cdx.json deploy/locks/$$party.txt 2>/dev/null || exit 1; done

NOT_GIVEN_ON := GPL-2.0-only;GPL-2.0-or-later;GPL-3.0-only;GPL-3.0-or-later;AGPL-3.0-only;AGPL-3.0-or-later;GNU General Public License v2 (GPLv2);GNU General Public License v3 (GPLv3);GNU Affero General Public License v3

# The licence of each package that a party installs: dist/labels-party.licences.md, dist/features-party.licences.md. Fails
# for a licence that the parties could not be given on under.
licences: $(VENV)/.dev $(VENV)/.tools
	@mkdir -p dist
	@for party in labels-party features-party; do $(VENV)/tools/bin/pip-licenses --python $(BIN)/python --from mixed --format markdown \
	  --order name --with-urls --fail-on '$(NOT_GIVEN_ON)' \
	  --packages $$(sed -n 's/^\([A-Za-z0-9._-]*\)==.*/\1/p' deploy/locks/$$party.txt | sort -u) > dist/$$party.licences.md || exit 1; done

# Known vulnerabilities of what the locks name, by pip-audit. It fails where there are some, and where the service of
# vulnerabilities could not be asked about a package.
audit-dependencies: $(VENV)/.tools
	@$(VENV)/tools/bin/python -m deploy.locks.vulnerabilities labels-party features-party dev build

# The signed list of what a version is made of, dist/version.dsse.json: schemas of signed documents, locks and, with
# ARGS=--images, the images of this machine's engine. KEY=version.key; `python -m deploy.signing keygen` makes one.
sign: $(VENV)/.runtime
	@$(BIN)/python -m deploy.signing sign --key $(KEY) $(ARGS)

# What is here beside the signed list: KEY=version.pub. It fails with a sentence for each part that differs.
verify-signature: $(VENV)/.runtime
	@$(BIN)/python -m deploy.signing verify --key $(KEY) $(ARGS)

$(VENV)/.tools: | $(VENV)/bin/python
	@$(BIN)/python -m venv $(VENV)/tools
	@$(VENV)/tools/bin/python -m pip install $(QUIETLY) 'uv>=0.9' 'cyclonedx-bom>=7' 'pip-licenses>=5' 'pip-audit>=2.10'
	@touch $@

$(VENV)/.torch: $(VENV)/.dev
	@echo "installing PyTorch (once)$(if $(TORCH),: $(TORCH))"
	@$(BIN)/python -m pip install $(QUIETLY) $(TORCH) --editable '.[dev,torch]'
	@touch $@

$(VENV)/.mlflow: $(VENV)/.dev
	@echo "installing MLflow's server (once)"
	@$(PYTHON) -m venv $(VENV)/mlflow-server
	@$(call install,$(VENV)/mlflow-server/bin/python,'mlflow>=3.1')
	@touch $@

$(VENV)/.measures: $(VENV)/.dev
	@echo "installing what measures the tests (once)"
	@$(call install,$(BIN)/python,--editable '.[dev$(comma)measures]')
	@touch $@

$(VENV)/.site: $(VENV)/.dev
	@echo "installing what makes the site (once)"
	@$(call install,$(BIN)/python,--editable '.[dev$(comma)site]')
	@touch $@

# The pictures of pages in the guides, made anew; it needs Chromium.
pictures: $(VENV)/.dev
	@$(BIN)/python -m tests.browser.pictures

# Guides, reference, formats, threat model and the Python interfaces as one static site with a search, and the demo's pages
# to click through: dist/site, to be served (`python3 -m http.server -d dist/site`) or read from the disk, without the search.
site: $(VENV)/.site
	@$(BIN)/python -m tests.browser.export
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --config-file deploy/site/mkdocs.yml

clean:
	@rm -rf $(VENV) demo-output develop-output .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
	  { echo "error: Python 3.11 or later is needed; install it, or name it with: make $(MAKECMDGOALS) PYTHON=/path/to/python3.11" >&2; exit 2; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
	  { echo "error: Python's venv module is missing; on Debian and Ubuntu: sudo apt-get install python3-venv" >&2; exit 2; }
	@echo "making the virtual environment $(VENV)"
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.runtime: pyproject.toml | $(VENV)/bin/python
	@echo "installing what the services need (once)"
	@$(call install,$(BIN)/python,--editable '.[all$(comma)postgres]')
	@touch $@

$(VENV)/.test: pyproject.toml | $(VENV)/bin/python
	@echo "installing what the services and make test need (once)"
	@$(if $(LOCKED),$(call install,$(BIN)/python,--require-hashes -r deploy/locks/test.txt))
	@$(call install,$(BIN)/python,--editable '.[test]')
	@touch $@ $(VENV)/.runtime

$(VENV)/.dev: pyproject.toml | $(VENV)/bin/python
	@echo "installing what the services and all their tests need (once)"
	@$(if $(LOCKED),$(call install,$(BIN)/python,--require-hashes -r deploy/locks/dev.txt))
	@$(call install,$(BIN)/python,--editable '.[dev]')
	@touch $@ $(VENV)/.test $(VENV)/.runtime
