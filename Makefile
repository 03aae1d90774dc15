# SPDX-License-Identifier: Apache-2.0
# Entry points for people and CI. PRESET is a preset of CMakePresets.json; ROW is one script of bench/rows or proofs.
PRESET ?= release
ROW ?=

.PHONY: setup build demo test bench proofs format clean

setup:
	scripts/setup.sh build

build: setup
	cmake --preset $(PRESET)
	cmake --build --preset $(PRESET)

test: build
	ctest --preset $(PRESET)

demo: setup
	scripts/setup.sh demo
	cmake --preset $(PRESET)
	cmake --build --preset $(PRESET) --target strata_command
	examples/demo.sh

bench: build
	scripts/run_rows.sh bench/rows $(ROW)

proofs: build
	scripts/run_rows.sh proofs $(ROW)

format:
	scripts/setup.sh format
	git ls-files '*.h' '*.cc' | xargs clang-format -i

clean: setup
	rm -rf build build-dev build-asan build-tsan
