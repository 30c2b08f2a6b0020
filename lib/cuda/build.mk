# Our libcuda.so.1: stands in front of the driver's, which it depends on under the name
# libcuda-real.so.1.

CUDA_OBJECTS := $(patsubst lib/cuda/%.c,$(B)/obj/cuda/%.o,$(wildcard $(addprefix lib/cuda/,*.c memory/*.c time/*.c)))
CUDA_PARTS := $(SUBSTITUTE_OBJECTS) $(SHARE_OBJECTS)
CUDA_LIBRARY := $(B)/lib/divvy/libcuda.so.1
CUDA_STUB := $(B)/obj/cuda/stub/libcuda-real.so.1

# The agent overwrites this run path with the tenant's directory; it must be as long as any that.
RUNPATH_ROOM := /divvy-runpath-$(shell printf '%0497d' 0 | tr 0 .)

ALL_C += $(CUDA_LIBRARY)

-include $(wildcard $(addprefix $(B)/obj/cuda/,*.d memory/*.d time/*.d))

$(B)/obj/cuda/%.o: lib/cuda/%.c
	$(call step,CC)
	mkdir -p $(@D)
	$(CC) $(CFLAGS) -MMD -MP -c -o $@ $<

# Only its name matters: the linker writes it down as what ours depends on.
$(CUDA_STUB):
	$(call step,LINK)
	mkdir -p $(@D)
	echo | $(CC) $(SOFLAGS) -Wl,-soname,libcuda-real.so.1 -x c -o $@ -

$(CUDA_LIBRARY): $(CUDA_OBJECTS) $(CUDA_PARTS) $(CUDA_STUB) lib/cuda/exports.map \
		lib/cuda/link.sh $(LIBC_STUB)
	$(call step,LINK)
	mkdir -p $(@D)
	lib/cuda/link.sh $(CC) $(LDFLAGS) $(SOFLAGS) -Wl,-soname,libcuda.so.1 -Wl,-Bsymbolic \
		-Wl,--version-script=lib/cuda/exports.map -Wl,--enable-new-dtags \
		-Wl,-rpath,'$(RUNPATH_ROOM)' -o $@ $(CUDA_OBJECTS) $(CUDA_PARTS) -Wl,--no-as-needed $(CUDA_STUB) $(LINK_LIBC)

# Tests: of parts alone, and of the library in front of a fake driver.
CUDA_TEST_DRIVER := $(B)/test/cuda/driver.so
CUDA_SETTING := $(B)/obj/cuda/test/setting.o $(B)/obj/share/test/tenant.o $(SHARE_OBJECTS)
CUDA_TESTS := $(patsubst lib/cuda/test/test_%.c,$(B)/test/cuda/%,$(wildcard lib/cuda/test/test_*.c))
CUDA_SIM_TESTS := $(filter $(B)/test/cuda/sim_%,$(CUDA_TESTS))
SIM_DRIVER_FILES := $(B)/lib/simgpu/libcuda.so.1 $(B)/lib/simgpu/libnvidia-ml.so.1 \
	$(B)/lib/divvy/libnvidia-ml.so.1 $(B)/libexec/divvy/simgpuctl

C_TESTS += $(CUDA_TESTS)

-include $(wildcard $(B)/obj/cuda/test/*.d)

$(B)/obj/cuda/test/setting.o: CFLAGS += -DLIBRARY_UNDER_TEST='"$(abspath $(CUDA_LIBRARY))"' \
	-DTEST_DRIVER='"$(abspath $(CUDA_TEST_DRIVER))"'

$(B)/obj/cuda/test/sim.o: CFLAGS += -DSIM_DRIVER='"$(abspath $(B))/lib/simgpu/libcuda.so.1"' \
	-DSIM_NVML='"$(abspath $(B))/lib/simgpu/libnvidia-ml.so.1"' \
	-DOUR_NVML='"$(abspath $(B))/lib/divvy/libnvidia-ml.so.1"' \
	-DSIM_CTL='"$(abspath $(B))/libexec/divvy/simgpuctl"'
$(CUDA_SIM_TESTS): $(B)/obj/cuda/test/sim.o $(B)/obj/cuda/test/busy.o | $(SIM_DRIVER_FILES)

# The API suite in a share, and in a swap share.
$(B)/obj/cuda/test/suite.o: CFLAGS += -DAPI_SUITE='"$(abspath $(B)/test/api/apisuite)"'
$(B)/obj/cuda/test/test_sim_api.o $(B)/obj/cuda/test/test_sim_swap_api.o: CFLAGS += \
	-DDRIVER_LACKS='"$(abspath lib/simgpu/api_lacks.txt)"' -DAPI_LACKS='"$(abspath lib/cuda/test/api_lacks.txt)"' \
	-DSWAP_LACKS='"$(abspath lib/cuda/test/swap_lacks.txt)"'
$(B)/test/cuda/sim_api $(B)/test/cuda/sim_swap_api: $(B)/obj/cuda/test/suite.o | $(B)/test/api/apisuite

$(B)/test/cuda/sim_handles: $(B)/obj/cuda/test/handles.o
$(B)/test/cuda/sim_growth $(B)/test/cuda/sim_variables: $(B)/obj/cuda/test/code.o

$(B)/test/cuda/sim_storm: $(B)/obj/cuda/test/storm.o
$(addprefix $(B)/test/cuda/sim_,residence moves mover suspended): $(B)/obj/cuda/test/orders.o
$(B)/test/cuda/sim_residence $(B)/test/cuda/sim_moves: $(B)/obj/cuda/test/parts.o

$(B)/obj/cuda/test/instance.o: CFLAGS += -DSIM_NVML='"$(abspath $(B))/lib/simgpu/libnvidia-ml.so.1"'
$(B)/obj/cuda/test/test_sim_mig_nvml.o: CFLAGS += -DSIM_DRIVER='"$(abspath $(B))/lib/simgpu/libcuda.so.1"'
$(addprefix $(B)/test/cuda/sim_,mig mig_nvml mig_mps): $(B)/obj/cuda/test/instance.o

$(B)/test/cuda/mps $(B)/test/cuda/overhead: $(B)/obj/cuda/test/daemon.o

SIM_CONTROL := $(B)/lib/simgpu/nvidia-cuda-mps-control
$(B)/obj/cuda/test/control.o: CFLAGS += -DSIM_CONTROL='"$(abspath $(SIM_CONTROL))"'
$(addprefix $(B)/test/cuda/sim_,mps mig_mps): $(B)/obj/cuda/test/control.o | $(SIM_CONTROL)

CUDA_TEST_NVML := $(B)/test/cuda/nvml.so
$(B)/obj/cuda/test/test_overhead.o: CFLAGS += -DTEST_NVML='"$(abspath $(CUDA_TEST_NVML))"'
$(B)/test/cuda/overhead: | $(CUDA_TEST_NVML)

$(CUDA_TEST_NVML): $(B)/obj/cuda/test/nvml.o
	$(call step,LINK)
	mkdir -p $(@D)
	$(CC) $(LDFLAGS) -shared -Wl,-soname,libnvidia-ml.so.1 -o $@ $^

$(CUDA_TEST_DRIVER): $(B)/obj/cuda/test/driver.o $(B)/obj/cuda/test/heap.o
	$(call step,LINK)
	mkdir -p $(@D)
	$(CC) $(LDFLAGS) -shared -Wl,-soname,libcuda.so.1 -o $@ $^ -pthread

# A driver in front of simgpu's that judges what our library inserts.
CUDA_WATCH := $(B)/test/cuda/watch.so
$(addprefix $(B)/obj/cuda/test/test_sim_,streams.o priority.o green.o): \
	CFLAGS += -DWATCH='"$(abspath $(CUDA_WATCH))"'
$(addprefix $(B)/test/cuda/sim_,streams priority green): $(B)/obj/cuda/test/program.o | $(CUDA_WATCH)

$(CUDA_WATCH): $(B)/obj/cuda/test/watch.o
	$(call step,LINK)
	mkdir -p $(@D)
	$(CC) $(LDFLAGS) -shared -o $@ $^ -pthread -ldl

$(CUDA_TESTS): $(B)/test/cuda/%: $(B)/obj/cuda/test/test_%.o $(CUDA_SETTING) \
		| $(CUDA_LIBRARY) $(CUDA_TEST_DRIVER)
	$(call step,LINK)
	mkdir -p $(@D)
	$(CC) $(LDFLAGS) -pthread -o $@ $^

# Print costs; not run by make test.
$(addprefix $(B)/test/cuda/,cost steps): $(B)/test/cuda/%: $(B)/obj/cuda/test/%.o $(CUDA_SETTING) | $(CUDA_LIBRARY) $(CUDA_TEST_DRIVER)
	$(call step,LINK)
	$(CC) $(LDFLAGS) -pthread -o $@ $^

# For the bench: how often NVML is asked, and overhead that grows late. Not run by make test.
$(B)/obj/cuda/test/loads.o: CFLAGS += -DTEST_NVML='"$(abspath $(CUDA_TEST_NVML))"'
$(B)/test/cuda/loads: $(B)/obj/cuda/test/loads.o $(CUDA_SETTING) \
		| $(CUDA_LIBRARY) $(CUDA_TEST_DRIVER) $(CUDA_TEST_NVML)
	$(call step,LINK)
	mkdir -p $(@D)
	$(CC) $(LDFLAGS) -pthread -o $@ $^
$(B)/test/cuda/late: $(B)/obj/cuda/test/late.o
	$(call step,LINK)
	mkdir -p $(@D)
	$(CC) $(LDFLAGS) -o $@ $^ -ldl

# For the bench: what one call costs, and random operations in a share. Not run by make test.
$(B)/test/cuda/calls: $(B)/obj/cuda/test/calls.o $(CUDA_SETTING) | $(CUDA_LIBRARY) $(CUDA_TEST_DRIVER)
	$(call step,LINK)
	mkdir -p $(@D)
	$(CC) $(LDFLAGS) -pthread -o $@ $^
$(B)/test/cuda/handles: $(B)/obj/cuda/test/handles_main.o $(B)/obj/cuda/test/handles.o
	$(call step,LINK)
	mkdir -p $(@D)
	$(CC) $(LDFLAGS) -pthread -o $@ $^ -ldl

# A program that is linked against the driver's name.
CUDA_CLIENT := $(B)/test/cuda/client
$(B)/obj/cuda/test/test_sim_process.o: CFLAGS += -DCLIENT='"$(abspath $(CUDA_CLIENT))"'
$(B)/test/cuda/sim_process: | $(CUDA_CLIENT)

$(CUDA_CLIENT): $(B)/obj/cuda/test/client.o $(CUDA_LIBRARY)
	$(call step,LINK)
	mkdir -p $(@D)
	$(CC) $(LDFLAGS) -Wl,-rpath-link,$(dir $(CUDA_STUB)) -o $@ $^

$(B)/test/cuda/table: $(B)/obj/cuda/table.o
$(B)/test/cuda/image: $(addprefix $(B)/obj/cuda/memory/,expression.o image.o text.o)
$(B)/test/cuda/fuzz_visible: $(B)/obj/cuda/visible.o
$(B)/test/cuda/swapped: $(B)/obj/cuda/memory/swapped.o

# The files themselves; a sanitizer adds names and dependencies of its own.
ifeq ($(SAN),)
C_TESTS += $(B)/test/cuda/exports $(B)/test/cuda/hooks
endif
$(B)/test/cuda/exports: lib/cuda/test/exports.sh | $(CUDA_LIBRARY)
	$(call step,GEN)
	mkdir -p $(@D)
	printf '#!/bin/sh\nexec %s %s\n' $< $(CUDA_LIBRARY) >$@ && chmod +x $@
$(B)/test/cuda/hooks: lib/cuda/test/hooks.sh lib/cuda/link.sh | $(CUDA_LIBRARY)
	@mkdir -p $(@D)
	printf '#!/bin/sh\nexec %s "%s" %s\n' $< '$(CC)' \
		'$(filter-out %/names.o,$(CUDA_OBJECTS)) $(CUDA_PARTS)' >$@ && chmod +x $@
