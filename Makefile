# Everything that is done to arenaplan, one short command each: `make help`.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# maturin finds the environment by this name.
export VIRTUAL_ENV := $(CURDIR)/$(VENV)
export CARGO_TERM_COLOR ?= always
LIGHT = $$($(BIN)/python -c "import onnx, pathlib; print(pathlib.Path(onnx.__file__).parent / 'backend/test/data/light')")
STUB := python/arenaplan/_core.pyi
ORACLES := $(addprefix tests/python/test_,$(addsuffix .py,docs export_tflm fit from_train_step gradients_jax importer_jaxpr importer_torch integrations_executorch integrations_jax integrations_torch origins prove prove_command tflm_aliases tflm_kernels tflm_measure tflm_scratch torch_steps training))

.PHONY: help
help: ## list the commands
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

# The example server has a workspace, and a lock, of its own.
SERVER := --manifest-path examples/server/Cargo.toml --target-dir target/server
SERVED := $(foreach name,keyword encoder,$(name)=examples/server/models/$(name))

# One set of features, so that each crate is compiled once.
CHECKED := --locked --profile checked --workspace --exclude arenaplan-python --all-features
# That of the extension: PROFILE=checked has every assertion, and shares what tests compile.
PROFILE ?= release

# -- set-up ------------------------------------------------------------------------

$(VENV)/.ready: pyproject.toml
	$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("arenaplan needs Python 3.11 or newer; set PYTHON=")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -c 'import tomllib; print("\n".join(r for r in tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["dev"] if not r.startswith("arenaplan")))' > $(VENV)/dev.txt
	$(BIN)/python -c 'import tomllib; p = tomllib.load(open("pyproject.toml", "rb"))["project"]; print("\n".join(p["dependencies"] + p["optional-dependencies"]["onnx"]))' >> $(VENV)/dev.txt
	$(BIN)/python -m pip install --quiet --requirement $(VENV)/dev.txt
	touch $@

.PHONY: develop
develop: $(VENV)/.ready ## build the extension into .venv
	$(BIN)/maturin develop --locked --profile $(PROFILE) --quiet

.PHONY: demo
demo: develop ## plan ResNet-50 and run it inside its arena
	$(BIN)/arenaplan plan "$(LIGHT)/light_resnet50.onnx"
	$(BIN)/arenaplan run "$(LIGHT)/light_resnet50.onnx" --verify

# -- tests -------------------------------------------------------------------------

.PHONY: test
test: test-rust test-server test-python ## everything

.PHONY: quick
quick: $(VENV)/.ready ## lints and tests of what changed since the last commit, about a minute
	$(BIN)/python tools/quick.py

.PHONY: test-rust
test-rust: ## the core, the engine and the C interface: tests with all assertions on, and the examples of the docs
	cargo test $(CHECKED) --lib --tests --examples
	cargo test $(CHECKED) --doc

.PHONY: test-server
test-server: ## the example server: outputs, allocations, the process
	cargo test --locked $(SERVER)

.PHONY: test-capi
test-capi: ## the C interface: its header, and programs in C and C++, under valgrind if it is there
	cargo test --locked --profile checked --package arenaplan-capi

.PHONY: test-python
test-python: develop ## the package: tests, a file per processor at a time, and the examples of the docs
	$(BIN)/python -m pytest --numprocesses auto --dist loadfile

.PHONY: asan
asan: ## the core under AddressSanitizer and LeakSanitizer
	ASAN_OPTIONS=allocator_may_return_null=1 RUSTC_BOOTSTRAP=1 RUSTFLAGS=-Zsanitizer=address CARGO_TARGET_DIR=target/asan \
	    cargo test --locked --package arenaplan --lib --tests --target $$(rustc -vV | sed -n 's/host: //p')

# The extension is a library, which the runtime of the sanitizer must be loaded before. That one ends the process of the
# test that asks for more memory than there is.
ASAN := target/asan/extension
ASAN_TESTS ?= tests/python/test_arena.py tests/python/test_caller_arena.py tests/python/test_compiled.py tests/python/test_pack.py -k "not test_f03"
.PHONY: asan-python
asan-python: $(VENV)/.ready ## the extension under AddressSanitizer: ASAN_TESTS= of the Python tests (Linux, gcc)
	RUSTC_BOOTSTRAP=1 RUSTFLAGS=-Zsanitizer=address CARGO_TARGET_DIR=target/asan \
	    cargo build --locked --package arenaplan-python --target $$(rustc -vV | sed -n 's/host: //p')
	rm -rf $(ASAN) && mkdir -p $(ASAN) && cp -r python/arenaplan $(ASAN)/ && rm -f $(ASAN)/arenaplan/_core.*.so
	cp target/asan/$$(rustc -vV | sed -n 's/host: //p')/debug/lib_core.so $(ASAN)/arenaplan/_core.abi3.so
	LD_PRELOAD=$$(gcc -print-file-name=libasan.so) ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 \
	    PYTHONMALLOC=malloc PYTHONPATH=$(ASAN) $(BIN)/python -m pytest -p no:cacheprovider $(ASAN_TESTS)

.PHONY: valgrind
valgrind: ## the tests of the unsafe code under valgrind
	binary=$$(cargo test --locked --profile checked --package arenaplan --lib --no-run --message-format=json \
	    | $(PYTHON) -c 'import json, sys; print([m["executable"] for m in map(json.loads, sys.stdin) if m.get("executable")][-1])'); \
	valgrind --quiet --error-exitcode=1 --leak-check=full "$$binary" arena

# cargo-fuzz asks for flags that only nightly has; the variable makes them stable.
FUZZ := RUSTC_BOOTSTRAP=1 cargo fuzz
TARGETS ?= plan forged pack csv graph_file graph_edit plan_file model_file
SECONDS ?= 60
MODELS ?= 2000

.PHONY: fuzz
fuzz: ## fuzz targets, SECONDS=60 each; cargo install --locked cargo-fuzz
	$(FUZZ) build --sanitizer none
	for target in $(TARGETS); do mkdir -p fuzz/corpus/$$target; \
	    $(FUZZ) run --sanitizer none $$target fuzz/corpus/$$target fuzz/seeds/$$target -- \
	    -max_total_time=$(SECONDS) -max_len=4096 -timeout=30 -rss_limit_mb=4096 -print_final_stats=1; done

.PHONY: fuzz-models
fuzz-models: develop ## MODELS=2000 changed ONNX, TFLite and record files, of a new seed each day
	cd tests/python && ../../$(BIN)/python tflite_mutations.py --models $(MODELS)
	cd tests/python && ../../$(BIN)/python onnx_mutations.py --models $(MODELS)
	cd tests/python && ../../$(BIN)/python record_mutations.py --models $(MODELS)

.PHONY: mutants
mutants: ## change the checker in every way cargo-mutants knows; SHARD=0/8 for one part of eight
	PROPTEST_CASES=0 cargo mutants --package arenaplan $(if $(SHARD),--shard $(SHARD))

.PHONY: miri
miri: ## the lending to several threads under Miri (a nightly toolchain with rust-src)
	MIRIFLAGS="-Zmiri-disable-isolation" cargo +nightly miri test --locked --package arenaplan --test it -- \
	    hazards::shared_steps hazards::steps_of hazards::leaked

.PHONY: oracles
oracles: ## tests with other projects' runtimes and frameworks; downloads gigabytes
	test -x .venv-oracles/bin/python || $(PYTHON) -m venv .venv-oracles
	.venv-oracles/bin/python -m pip install --quiet --upgrade --pre tflite-micro
	.venv-oracles/bin/python -m pip install --quiet ".[oracles,dev]"
	.venv-oracles/bin/python tools/minimalloc_tests.py
	.venv-oracles/bin/python -m pytest $(ORACLES)

# -- checks ------------------------------------------------------------------------

.PHONY: check
check: check-rust check-bare check-python check-generated ## format, lint, types, docs, stubs, schema, operators, references, line budgets, pictures, C header

.PHONY: check-rust
check-rust: $(VENV)/.ready
	cargo fmt --all --check
	cargo fmt --manifest-path examples/server/Cargo.toml --check
	cargo clippy --locked --profile checked --workspace --all-targets --all-features -- --deny warnings
	cargo clippy --locked $(SERVER) --all-targets -- --deny warnings
	RUSTDOCFLAGS="--deny warnings" cargo doc --locked --profile checked --workspace --all-features --no-deps --document-private-items

BARE := thumbv7em-none-eabihf
.PHONY: check-bare
check-bare: ## the core without std, for a machine without an operating system
	cargo clippy --locked --profile checked --package arenaplan --no-default-features --features std -- --deny warnings
	if rustup target add $(BARE); then target="--target $(BARE)"; \
	else target=; echo "on this machine: the target $(BARE) cannot be installed" >&2; fi; \
	for features in "" serde; do cargo clippy --locked --profile checked --package arenaplan --no-default-features --features "$$features" $$target -- --deny warnings; done

.PHONY: check-python
check-python: develop
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m mypy.stubtest arenaplan._core --allowlist tests/stubtest.txt

.PHONY: check-generated
check-generated: develop
	$(BIN)/python tools/readme.py --check
	$(BIN)/python tools/operators.py --check
	$(BIN)/python tools/code_operators.py --check
	$(BIN)/python tools/commands.py --check
	$(BIN)/python tools/maps.py --check
	$(BIN)/python tools/tutorial_models.py --check
	$(BIN)/python tools/errors.py --check
	$(BIN)/python tools/wings.py --check
	$(BIN)/python tools/references.py
	$(BIN)/python tools/lines.py
	$(MAKE) --no-print-directory stubs STUB=$(VENV)/_core.pyi
	diff -u python/arenaplan/_core.pyi $(VENV)/_core.pyi || { echo "run 'make stubs'" >&2; exit 1; }
	cargo test $(CHECKED) --test it header

.PHONY: stubs
stubs: $(VENV)/.ready ## regenerate the types of the extension
	$(BIN)/python tools/stubs.py $(STUB)

.PHONY: header
header: ## regenerate the C header
	ARENAPLAN_WRITE_HEADER=1 cargo test --locked --profile checked --package arenaplan-capi --test it header

.PHONY: rooms
rooms: ## regenerate the tables of rooms in DESIGN.md and docs/design/rooms.md
	ARENAPLAN_WRITE_ROOMS=1 cargo test --locked --profile checked --test house tables

.PHONY: readme
readme: develop ## regenerate the tables of targets and arenas in README.md
	$(BIN)/python tools/readme.py

.PHONY: operators
operators: develop ## regenerate the table of operators in docs/operators.md
	$(BIN)/python tools/operators.py
	$(BIN)/python tools/code_operators.py

.PHONY: commands
commands: develop ## regenerate docs/commands.md
	$(BIN)/python tools/commands.py

.PHONY: wings
wings: $(VENV)/.ready ## regenerate the table of wings in docs/design/rooms.md
	$(BIN)/python tools/wings.py

.PHONY: errors
errors: develop ## regenerate docs/errors.md
	$(BIN)/python tools/errors.py

.PHONY: maps
maps: develop ## draw the pictures of docs/maps.md
	$(BIN)/python tools/maps.py

.PHONY: browser
browser: ## tests of the map in Chromium, in an environment of their own
	test -x .venv-browser/bin/python || $(PYTHON) -m venv .venv-browser
	.venv-browser/bin/python -m pip install --quiet ".[browser,dev,notebook]"
	command -v chromium google-chrome >/dev/null || .venv-browser/bin/playwright install chromium
	.venv-browser/bin/python -m pytest tests/python/test_map_browser.py tests/python/test_report.py

.PHONY: site
site: develop ## build the documentation site into target/site
	test -x .venv-docs/bin/python || $(PYTHON) -m venv .venv-docs
	$(BIN)/python -c 'import tomllib; p = tomllib.load(open("pyproject.toml", "rb"))["project"]; print("\n".join(p["dependencies"] + p["optional-dependencies"]["docs"]))' > .venv-docs/docs.txt
	.venv-docs/bin/python -m pip install --quiet --requirement .venv-docs/docs.txt
	NO_MKDOCS_2_WARNING=1 PYTHONPATH=python .venv-docs/bin/mkdocs build

.PHONY: figures
figures: develop ## regenerate the tables and the picture of docs/comparison.md
	$(BIN)/python tools/figures.py

.PHONY: tutorials
tutorials: develop ## run the tutorials, and write the output of their commands anew
	$(BIN)/python tools/tutorial_models.py
	$(BIN)/python tests/python/snippets.py docs/tutorials/*.md

.PHONY: fmt
fmt: $(VENV)/.ready ## format everything
	cargo fmt --all
	cargo fmt --manifest-path examples/server/Cargo.toml
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix-only --quiet .

# -- the rest ----------------------------------------------------------------------

.PHONY: bench
bench: develop ## measure the core, and the executor against ONNX Runtime
	cargo bench --locked
	$(BIN)/python benches/executor.py

.PHONY: load-test
load-test: ## 64 clients for 20 seconds, the pool full and not: times, refusals, memory
	cargo build --locked --release $(SERVER)
	for cap in 512KiB 16MiB; do target/server/release/load --seconds 10 --cap $$cap --patience 100 $(SERVED); done

.PHONY: server-models
server-models: develop ## make the models of the example server again
	$(BIN)/python examples/server/models/make.py

.PHONY: capi
capi: ## build the C library and its headers into target/capi
	cargo build --locked --release --package arenaplan-capi
	mkdir -p target/capi/lib target/capi/include
	cp target/release/libarenaplan.a target/capi/lib
	for file in libarenaplan.so libarenaplan.dylib; do \
	    if test -e "target/release/$$file"; then cp "target/release/$$file" target/capi/lib; fi; done
	cp capi/include/arenaplan.h capi/include/arenaplan.hpp target/capi/include

.PHONY: wheel
wheel: $(VENV)/.ready ## build the wheel into dist/
	$(BIN)/maturin build --locked --release --strip --out dist

.PHONY: clean
clean: ## remove what was built
	rm -rf target $(VENV) dist python/arenaplan/_core.*.so
