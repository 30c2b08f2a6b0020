# The test for real GPUs: its probe in C, and the archive with which anyone with a GPU can run it.
.PHONY: gpu-test gpu-test-bundle gpu-test-folder

gpuprobe_objects := $(patsubst %.c,$(B)/obj/%.o,$(wildcard test/gpu/probe/*.c))

$(gpuprobe_objects): $(B)/obj/%.o: %.c $(wildcard test/gpu/probe/*.h lib/abi/*/*.h)
	$(call step,CC)
	mkdir -p $(@D)
	$(CC) $(CFLAGS) -c $< -o $@

$(B)/test/gpu/gpuprobe: $(gpuprobe_objects) | $(LIBC_STUB)
	$(call step,LINK)
	mkdir -p $(@D)
	$(CC) $(LDFLAGS) $^ -o $@ $(LINK_LIBC)

# A program that needs nothing of the machine, not even a C library.
$(B)/test/gpu/gpu-test: FORCE
	$(call step,GO)
	CGO_ENABLED=0 $(GO) build -ldflags '-s -w' -o $@ ./test/gpu

GPU_TEST := divvy-gpu-test-$(shell cat internal/version/VERSION)-$(shell uname -m)
GPU_TEST_FOLDER := $(B)/test/gpu/$(GPU_TEST)

gpu-test-folder: build $(B)/bin/gpubench $(B)/test/gpu/gpuprobe $(B)/test/gpu/gpu-test
	rm -rf $(GPU_TEST_FOLDER)
	install -D -t $(GPU_TEST_FOLDER) $(B)/test/gpu/gpu-test
	install -D -m 644 -t $(GPU_TEST_FOLDER) test/gpu/README.txt LICENSE
	install -D -t $(GPU_TEST_FOLDER)/bin $(B)/bin/divvy $(B)/bin/gpubench
	install -D -t $(GPU_TEST_FOLDER)/lib/divvy $(B)/lib/divvy/*
	install -D -t $(GPU_TEST_FOLDER)/lib/remote $(B)/lib/remote/*
	install -D -t $(GPU_TEST_FOLDER)/lib/simgpu $(B)/lib/simgpu/*
	install -D -t $(GPU_TEST_FOLDER)/libexec/divvy $(B)/test/gpu/gpuprobe $(filter-out %/divvy-cluster,$(wildcard $(B)/libexec/divvy/*))
	strip $(GPU_TEST_FOLDER)/lib/*/* $(GPU_TEST_FOLDER)/libexec/divvy/* $(GPU_TEST_FOLDER)/bin/gpubench

gpu-test-bundle: gpu-test-folder ## one archive with which anyone with a GPU can try Divvy: no compiler, network or root
	$(call step,TAR,$(B)/test/gpu/$(GPU_TEST).tar.gz)
	tar -C $(B)/test/gpu --sort=name --owner=0 --group=0 --numeric-owner -czf $(B)/test/gpu/$(GPU_TEST).tar.gz $(GPU_TEST)
	@printf 'next, on a machine with a GPU: tar -xzf %s && cd %s && ./gpu-test\n' $(GPU_TEST).tar.gz $(GPU_TEST)

gpu-test: gpu-test-folder ## the same at length on this machine's GPU; the report goes to docs/measurements/cards
	$(GPU_TEST_FOLDER)/gpu-test -thorough -out docs/measurements/cards/report.md

# What the tests unpack and run, and whose code they compile.
test-go: gpu-test-bundle
test-programs: $(B)/test/gpu/gpuprobe
