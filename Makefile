# Builds and tests Divvy. `make help` lists the targets.
#
# C parts add themselves through lib/<part>/build.mk: they append products to
# ALL_C and test executables (exit status 0 means passed) to C_TESTS.

SAN ?=
B ?= build$(if $(SAN),-$(SAN))
CC ?= gcc
GO ?= go

WARN := -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Wstrict-prototypes -Werror
SANFLAGS_asan := -fsanitize=address -fno-omit-frame-pointer
SANFLAGS_ubsan := -fsanitize=undefined -fno-sanitize-recover=all
SANFLAGS_tsan := -fsanitize=thread
ARCHFLAGS := $(if $(filter x86_64,$(shell uname -m)),-mcx16)
CFLAGS += -std=gnu11 -O2 -g -fPIC -fvisibility=hidden $(ARCHFLAGS) $(WARN) $(SANFLAGS_$(SAN)) -Ilib
LDFLAGS += $(SANFLAGS_$(SAN))
SOFLAGS := -shared -Wl,-z,defs -Wl,-z,relro -Wl,-z,now -Wl,-z,nodelete -Wl,--build-id

# NVML's functions are bound when they are first called: a driver may lack some (internal/nvml).
export CGO_LDFLAGS := -Wl,-z,lazy
export CGO_CFLAGS := -O2 -g -Wno-deprecated-declarations

ALL_C :=
C_TESTS :=

.DEFAULT_GOAL := build
.PHONY: all build c clean help test test-c test-go lint generate

include $(wildcard lib/*/build.mk examples/*/build.mk)

all: build
build: c $(B)/bin/divvy
c: $(ALL_C)

.PHONY: FORCE
$(B)/bin/divvy: FORCE
	$(GO) build -trimpath -o $@ ./cmd/divvy

generate:
	$(GO) run ./abi/gen

test: test-c test-go
test-c: $(C_TESTS)
	@for t in $(C_TESTS); do echo "== $$t"; $$t || exit 1; done
test-go: build
	$(GO) test ./...

clean:
	rm -rf build build-*
