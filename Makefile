# SPDX-License-Identifier: GPL-2.0
#
# `make help` lists what there is.

KDIR ?= /lib/modules/$(shell uname -r)/build
MO ?=

# What the kernel was built with decides what the module is built with.
kconfig = $(shell sed -n 's/^CONFIG_$(1)=//p' $(KDIR)/include/config/auto.conf 2>/dev/null)
kernel_cc = $(firstword $(subst ",,$(call kconfig,CC_VERSION_TEXT)))
kernel_make_args = $(if $(call kconfig,UML),ARCH=um) \
	$(if $(call kconfig,CC_IS_CLANG),LLVM=1,CC=$(kernel_cc))

kbuild = $(MAKE) -C $(KDIR) M=$(CURDIR) $(if $(MO),MO=$(abspath $(MO))) \
	$(kernel_make_args) KRUSTFLAGS=-Dwarnings

.PHONY: modules clean
modules:
	+$(kbuild) modules

clean:
	+$(kbuild) clean
