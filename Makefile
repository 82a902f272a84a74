# The same commands for everyone: users, developers and CI. `make` alone lists them.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON ?= python3
DEMO_SIZE ?= 100MB
SIZES ?= 10MB 100MB 1GB
SEED := 0

VENV := .venv
BIN := $(VENV)/bin
# A process of one thread for each core. A file stays in one, with what its tests share; tests/conftest.py says which
# files come first.
PYTEST := POLARS_MAX_THREADS=1 $(BIN)/pytest -n auto --dist loadfile --no-loadscope-reorder
# The same cases every time but in test-long.
CARGO_TEST = PROPTEST_RNG_SEED=$(SEED) cargo test --quiet --locked --workspace --profile checked
STAMPS := $(VENV)/.stamps
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check install --require-hashes -r
# Declared by a macro, which cargo fmt does not look into.
FORMAT_MODULES := --edition 2024 $(wildcard crates/traceparse/src/formats/*/mod.rs)
RUST := $(shell awk -F'"' '/^rust-version/ { print $$2 }' Cargo.toml)
HAS_RUST := command -v cargo >/dev/null && printf '%s\n' $(RUST) "$$(cargo --version 2>/dev/null | cut -d' ' -f2)" | sort -CV
# bash reads it before each command: it says where Rust is, if that was installed into .venv.
export BASH_ENV := $(CURDIR)/$(STAMPS)/rust
RUST_SOURCES := Cargo.toml Cargo.lock $(shell find crates -name fuzz -prune -o \( -name '*.rs' -o -name Cargo.toml \) -print)

##@ Use
.PHONY: demo
demo: $(STAMPS)/release ## write a demo trace, analyse it, and say where the results are
	$(BIN)/kernelscope demo --size $(DEMO_SIZE) --ranks 2 --truth --out demo-output
	$(BIN)/kernelscope analyze demo-output/rank0.pt.trace.json | tee demo-output/report.txt
	$(BIN)/kernelscope analyze demo-output/rank0.pt.trace.json --format json --out demo-output/report.json
	$(BIN)/kernelscope analyze demo-output/rank0.pt.trace.json --format parquet --out demo-output/tables
	@echo
	@echo "In demo-output are the traces of two ranks and, of rank 0, the results:"
	@echo "  report.txt (what stands above), report.json (for programs), tables/ (Parquet)."
	@echo "Now your own trace: $(BIN)/kernelscope analyze TRACE"

.PHONY: wheel
wheel: $(STAMPS)/rust ## build a wheel for every Python from 3.10 into dist/
	$(BIN)/maturin build --release --locked --out dist

##@ Develop
.PHONY: build
build: $(STAMPS)/release ## build the extension into .venv

.PHONY: install
install: $(STAMPS)/torch ## install what the tests need

.PHONY: test
test: lint docs test-rust test-python ## everything that CI runs

.PHONY: test-quick
test-quick: lint $(STAMPS)/test $(STAMPS)/checked ## lints, types, unit tests in Rust, tests of small traces
	$(CARGO_TEST) --lib
	$(PYTEST) -m "not slow" --hypothesis-profile quick --ignore-glob='*torch*'

.PHONY: test-long
test-long: SEED := $(shell date +%s)
test-long: $(STAMPS)/torch $(STAMPS)/checked ## thousands of random cases, stops at random moments; SEED= repeats a run
	@echo "repeat these cases with: make test-long SEED=$(SEED)"
	PROPTEST_CASES=5000 $(CARGO_TEST)
	$(PYTEST) --long --hypothesis-seed $(SEED) --timeout 3600 -o faulthandler_timeout=3630

.PHONY: bench
bench: $(STAMPS)/release $(STAMPS)/bench ## measure speed and memory beside other readers; SIZES="400MB 4GB" BENCH=--help
	$(BIN)/python benches/run.py --sizes "$(SIZES)" $(BENCH)

.PHONY: bench-page
bench-page: $(STAMPS)/release $(STAMPS)/test ## measure time, memory and size of the page of analyze; BENCH=--help
	$(BIN)/python benches/page.py $(BENCH)

.PHONY: bench-view
bench-view: $(STAMPS)/release $(STAMPS)/test ## measure the viewer in Chromium: first picture, windows, frames, memory; BENCH=--help
	$(BIN)/python benches/view.py $(BENCH)

.PHONY: pictures
pictures: $(STAMPS)/checked $(STAMPS)/test ## make the pictures of the README anew, with an installed Chromium
	$(BIN)/python benches/pictures.py

.PHONY: bench-databases
bench-databases: $(STAMPS)/release ## the same for databases of Nsight Systems; BENCH=--help
	$(BIN)/python benches/databases.py $(BENCH)

.PHONY: bench-costs
bench-costs: $(STAMPS)/release ## time the cost models beside reading, on the files that bench left in benches/.data
	$(BIN)/python benches/questions.py costs benches/.data/*-1GB.json $(BENCH)

.PHONY: bench-dependencies
bench-dependencies: $(STAMPS)/release ## time critical paths beside reading, on the files that bench left in benches/.data
	$(BIN)/python benches/questions.py critical_path benches/.data/*-1GB.json $(BENCH)

.PHONY: bench-paths
bench-paths: $(STAMPS)/release $(STAMPS)/bench ## time critical paths beside HolisticTraceAnalysis; BENCH="TRACE ..."
	$(BIN)/python benches/paths.py $(BENCH)

.PHONY: bench-sleeps
bench-sleeps: $(STAMPS)/release $(STAMPS)/test ## predict jobs of two ranks on gloo without the sleeps of one; BENCH=--help
	$(BIN)/python benches/sleeps.py $(BENCH)

.PHONY: bench-training
bench-training: $(STAMPS)/release $(STAMPS)/test ## time answers about training on a lake of 1,024 ranks, also with Dask; BENCH=--help
	$(BIN)/python benches/training.py $(BENCH)

.PHONY: bench-cluster
bench-cluster: $(STAMPS)/release $(STAMPS)/bench ## the same for jobs of many ranks; BENCH=--help
	$(BIN)/python benches/cluster.py $(BENCH)

.PHONY: docs
docs: $(STAMPS)/test $(STAMPS)/checked ## build the documentation site into target/site, and check its links
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict
	@echo "the documentation is in target/site/index.html"

.PHONY: lint
lint: lint-rust lint-python ## format, lints, types and import arrows

.PHONY: lint-rust
lint-rust: $(STAMPS)/rust
	cargo fmt --all --check
	rustfmt --check $(FORMAT_MODULES)
	cargo clippy --quiet --locked --workspace --all-targets --profile checked -- -D warnings

.PHONY: lint-python
lint-python: $(STAMPS)/test $(STAMPS)/checked
	$(BIN)/ruff check --quiet --no-cache # a kept answer does not see that a new file made an import first-party
	$(BIN)/ruff format --quiet --check
	$(BIN)/basedpyright
	$(BIN)/lint-imports --no-logo

.PHONY: test-rust
test-rust: $(STAMPS)/rust
	$(CARGO_TEST)

.PHONY: test-python
test-python: $(STAMPS)/torch $(STAMPS)/checked
	$(PYTEST)

.PHONY: format
format: $(STAMPS)/test ## format Rust and Python
	cargo fmt --all
	rustfmt $(FORMAT_MODULES)
	$(BIN)/ruff format --quiet
	$(BIN)/ruff check --quiet --fix

.PHONY: lock
lock: $(STAMPS)/test ## renew requirements/*.txt from requirements/*.in
	$(BIN)/python -m pip --quiet install uv
	cd requirements && for name in build rust run test torch bench; do \
	  ../$(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.10 --generate-hashes \
	    --no-header --no-emit-index-url --annotation-style line $$name.in -o $$name.txt; done

.PHONY: clean
clean: ## remove everything that was built here
	rm -rf $(VENV) .venv-bench target dist demo-output python/kernelscope/*.so

.PHONY: help
help:
	@awk 'BEGIN { FS = ":.*## " } \
	  /^##@ / { printf "\n%s\n", substr($$0, 5) } \
	  /^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# Stamps: each says that what it is named after is installed, and is renewed when its inputs change.

$(STAMPS)/venv: requirements/build.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { echo "Python 3.10 or later is needed; name it with make PYTHON=..." >&2; exit 1; }
	@echo "installing the build tools into $(VENV)"
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) requirements/build.txt
	@mkdir -p $(STAMPS) && touch $@

# A toolchain of the machine that is too old is neither used nor changed; nothing needs root.
$(STAMPS)/rust: requirements/rust.txt $(STAMPS)/venv
	@rm -f $@
	@if $(HAS_RUST); then touch $@; exit; fi; \
	echo "no Rust $(RUST) or later is installed: downloading it into $(VENV)/rust (155 MB; 650 MB on the disk)"; \
	export RUSTUP_HOME="$(CURDIR)/$(VENV)/rust/rustup" CARGO_HOME="$(CURDIR)/$(VENV)/rust/cargo" RUSTUP_INIT_SKIP_PATH_CHECK=yes; \
	{ $(PIP) requirements/rust.txt && $(BIN)/python -m puccinialin --location $(VENV)/rust && \
	  "$$CARGO_HOME/bin/rustup" component add clippy rustfmt; } >$(STAMPS)/rust.log 2>&1 \
	  || { echo "Rust is needed: install a toolchain with cargo, version $(RUST) or later." >&2; exit 1; }; \
	printf 'export %s="%s"\n' RUSTUP_HOME "$$RUSTUP_HOME" CARGO_HOME "$$CARGO_HOME" PATH '$$CARGO_HOME/bin:$$PATH' >$@

$(STAMPS)/run: requirements/run.txt $(STAMPS)/rust
	@$(PIP) requirements/run.txt
	@touch $@

# The extension as users get it, and as tests build it; each takes the place of the other.
$(STAMPS)/release $(STAMPS)/checked: $(RUST_SOURCES) pyproject.toml $(STAMPS)/run
	@echo "building the extension (a minute or two the first time)"
	@rm -f $(STAMPS)/release $(STAMPS)/checked
	@VIRTUAL_ENV="$(CURDIR)/$(VENV)" $(BIN)/maturin develop --profile $(@F) --locked >$(STAMPS)/build.log 2>&1 \
	  || { cat $(STAMPS)/build.log >&2; exit 1; }
	@touch $@

$(STAMPS)/test: requirements/test.txt $(STAMPS)/run
	@echo "installing the test tools"
	@$(PIP) requirements/test.txt
	@touch $@

$(STAMPS)/torch: requirements/torch.txt $(STAMPS)/test
	@echo "installing PyTorch, whose profiler is compared with (several GB, once)"
	@$(PIP) requirements/torch.txt
	@touch $@

$(STAMPS)/bench: requirements/bench.txt $(STAMPS)/venv
	@echo "installing what is measured beside into .venv-bench"
	@$(PYTHON) -m venv .venv-bench
	@.venv-bench/bin/python -m pip --quiet --disable-pip-version-check install --require-hashes -r requirements/bench.txt
	@touch $@
