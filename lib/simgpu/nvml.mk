# The simulated libnvidia-ml.so.1, simgpuctl and their tests. STATE is what both simulated libraries
# are made of besides their own files.

SIM_STATE := $(addprefix lib/simgpu/,state.c place.c lock.c reap.c blocks.c schedule.c fault.c)
SIM_NVML := $(wildcard lib/simgpu/nvml_*.c) $(SIM_STATE)
SIM_CTL := $(wildcard lib/simgpu/ctl*.c) $(SIM_STATE)
SIM_NVML_LIBRARY := $(B)/lib/simgpu/libnvidia-ml.so.1
SIM_CTL_PROGRAM := $(B)/libexec/divvy/simgpuctl
SIM_NVML_TESTS := $(patsubst lib/simgpu/test/test_%.c,$(B)/test/simgpu/%,\
	$(wildcard lib/simgpu/test/test_nvml*.c))
sim_nvml_object = $(patsubst lib/%.c,$(B)/obj/simgpu-nvml/%.o,$(1))

ALL_C += $(SIM_NVML_LIBRARY) $(SIM_CTL_PROGRAM)
C_TESTS += $(SIM_NVML_TESTS)

-include $(wildcard $(B)/obj/simgpu-nvml/simgpu/*.d $(B)/obj/simgpu-nvml/simgpu/test/*.d)

$(B)/obj/simgpu-nvml/%.o: lib/%.c
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) -MMD -MP -c -o $@ $<

$(SIM_NVML_LIBRARY): $(call sim_nvml_object,$(SIM_NVML))
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS) $(SOFLAGS) -Wl,-soname,$(@F) -o $@ $^

$(SIM_CTL_PROGRAM): $(call sim_nvml_object,$(SIM_CTL))
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS) -o $@ $^

$(SIM_NVML_TESTS): $(B)/test/simgpu/%: $(B)/obj/simgpu-nvml/simgpu/test/test_%.o \
		$(call sim_nvml_object,$(SIM_NVML))
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS) -o $@ $^
