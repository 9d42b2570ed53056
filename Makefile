# Every target does its own set-up; where nothing is left to set up or build
# that takes a moment.  The work is in tools/ and meson.build.  SETUP=here counts
# on what the machine has and installs nothing.
export PATH := $(CURDIR)/.venv/bin:$(PATH)
export PYTHONPATH := $(CURDIR)/build/python

run: build ## the demonstration, from C and from Python
	build/examples/quickstart
	python examples/quickstart.py
	build/examples/transforms
	python examples/transforms.py
	build/examples/custom_kernel
	python examples/custom_kernel.py
	build/examples/showcase
	python examples/showcase.py
	build/examples/gpt
	python examples/gpt.py

build: setup ## libnabla, the Python package, tests, benches, examples
	@tools/configure build -Dwerror=true
	@ninja -C build

test: build ## everything that can fail
	@tools/test.py

test-passes: build ## compiled code with each pass left out in turn
	@tools/test.py passes

test-gpu: build ## tests of cards, on the card of this machine: ONLY=loops
	@ONLY="$(ONLY)" tools/test.py gpu

check: build ## format, warnings, layers, headers, symbols, Python
	@tools/check

asan: setup ## the tests under the address, undefined and leak sanitizers
	@tools/test.py asan

fuzz: build ## random programs against JAX: make fuzz N=5000
	@tools/fuzz $(N)

bench-engine bench-transforms bench-cpu bench-shard bench-gpu: build ## figures: ONLY=gelu
	@tools/bench $(@:bench-%=%) $(if $(ONLY),"$(ONLY)")

docs: build ## the reference manual, into build/docs
	@tools/docs.py

fmt: setup ## formats the C sources, sorts the imports of the Python ones
	@tools/format

setup: ## system packages and .venv
	@tools/setup

clean: ## forgets all builds, keeps .venv
	rm -rf build build-*

.PHONY: run build test test-passes test-gpu check asan fuzz bench-engine
.PHONY: bench-transforms bench-cpu bench-shard bench-gpu docs fmt setup clean
