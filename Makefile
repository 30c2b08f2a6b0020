# Builds and tests Divvy. `make help` lists the targets.
#
# C parts add themselves through lib/<part>/build.mk: they append products to
# ALL_C and test executables (exit status 0 means passed) to C_TESTS.

SAN ?=
B ?= build$(if $(SAN),-$(SAN))
CC ?= gcc
GO ?= go

WARN := -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Wstrict-prototypes -Werror
# UndefinedBehaviorSanitizer runs with AddressSanitizer: each finds what it finds alone. All with little optimisation and the
# numbers of lines alone: otherwise the compiler takes ten times as long for large functions.
SANFLAGS_asan := -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer
SANFLAGS_tsan := -fsanitize=thread
ifneq ($(SAN),)
SANFLAGS_$(SAN) += -O1 -g1
endif
ARCHFLAGS := $(if $(filter x86_64,$(shell uname -m)),-mcx16)
# No file that is built names the folder that it was built in: two folders give the same bytes.
CFLAGS += -std=gnu11 -O2 -g -ffile-prefix-map='$(CURDIR)=.' -fPIC -fvisibility=hidden $(ARCHFLAGS) $(WARN) $(SANFLAGS_$(SAN)) -Ilib
LDFLAGS += $(SANFLAGS_$(SAN))
SOFLAGS := -shared -Wl,-z,defs -Wl,-z,relro -Wl,-z,now -Wl,-z,nodelete -Wl,--build-id

# One set of flags for programs, tests and tools, so that each package is compiled once.
export GOFLAGS := $(strip $(filter-out -trimpath,$(shell $(GO) env GOFLAGS)) -trimpath)
# NVML's functions are bound when they are first called: a driver may lack some (internal/nvml).
export CGO_LDFLAGS := -Wl,-z,lazy
export CGO_CFLAGS := -O2 -g -Wno-deprecated-declarations

ALL_C :=
C_TESTS :=

# A step prints one line, $(call step,WHAT) or $(call step,WHAT,of which); V=1 prints the commands instead.
V ?=
ifneq ($(V),1)
.SILENT:
step = printf '  %-8s%s\n' '$(1)' '$(or $(2),$@)'
endif

PREFIX ?= /usr/local
# The time of all files of a release, in seconds since 1970: that of the commit, or of the epoch where there is none.
SOURCE_DATE_EPOCH ?= $(or $(shell git log -1 --format=%ct 2>/dev/null),0)
JOBS ?= $(shell nproc)
GOTESTFLAGS ?=
# A pattern or the beginning of an id. Recipes read it from the environment as it was given: make would expand a $ in it.
ONLY ?=
override ONLY := $(value ONLY)
export ONLY

.DEFAULT_GOAL := build
.PHONY: all build c clean help install generate versions lint format test test-parts test-c test-go test-run test-scheduler test-faults test-steady test-deps test-drivers test-containers test-programs fuzz \
	images bench bench-backends bench-drivers bench-none bench-mem bench-mig bench-ops bench-place bench-promises bench-queues bench-queues-tests bench-queues-plane bench-queues-cluster bench-remote bench-sched bench-slots bench-swap bench-time bench-vm measurements FORCE

# The objects that others link are named first.
LINKED := lib/libc/build.mk lib/share/build.mk lib/substitute/build.mk
include $(LINKED) $(filter-out $(LINKED),$(wildcard lib/*/build.mk examples/*/build.mk test/*/build.mk))

all: build
build: c $(B)/bin/divvy $(B)/libexec/divvy/divvy-cluster $(B)/libexec/divvy/divvy-scheduler ## everything: command line, libraries, simulated driver
c: $(ALL_C)

# Users run it on their hosts, which may be as old as the libraries' containers: it is linked as those are.
$(B)/bin/divvy: FORCE | $(LIBC_STUB)
	$(call step,GO)
	$(GO) build -ldflags '-s -w -buildid= -linkmode external -extldflags "$(subst $(LIBC_STUB),$(abspath $(LIBC_STUB)),$(LINK_LIBC))"' -o $@ ./cmd/divvy
$(B)/libexec/divvy/divvy-cluster: FORCE
	$(call step,GO)
	$(GO) build -ldflags '-s -w' -o $@ ./cmd/divvy-cluster
# A module of its own, for it is made of Kubernetes' scheduler. Nothing in it needs C.
$(B)/libexec/divvy/divvy-scheduler: FORCE
	$(call step,GO)
	CGO_ENABLED=0 $(GO) build -C cmd/divvy-scheduler -ldflags '-s -w' -o $(abspath $@) .

install: build ## copy what was built below PREFIX
	$(call step,INSTALL,$(DESTDIR)$(PREFIX))
	install -D -t $(DESTDIR)$(PREFIX)/bin $(B)/bin/divvy
	ln -sf divvy $(DESTDIR)$(PREFIX)/bin/kubectl-divvy
	install -D -t $(DESTDIR)$(PREFIX)/lib/divvy $(B)/lib/divvy/*
	install -D -t $(DESTDIR)$(PREFIX)/lib/remote $(B)/lib/remote/*
	install -D -t $(DESTDIR)$(PREFIX)/lib/simgpu $(B)/lib/simgpu/*
	install -D -t $(DESTDIR)$(PREFIX)/libexec/divvy $(B)/libexec/divvy/*

generate: versions ## rewrite what is generated
	$(call step,GEN,from abi/ and hack/layers/ and the code)
	$(GO) run ./abi/gen
	$(GO) run ./hack/layers
	$(GO) run ./hack/reference
	$(GO) run ./hack/picture
.PHONY: pictures
pictures: ## draw the screens of divvy top and ls, as their tests hold them, for README
	$(call step,GEN,docs/pictures)
	$(GO) run ./hack/picture
versions: ## copy internal/version/VERSION to the chart, and to the images that documents and tests name
	$(call step,GEN,versions)
	hack/version.sh

lint: ## golangci-lint, clang-format, clang-tidy, size rules, directions in lib
	$(call step,LINT,Go and C)
	hack/lint.sh

format: ## format the C files
	$(call step,FORMAT,C)
	hack/clang-format.sh

test: $(B)/obj/leftover ## all that needs neither root nor a GPU; fails also if a test leaves a process running
	+$(B)/obj/leftover $(MAKE) --no-print-directory -j$$(($(JOBS) + 1)) --output-sync=target test-parts
test-parts: test-run test-c test-go test-scheduler
test-c: $(C_TESTS:%=%.passed) ## C tests; SAN=asan (with UBSAN) or SAN=tsan builds them instrumented
$(C_TESTS:%=%.passed): %.passed: % | c
	$(call step,TEST,$*)
	$*
# The results of earlier runs are not used again: go test does not see that a library has changed.
test-go: build $(B)/bin/gpubench $(API_SUITE) $(REMOTE_API_LACKS)
	$(call step,TEST,go test ./...)
	+DIVVY_PREFIX=$(abspath $(B)) $(GO) test -count=1 -timeout 30m $(GOTESTFLAGS) $$($(GO) list ./... | grep -v '/test/run$$')
# Its tests take as long as those of all other packages together, and mostly wait: so they begin first, and count for no processor.
# go test would begin them near its end.
test-run: build $(B)/bin/gpubench $(API_SUITE) $(REMOTE_API_LACKS)
	$(call step,TEST,go test ./test/run)
	+DIVVY_PREFIX=$(abspath $(B)) $(GO) test -count=1 -timeout 30m $(GOTESTFLAGS) ./test/run
test-scheduler: build $(B)/test/scheduler/crashing ## the scheduler against a real API server, where Kubernetes' programs were built
	$(call step,TEST,the scheduler)
	+DIVVY_PREFIX=$(abspath $(B)) CGO_ENABLED=0 $(GO) test -C cmd/divvy-scheduler -count=1 -timeout 20m $(GOTESTFLAGS) ./...
test-faults: build $(B)/test/scheduler/crashing ## bind pods while everything that the scheduler stands on fails at random (BINDS=20000, SEED=n repeats a run)
	$(call step,TEST,the scheduler among faults)
	+DIVVY_PREFIX=$(abspath $(B)) CGO_ENABLED=0 $(GO) test -C cmd/divvy-scheduler -count=1 -timeout 180m -v -run '^TestFaults$$' $(GOTESTFLAGS) ./faults -binds $${BINDS:-20000} -seed $${SEED:-0} -out $(abspath docs/measurements/sched.json)
# The scheduler that kills itself after the steps that a test names: no part of what is shipped.
$(B)/test/scheduler/crashing: FORCE
	$(call step,GO)
	CGO_ENABLED=0 $(GO) build -C cmd/divvy-scheduler -ldflags '-s -w' -o $(abspath $@) ./crashing
test-steady: ## make test ten times, five of them beside a load on every core (RUNS=10)
	hack/test-steady.sh

test-drivers: build $(B)/bin/gpubench ## hold our libraries against NVIDIA's user-space drivers, which Debian packages; installs nothing
	$(call step,TEST,against the drivers of NVIDIA)
	hack/drivers.sh .cache/drivers
	hack/runtimes.sh .cache/runtimes
	DIVVY_REQUIRE=drivers,$$DIVVY_REQUIRE DIVVY_PREFIX=$(abspath $(B)) $(GO) test -count=1 -timeout 20m ./internal/mps
	DIVVY_REQUIRE=drivers,$$DIVVY_REQUIRE DIVVY_PREFIX=$(abspath $(B)) $(GO) test -count=1 -timeout 20m ./test/drivers $(GOTESTFLAGS)
test-containers: build $(B)/bin/gpubench ## run the examples of docs/containers.md with podman, Docker, Slurm, Open MPI and Jupyter, as root; downloads them, installs nothing
	$(call step,TEST,containers and batch jobs)
	hack/podman.sh .cache/podman
	hack/docker.sh .cache/docker
	hack/apptainer.sh .cache/apptainer
	hack/slurm.sh .cache/slurm
	hack/mpi.sh .cache/mpi
	hack/jupyter.sh .cache/jupyter
	DIVVY_REQUIRE=podman,docker,slurm,mpi,jupyter,$$DIVVY_REQUIRE DIVVY_PREFIX=$(abspath $(B)) $(GO) test -count=1 -timeout 10m $(GOTESTFLAGS) ./test/containers
test-programs: build $(B)/bin/gpubench ## run other projects' programs on the simulated driver and in shares; downloads them, installs nothing
	$(call step,TEST,programs of other projects)
	hack/programs.sh .cache/programs
	DIVVY_REQUIRE=programs,$$DIVVY_REQUIRE DIVVY_PREFIX=$(abspath $(B)) $(GO) test -count=1 -timeout 10m $(GOTESTFLAGS) ./test/programs
$(B)/obj/leftover: FORCE
	$(call step,GO)
	$(GO) build -o $@ ./hack/leftover

images: build $(B)/bin/gpubench ## container images as OCI archives, in build/images
	$(call step,IMAGE,$(B)/images)
	$(GO) run ./hack/image -build $(B) -out $(B)/images divvy gpubench pause

.PHONY: dist test-dist
dist: images $(B)/obj/write-deb ## what a release consists of, in build/dist: archive, Debian package, images, chart, checksums
	$(call step,DIST,$(B)/dist)
	$(GO) run ./hack/dist -build $(B) -deb $(B)/obj/write-deb -time $(SOURCE_DATE_EPOCH)
# A module of its own, so that nothing that writes packages is a dependency of the programs.
$(B)/obj/write-deb: FORCE
	$(call step,GO)
	CGO_ENABLED=0 $(GO) build -C hack/deb -o $(abspath $@) .

test-dist: dist ## the Debian package on a machine with systemd in namespaces, and docs/lab.md there, as root
	$(call step,TEST,the Debian package)
	DIVVY_DIST=$(abspath $(B)/dist) $(GO) test -count=1 -timeout 10m -v ./test/dist

fuzz: ## seek new inputs with each fuzz target for five minutes (DIVVY_FUZZTIME=10m, ONLY=pattern)
	$(call step,FUZZ)
	hack/fuzz.sh "$$ONLY"

test-deps: ## install the programs that tests and lint drive (as root, from the distribution)
	$(call step,DEPS,programs for tests and lint)
	hack/test-deps.sh
	hack/prometheus.sh .cache/prometheus
	hack/grafana.sh .cache/grafana

# What has figures of every area; of an id alone, the one area in whose name it begins.
BENCHES := bench-mem bench-place bench-mig bench-time bench-promises bench-drivers bench-backends bench-ops bench-remote bench-swap bench-vm
bench: $(or $(filter bench-$(firstword $(subst ., ,$(ONLY)))%,$(BENCHES)),bench-none) measurements ## measure everything and write docs/measurements (ONLY=time.pair for a part)
bench-none:
	echo "no figure's id begins with $$ONLY" >&2
	false
bench-mem: build $(B)/test/share/crash ## memory: limits, overhead, reclaim, crashes
	$(call step,BENCH,memory)
	$(GO) run ./test/bench/mem -build $(B) -only "$$ONLY"
bench-place: ## allocator: packing of public traces, decisions per second
	$(call step,BENCH,allocator)
	$(GO) run ./test/bench/place -only "$$ONLY"
bench-mig: build $(B)/bin/gpubench ## MIG: how well instances are placed, by the policy and through Kubernetes' allocator
	$(call step,BENCH,MIG)
	$(GO) run ./test/bench/mig -build $(B) -all -only "$$ONLY"
bench-time: build $(B)/bin/gpubench $(B)/test/cuda/cost ## compute: caps, weights, classes and what they cost
	$(call step,BENCH,compute)
	$(GO) run ./test/bench/time -build $(B) -only "$$ONLY"
bench-promises: build $(B)/bin/gpubench $(B)/test/cuda/handles $(B)/test/cuda/calls $(B)/test/cuda/sim_storm ## what README and design promise: limits, caps, users, agents that die
	$(call step,BENCH,promises)
	$(GO) run ./test/bench/promises -build $(B) -only "$$ONLY"
bench-drivers: build $(B)/bin/gpubench $(addprefix $(B)/test/cuda/,calls late loads) $(CUDA_SIM_TESTS) ## how near a share is to NVIDIA's own drivers, which Debian packages
	$(call step,BENCH,drivers)
	hack/drivers.sh .cache/drivers
	hack/programs.sh .cache/programs
	$(GO) run ./test/bench/drivers -build $(B) -only "$$ONLY"
bench-backends: build $(B)/bin/gpubench ## the driver's own ways to share a GPU: forms of GPUs, limits and faults under MPS; root
	$(call step,BENCH,backends)
	$(GO) run ./test/bench/backends -build $(B) -only "$$ONLY"
bench-ops: build $(B)/bin/gpubench ## seeing a server's GPUs and shares: metrics, ls, top; two builds of the release compared
	$(call step,BENCH,operation)
	case "$$ONLY" in ops.page*) ;; *) $(GO) run ./test/bench/ops -build $(B) -only "$$ONLY" ;; esac
	case "$$ONLY" in ops|ops.|ops.page*|'') $(MAKE) bench-web ;; esac
bench-remote: build $(B)/bin/gpubench $(B)/test/remote/worker_garbage $(B)/test/remote/difference ## programs that are kept away from the driver, beside local shares: steps, calls, copies, starts, deaths, commands on another host, limits
	$(call step,BENCH,the driver elsewhere)
	$(GO) run ./test/bench/remote -build $(B) -only "$$ONLY"
bench-swap: build $(B)/bin/gpubench $(B)/test/simgpu/machine/published $(B)/test/cuda/steps ## more memory than the GPU has: turns, what they cost and whom, and shares that sleep; published experiments
	$(call step,BENCH,memory beyond the GPU)
	$(GO) run ./test/bench/swap -build $(B) -only "$$ONLY"
bench-sched: $(B)/libexec/divvy/divvy-cluster $(B)/libexec/divvy/divvy-scheduler ## the scheduler of Kubernetes with our slices on 1,000 nodes, Divvy's own, and the webhook beside 64,000 claims; no root
	hack/e2e-deps.sh --kubernetes v1.36
	$(call step,BENCH,scheduler)
	$(GO) run ./test/bench/sched -build $(B) -v -only "$$ONLY"
bench-slots: $(B)/libexec/divvy/divvy-cluster ## mode slots through the scheduler of Kubernetes 1.35 with Divvy's extender: filter, rate, packing, restart, faults (BINDS=200, SEED=n); no root
	hack/e2e-deps.sh --kubernetes v1.35
	$(call step,BENCH,slots)
	$(GO) run ./test/bench/slots -build $(B) -v -only "$$ONLY" -binds $${BINDS:-20000} -seed $${SEED:-0}
# Of queues, what tests without a cluster tell, what is measured on a control plane, and what the tests on real clusters tell.
QUEUES_tests := queue.victims queue.random_sequences queue.verdict_ms queue.thrash
QUEUES_plane := queue.reclaim_s queue.fairness_points queue.rate_ratio
QUEUES_cluster := queue.key_case
asked_queues = $(filter $(ONLY)%,$(QUEUES_$(1)))
bench-queues: $(or $(strip $(foreach part,tests plane cluster,$(if $(call asked_queues,$(part)),bench-queues-$(part)))),bench-none) ## queues: victims, refusals, taking back, fairness, rates; ONLY=queue.key_case on a real cluster, as root
bench-queues-tests:
	$(call step,BENCH,queues)
	for id in $(call asked_queues,tests); do $(GO) run ./test/bench/queues -only "$$id" || exit; done
bench-queues-plane: $(B)/libexec/divvy/divvy-scheduler
	hack/e2e-deps.sh --kubernetes v1.36
	$(call step,BENCH,queues in the scheduler)
	for id in $(call asked_queues,plane); do $(GO) run ./test/bench/sched -build $(B) -v -only "$$id" || exit; done
bench-queues-cluster: e2e-ready
	$(call step,BENCH,queues on a real cluster)
	for id in $(call asked_queues,cluster); do DIVVY_PREFIX=$(abspath $(B)) $(GO) run ./test/bench/queues -v -only "$$id" || exit; done
bench-vm: ## devices for virtual machines: what tests tell, most of them in a guest of QEMU without KVM; unpacks QEMU and a kernel
	hack/vm-kit.sh $(VM_KIT)
	$(MAKE) --no-print-directory vm-parts
	$(call step,BENCH,devices for virtual machines)
	$(GO) run ./test/bench/vm -build $(B) -only "$$ONLY"
measurements: ## the table for people from docs/measurements/*.json
	$(call step,GEN,docs/measurements/README.md)
	$(GO) run ./test/bench/table docs/measurements

clean:
	$(call step,CLEAN,build build-*)
	rm -rf build build-*

help: ## this list
	@grep -hE '^[a-z0-9-]+:.*## ' Makefile test/*/build.mk 2>/dev/null | sed -E 's/:[^#]*## /\t/' | expand -t 14
