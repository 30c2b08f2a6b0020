# The simulated driver: libcuda.so.1, libnvidia-ml.so.1, nvidia-cuda-mps-control, nvidia-smi, simgpuctl and their tests. It
# shares nothing with the libraries under test but the descriptions in lib/abi. Each room is one folder; the five that are
# linked into files take the machine's objects and nothing of each other.

SIMGPU_ROOMS := machine cuda nvml mps smi ctl
SIMGPU_OBJ := $(B)/obj/simgpu
SIMGPU_TEST := $(B)/test/simgpu
# $(call SIMGPU_OBJECTS,room)
SIMGPU_OBJECTS = $(patsubst lib/%.c,$(B)/obj/%.o,$(wildcard lib/simgpu/$1/*.c))
# $(call SIMGPU_TESTS,room): a room's tests, each of them one program.
SIMGPU_TESTS = $(patsubst lib/simgpu/$1/test/test_%.c,$(SIMGPU_TEST)/$1/%,$(wildcard lib/simgpu/$1/test/test_*.c))

SIMGPU_CUDA := $(B)/lib/simgpu/libcuda.so.1
SIMGPU_NVML := $(B)/lib/simgpu/libnvidia-ml.so.1
SIMGPU_MPS := $(B)/lib/simgpu/nvidia-cuda-mps-control
SIMGPU_SERVER := $(B)/lib/simgpu/nvidia-cuda-mps-server
SIMGPU_SMI := $(B)/lib/simgpu/nvidia-smi
SIMGPU_CTL := $(B)/libexec/divvy/simgpuctl

ALL_C += $(SIMGPU_CUDA) $(SIMGPU_NVML) $(SIMGPU_MPS) $(SIMGPU_SERVER) $(SIMGPU_SMI) $(SIMGPU_CTL)
# The published experiments have one thread: TSAN would find nothing there, in six minutes.
C_TESTS += $(filter-out $(if $(filter tsan,$(SAN)),%/published),$(foreach room,$(SIMGPU_ROOMS),$(call SIMGPU_TESTS,$(room))))

-include $(foreach room,$(SIMGPU_ROOMS),$(wildcard $(SIMGPU_OBJ)/$(room)/*.d $(SIMGPU_OBJ)/$(room)/test/*.d))

$(SIMGPU_OBJ)/%.o: lib/simgpu/%.c
	$(call step,CC)
	mkdir -p $(@D)
	$(CC) $(CFLAGS) -MMD -MP -c -o $@ $<

# dead.c finds the exported function on the stack: each keeps its frame, and tests export theirs.
$(call SIMGPU_OBJECTS,cuda): CFLAGS += -fno-optimize-sibling-calls
$(call SIMGPU_TESTS,cuda): LDFLAGS += -rdynamic

$(SIMGPU_CUDA): $(call SIMGPU_OBJECTS,cuda) $(SIMGPU_OBJ)/cuda.map
$(SIMGPU_NVML): $(call SIMGPU_OBJECTS,nvml) $(SIMGPU_OBJ)/nvml.map
$(SIMGPU_CUDA) $(SIMGPU_NVML): $(call SIMGPU_OBJECTS,machine) | $(LIBC_STUB)
	$(call step,LINK)
	mkdir -p $(@D)
	$(CC) $(LDFLAGS) $(SOFLAGS) -Wl,-soname,$(@F) -Wl,-Bsymbolic \
		-Wl,--version-script=$(filter %.map,$^) -o $@ $(filter %.o,$^) $(LINK_LIBC)

# Exactly the described names are exported.
$(SIMGPU_OBJ)/%.map: lib/abi/generated/%_exports.txt
	$(call step,GEN)
	mkdir -p $(@D)
	(echo '{ global:'; sed 's/$$/;/' $<; echo 'local: *; };') >$@

$(SIMGPU_MPS): $(call SIMGPU_OBJECTS,mps)
$(SIMGPU_SMI): $(call SIMGPU_OBJECTS,smi)
$(SIMGPU_CTL): $(call SIMGPU_OBJECTS,ctl)
$(SIMGPU_MPS) $(SIMGPU_SMI) $(SIMGPU_CTL): $(call SIMGPU_OBJECTS,machine) | $(LIBC_STUB)
	$(call step,LINK)
	mkdir -p $(@D)
	$(CC) $(LDFLAGS) -o $@ $^ $(LINK_LIBC)

# One program under two names: the daemon looks for the other on its PATH.
$(SIMGPU_SERVER): $(SIMGPU_MPS)
	$(call step,LINK)
	cp $< $@

# Tests link a room's objects, so that they can ask the state for the truth. Those of simgpuctl's commands
# see what the commands do through the simulated libnvidia-ml.
$(call SIMGPU_TESTS,cuda): $(call SIMGPU_OBJECTS,cuda) $(SIMGPU_OBJ)/cuda/test/cuda.o $(SIMGPU_OBJ)/cuda/test/controlled.o
$(call SIMGPU_TESTS,nvml): $(call SIMGPU_OBJECTS,nvml)
# The control daemon and its clients in one program.
$(call SIMGPU_TESTS,mps): $(filter-out %/main.o,$(call SIMGPU_OBJECTS,mps)) $(SIMGPU_OBJ)/mps/test/daemon.o $(call SIMGPU_OBJECTS,cuda) $(SIMGPU_OBJ)/cuda/test/cuda.o
$(call SIMGPU_TESTS,mps): LDFLAGS += -rdynamic
$(call SIMGPU_TESTS,smi): $(filter-out %/main.o,$(call SIMGPU_OBJECTS,smi))
$(call SIMGPU_TESTS,ctl): $(call SIMGPU_OBJECTS,nvml) $(filter-out %/main.o,$(call SIMGPU_OBJECTS,ctl))

# A rule for each room: the folder stands in the middle of its objects' names.
define SIMGPU_TEST_RULE
$(SIMGPU_TEST)/$1/%: $(SIMGPU_OBJ)/$1/test/test_%.o $(SIMGPU_OBJ)/machine/test/setting.o $(call SIMGPU_OBJECTS,machine)
	$$(call step,LINK)
	mkdir -p $$(@D)
	$$(CC) $$(LDFLAGS) -o $$@ $$^ -lpthread -ldl
endef
$(foreach room,$(SIMGPU_ROOMS),$(eval $(call SIMGPU_TEST_RULE,$(room))))

# The file itself; a sanitizer adds names and dependencies of its own.
ifeq ($(SAN),)
C_TESTS += $(SIMGPU_TEST)/exports
endif
$(SIMGPU_TEST)/exports: lib/simgpu/cuda/test/exports.sh | $(SIMGPU_CUDA)
	$(call step,GEN)
	mkdir -p $(@D)
	printf '#!/bin/sh\nexec %s %s\n' $< $(SIMGPU_CUDA) >$@ && chmod +x $@

# The API suite on the simulated driver.
$(SIMGPU_OBJ)/machine/test/test_api.o: CFLAGS += -DAPI_SUITE='"$(abspath $(B)/test/api/apisuite)"' -DAPI_LACKS='"$(abspath lib/simgpu/api_lacks.txt)"' -DSIMGPU_FOLDER='"$(abspath $(B)/lib/simgpu)/"'
$(SIMGPU_TEST)/machine/api: | $(B)/test/api/apisuite $(SIMGPU_CUDA) $(SIMGPU_NVML)
