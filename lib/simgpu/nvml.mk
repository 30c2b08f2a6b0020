# The simulated libnvidia-ml.so.1, simgpuctl and their tests. Objects are made by the rule of build.mk,
# which includes this file.

SIMGPU_STATE := $(patsubst %,$(B)/obj/simgpu/%.o,state pids place lock blocks export reap clock engines schedule fault)
SIMGPU_NVML_OBJECTS := $(patsubst lib/simgpu/%.c,$(B)/obj/simgpu/%.o,$(wildcard lib/simgpu/nvml_*.c))
SIMGPU_CTL_OBJECTS := $(patsubst lib/simgpu/%.c,$(B)/obj/simgpu/%.o,$(wildcard lib/simgpu/ctl*.c))
SIMGPU_NVML := $(B)/lib/simgpu/libnvidia-ml.so.1
SIMGPU_CTL := $(B)/libexec/divvy/simgpuctl
SIMGPU_NVML_TESTS := $(patsubst lib/simgpu/test/test_%.c,$(B)/test/simgpu/%,\
	$(wildcard lib/simgpu/test/test_nvml*.c lib/simgpu/test/test_ctl*.c))

ALL_C += $(SIMGPU_NVML) $(SIMGPU_CTL)
C_TESTS += $(SIMGPU_NVML_TESTS)

$(SIMGPU_NVML): $(SIMGPU_NVML_OBJECTS) $(SIMGPU_STATE) $(B)/obj/simgpu/nvml.map
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS) $(SOFLAGS) -Wl,-soname,$(@F) -Wl,-Bsymbolic \
		-Wl,--version-script=$(B)/obj/simgpu/nvml.map -o $@ $(filter %.o,$^) -lpthread -ldl

# Exactly the described names are exported.
$(B)/obj/simgpu/nvml.map: lib/abi/generated/nvml_exports.txt
	@mkdir -p $(@D)
	(echo '{ global:'; sed 's/$$/;/' $<; echo 'local: *; };') >$@

$(SIMGPU_CTL): $(SIMGPU_CTL_OBJECTS) $(SIMGPU_STATE)
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS) -o $@ $^ -lpthread -ldl

$(SIMGPU_NVML_TESTS): $(B)/test/simgpu/%: $(B)/obj/simgpu/test/test_%.o $(B)/obj/simgpu/test/setting.o \
		$(SIMGPU_NVML_OBJECTS) $(filter-out %/ctl.o,$(SIMGPU_CTL_OBJECTS)) $(SIMGPU_STATE)
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS) -o $@ $^ -lpthread -ldl
