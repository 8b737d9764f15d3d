# SPDX-License-Identifier: GPL-2.0
#
# RPC over RDMA in Rust. `make help` lists the targets.

# The kernel to build for, and where the output goes (here by default).
KDIR ?= /lib/modules/$(shell uname -r)/build
MO ?=

# The configuration of the kernel determines the build of the module.
kconfig = $(shell sed -n 's/^CONFIG_$(1)=//p' $(KDIR)/include/config/auto.conf 2>/dev/null)
kernel_cc = $(firstword $(subst ",,$(call kconfig,CC_VERSION_TEXT)))
kernel_make_args = $(if $(call kconfig,UML),ARCH=um) \
	$(if $(call kconfig,CC_IS_CLANG),LLVM=1,$(if $(shell command -v $(kernel_cc)),CC=$(kernel_cc)))
KRUSTFLAGS ?= -Dwarnings
kbuild = $(MAKE) -C $(KDIR) M=$(CURDIR) $(if $(MO),MO=$(abspath $(MO))) \
	$(kernel_make_args) KRUSTFLAGS='$(KRUSTFLAGS)'

# Tools of one version everywhere: the tools of the build root, with the compiler of Debian's kernel.
buildroot = $(CURDIR)/tools/lab/buildroot --
kdir = $(CURDIR)/tools/lab/kdir
# Output of the targets that choose the kernel themselves.
out = $(CURDIR)/build
# The kernel whose rustc, configuration and headers the static checks use.
CHECK_KERNEL ?= debian

# rustfmt follows the modules from here.
rust_roots = rust/rpcrdma_main.rs tools/interleavings/src/lib.rs tools/proto/src/lib.rs tools/proto/panic/all.rs \
	$(wildcard tools/proto/*/src/main.rs tools/proto/*/src/lib.rs tools/proto/tests/*.rs tools/proto/tests/*/main.rs) \
	$(wildcard $(addprefix tools/lint/compile_fail/,*.rs */*.rs */*/*.rs))
# A prefix for commands that end when make ends for any reason.
tied = setpriv --pdeathsig TERM
step = $(tied) tools/check/step

.DEFAULT_GOAL := modules

.PHONY: help
help: ## Show this list
	@echo 'Targets, with KDIR=DIR for another kernel than the running one and MO=DIR for another output folder:'
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# --- The module ---------------------------------------------------------------

.PHONY: modules install uninstall kmod clean deb kdir
modules: ## Build rpcrdma.ko for KDIR (default: the running kernel)
	@tools/kbuild/probe '$(KDIR)'
	+$(kbuild) modules

kmod:
	@command -v depmod >/dev/null || { echo 'depmod is missing: apt-get install kmod' >&2; exit 1; }

# A distribution keeps its key; Documentation/admin-guide.rst tells how to sign with one's own.
sign_key = $(subst ",,$(call kconfig,MODULE_SIG_KEY))
unsigned = $(if $(filter /% pkcs11:%,$(sign_key))$(wildcard $(KDIR)/$(sign_key)),,CONFIG_MODULE_SIG_ALL=)

install: kmod ## Install it into updates/ of that kernel, before which the kernel's own steps back
	@tools/kbuild/probe '$(KDIR)'
	+$(kbuild) $(unsigned) modules_install
	$(if $(INSTALL_MOD_PATH),,depmod $(release))
	@echo 'Installed. A loaded rpcrdma stays as it is: unmount, stop nfsd, then: modprobe -r rpcrdma; modprobe rpcrdma'

install uninstall: release = $(shell cat '$(KDIR)/include/config/kernel.release' 2>/dev/null)
uninstall: kmod ## Remove it again, so that the kernel's own module is used
	@[ -n '$(release)' ] || { \
		echo 'KDIR ($(KDIR)) is no configured kernel: it does not say which release it is.' >&2; exit 1; }
	rm -f $(INSTALL_MOD_PATH)/lib/modules/$(release)/updates/rust/rpcrdma.ko*
	$(if $(INSTALL_MOD_PATH),,depmod $(release))

clean: ## Remove what a build leaves here
	rm -rf $(out)
	+@if [ -f '$(KDIR)/Makefile' ]; then $(kbuild) clean; \
	else echo 'KDIR ($(KDIR)) is no kernel tree: what a build left outside of build/ stays.'; fi

deb: python ## Make Debian packages of the module and of the tools, in build/deb
	@tools/packaging/deb $(out)/deb

kdir: python ## Prepare a KDIR for Debian's kernel KERNEL=VERSION (its headers package has no Rust metadata)
	@$(kdir) $(firstword $(subst +, ,$(or $(KERNEL),$(shell uname -r))))

# --- Seeing and checking --------------------------------------------------------

.PHONY: python docs demo cost bench bench-check check check-lint check-host check-build check-lab check-cost check-docs check-wire check-wire-quick check-dissector check-nfstest check-deb check-demo check-end
python:
	@command -v python3 >/dev/null || { \
		echo 'python3 is missing: apt-get install python3' >&2; \
		{ apt-get update -q && apt-get install -qy python3; } >&2; }

docs: python ## Make the documents as HTML, with their figures, in build/docs
	@$(buildroot) tools/docs/html

demo: python ## Build for Debian's kernel, boot two nodes with it, mount, move data, show all
	@tools/demo/demo

cost: python ## Count what one RPC executes on either side, with our module and with the kernel's own
	@tools/cost/cost

bench: python ## Measure our client, our server, then both in either version, beside the kernel's own (an hour)
	@for side in client server both; do tools/bench/compare --side $$side || exit; done

bench-check: python ## Compare the ratios of all measurements with the recorded ratios (an hour)
	@for side in client server; do \
		tools/bench/compare --side $$side --against tools/bench/recorded/$$side || exit; done

check: python ## Every test; ends with: N passed, N failed
	@tools/check/total $(MAKE) --no-print-directory -k check-lint check-host check-build \
		check-lab check-end

# Runs these targets in parallel, one for each processor.
parts = @$(tied) $(MAKE) --no-print-directory -k -j$(shell nproc)

lint_parts = layers map barriers events unsafe house text prose spelling shell pylint mypy docs docs-commands messages format conformance conformance-tool lints checks probe
host_parts = core oracle fuzzing model interleavings mistakes cost tables dissector status manual
build_parts = debian debian-7.3 clippy ownership rustdoc install deb checkpatch
.PHONY: $(lint_parts:%=lint-%) $(host_parts:%=host-%) $(build_parts:%=build-%)

check-lint: python ## Layers, unsafe code, text, format, the table of requirements, lints and checks themselves
	$(parts) $(lint_parts:%=lint-%)
lint-layers:
	@$(step) 'layers' tools/lint/layers
lint-map:
	@$(step) 'map of one RPC' tools/lint/map
lint-barriers:
	@$(step) 'barriers' tools/lint/barriers
lint-events:
	@$(step) 'trace events' tools/lint/events
lint-unsafe:
	@$(step) 'unsafe code' tools/lint/unsafe
lint-house:
	@$(step) 'figures of the house' tools/lint/house
lint-text:
	@$(step) 'text' tools/lint/text
lint-prose:
	@$(step) 'prose' tools/lint/prose
lint-spelling:
	@$(step) 'spelling' sh -c 'git ls-files | grep -v "corpus\|Cargo.lock" | $(buildroot) xargs codespell'
lint-shell:
	@$(step) 'shell' sh -c '{ git grep -lI "^#!/bin/sh" | $(buildroot) xargs shellcheck --shell=dash; } && \
		git grep -lI "^#!/bin/bash" | $(buildroot) xargs -n 8 -P $(shell nproc) shellcheck'
lint-pylint:
	@$(step) 'pylint' sh -c '{ git ls-files "*.py"; git grep -lIP "^#!.*\bpython3?\b"; } | sort -u | $(buildroot) xargs pylint'
lint-mypy:
	@$(step) 'mypy' $(buildroot) mypy --config-file tools/lint/mypy.ini
lint-docs:
	@$(step) 'documents and figures' $(buildroot) tools/docs/html
lint-docs-commands:
	@$(step) 'commands of the documents' sh -c 'tools/docs/test_console.py && tools/docs/check --list'
lint-messages:
	@$(step) 'messages have an entry' tools/lint/messages
lint-format:
	@$(step) 'format' $(MAKE) --no-print-directory rustfmtcheck
lint-conformance:
	@$(step) 'conformance' tools/conformance/conformance --check
lint-conformance-tool:
	@$(step) 'tests of the conformance tool' tools/conformance/test_conformance.py
lint-lints:
	@$(step) 'lints of the lints' tools/lint/test_lint.py
lint-checks:
	@$(step) 'checks of the checks' tools/check/test_check.py
lint-probe:
	@$(step) --ktap 'messages of the build probe' tools/kbuild/test

# With RPCRDMA_VECTORS=FILE the vectors of that file, a line each, take the place of the tree's own.
core_with_vectors = tools/lab/buildroot --bind $(abspath $(RPCRDMA_VECTORS)):/tmp/vectors.json -- \
	env RPCRDMA_VECTORS=/tmp/vectors.json tools/proto/check

check-host: python ## The protocol core: vectors, properties, oracle, fuzzing, model, mistakes, cost; interleavings; dissector
	$(parts) $(host_parts:%=host-%)
host-core:
	@$(if $(RPCRDMA_VECTORS),$(core_with_vectors),$(step) --ktap 'protocol core' $(buildroot) tools/proto/check)
host-oracle:
	@$(step) 'headers as rpcgen makes them' tools/proto/oracle/check
host-fuzzing:
	@$(step) 'fuzzing' tools/proto/fuzz/check
host-model:
	@$(step) 'model' tools/proto/model/check
host-interleavings:
	@$(step) 'interleavings' tools/interleavings/check
host-mistakes:
	@$(step) 'seeded mistakes are found' tools/proto/mutations/check
host-cost:
	@$(step) 'cost of the core' tools/proto/cost/check
host-tables:
	@$(step) 'tables of measurements' sh -c \
		'tools/cost/test_cost.py && tools/bench/test_bench.py && tools/bench/tables --check'
host-status:
	@$(step) 'status of recorded machines' $(buildroot) tools/status/test_status.py
host-manual:
	@$(step) --ktap 'manual pages and completion' tools/status/check-manual
host-dissector:
	@$(step) --ktap 'dissector' tools/wireshark/check

check-build: python ## The module for Debian's 7.2 and 7.3 kernels, its installation and packages, clippy, rustdoc, checkpatch, and what must not compile
	$(parts) $(build_parts:%=build-%)
build-debian build-debian-7.3: build-%:
	@$(step) 'build for $*' tools/check/build $* $(out)/$*
build-clippy:
	@$(step) 'clippy' $(MAKE) --no-print-directory clippy
build-ownership: build-debian
	@$(step) --ktap 'ownership rules' $(buildroot) tools/lint/compile-fail $(out)/debian
build-rustdoc: build-debian
	@$(step) 'documentation of the crate' $(buildroot) tools/kbuild/rustdoc $(out)/debian
build-install: build-debian
	@$(step) --ktap 'installation' sh -c '$(buildroot) tools/kbuild/test-install "$$($(kdir) debian)" $(out)/debian'
build-deb: build-debian build-debian-7.3
	@$(step) --ktap 'packages' tools/packaging/check quick
build-checkpatch:
	@$(step) 'checkpatch' tools/lint/checkpatch

check-lab: python ## The selftests on nodes: User Mode Linux, its sanitizers, Debian's kernel
	@tools/check/check-lab

check-cost: python ## What one RPC executes in our client and server, against the baseline
	@$(step) --ktap 'cost of an RPC' tools/cost/cost --check

check-stress: python ## Two hours of broken connections, failing allocations, spoiled Replies; not in check
	@tools/check/check-lab --table check-stress

soak: python ## Half an hour of faults in random order, on either side, in both versions; not in check
	@tools/check/check-lab --table soak $(if $(SEED),--seed $(SEED))

check-nightly: python ## check, check-docs, check-deb, soak, check-stress, every seeded mistake of both lists (a night)
	@tools/check/total $(MAKE) --no-print-directory -k check-lint check-host check-build check-lab \
		check-end check-docs check-deb soak check-stress check-mistakes nightly-mutations

check-wire: python ## nfstest_rdma, all of it: our client and our server, beside the kernel's own
	@tools/check/check-wire

check-docs: python ## The commands of the documents for administrators, as they are written, on nodes; not in check
	@tools/docs/check

check-dissector: python ## Version 2 captured in the lab, dissected, compared with the nodes; not in check
	@$(step) --ktap 'dissector of a capture' tools/wireshark/check-live

check-nfstest: python ## Other suites of nfstest, our server beside the kernel's own; not in check
	@tools/check/check-nfstest

check-deb: python ## Debian packages: made twice and compared, lintian, installation, DKMS; not in check
	@$(step) 'packages are the same in another folder' tools/packaging/check made
	@$(step) 'lintian' tools/packaging/check lintian
	@$(step) --ktap 'packages installed' tools/packaging/check installed

check-wire-quick: python
	@tools/check/check-wire --quick

check-demo: python
	@$(step) 'demo' tools/demo/demo

# Each of these keeps one processor busy, the first one longest.
check-end: python
	$(parts) check-demo check-cost check-wire-quick

.PHONY: soak check-nightly check-mistakes nightly-mutations check-mutations
check-mistakes: python ## Mistakes in the protocol core that the host's tests must find (half an hour)
	@STEP_SECONDS=14400 $(step) --ktap 'seeded mistakes of the core' tools/proto/mutations/check --all --workers 2

nightly-mutations:
	@STEP_SECONDS=43200 $(step) --ktap 'seeded mistakes of the kernel code' tools/mutations/check
check-mutations: python ## Mistakes in the kernel code that the selftests must find (an hour)
	@tools/mutations/check

.PHONY: house
house: python ## Figures about names, functions, files and comments; Documentation/style.rst has the limits
	@tools/lint/house

.PHONY: conformance clippy rustfmt rustfmtcheck rustdoc rust-analyzer
conformance: python ## Table of requirements, where they are fulfilled and tested, into build/
	@tools/conformance/conformance

clippy: python ## Clippy with the kernel's configuration
	@CLIPPY=1 tools/check/build $(CHECK_KERNEL) $(out)/clippy

rustfmt: python ## Format all Rust code
	@$(buildroot) rustfmt --edition 2021 $(rust_roots)

rustfmtcheck: python ## Check the format of all Rust code
	@$(buildroot) rustfmt --edition 2021 --check $(rust_roots)

rustdoc: python ## Documentation of the crate, private items included, into build/rustdoc
	@tools/check/build $(CHECK_KERNEL) $(out)/debian
	@$(buildroot) tools/kbuild/rustdoc $(out)/debian

rust-analyzer: ## rust-project.json for editors
	+$(kbuild) rust-analyzer
