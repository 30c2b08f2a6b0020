# Calls from another machine: what is generated of client and worker, and its tests.

REMOTE_OBJ := $(B)/obj/remote
REMOTE_TEST := $(B)/test/remote
REMOTE_CLIENT := $(REMOTE_OBJ)/call.o $(REMOTE_OBJ)/generated/cuda_stubs.o $(REMOTE_OBJ)/generated/nvml_stubs.o
REMOTE_DECODER := $(REMOTE_OBJ)/decode.o $(addprefix $(REMOTE_OBJ)/generated/,numbers.o cuda_decode.o nvml_decode.o)
REMOTE_LOOPBACK := $(REMOTE_OBJ)/test/loopback.o $(REMOTE_OBJ)/test/exercise.o \
	$(addprefix $(REMOTE_OBJ)/test/generated/,cuda_stubs.o nvml_stubs.o) \
	$(addprefix $(REMOTE_OBJ)/generated/,cuda_exercises.o nvml_exercises.o)
REMOTE_TESTS := $(patsubst lib/remote/test/test_%.c,$(REMOTE_TEST)/%,$(wildcard lib/remote/test/test_*.c))

C_TESTS += $(REMOTE_TESTS)

-include $(wildcard $(REMOTE_OBJ)/*.d $(REMOTE_OBJ)/*/*.d $(REMOTE_OBJ)/*/*/*.d)

$(REMOTE_OBJ)/%.o: lib/remote/%.c
	$(call step,CC)
	mkdir -p $(@D)
	$(CC) $(CFLAGS) -MMD -MP -c -o $@ $<

# In a test the client's functions have other names than the driver's.
$(REMOTE_OBJ)/test/%.o $(REMOTE_OBJ)/generated/%_exercises.o: CFLAGS += -include lib/remote/test/renamed.h
$(REMOTE_OBJ)/test/generated/%.o: lib/remote/generated/%.c
	$(call step,CC)
	mkdir -p $(@D)
	$(CC) $(CFLAGS) -MMD -MP -c -o $@ $<

$(REMOTE_TEST)/%: $(REMOTE_OBJ)/test/test_%.o $(REMOTE_OBJ)/call.o $(REMOTE_LOOPBACK) $(REMOTE_DECODER)
	$(call step,LINK)
	mkdir -p $(@D)
	$(CC) $(LDFLAGS) -o $@ $^ -ldl

# The simulated driver is loaded, as a program does it; its machine is made by its own code.
REMOTE_SIMGPU := $(B)/lib/simgpu/libcuda.so.1
$(REMOTE_OBJ)/test/test_simgpu.o: CFLAGS += -DSIMGPU_LIBRARY='"$(abspath $(REMOTE_SIMGPU))"'
$(REMOTE_TEST)/simgpu: $(patsubst lib/%.c,$(B)/obj/%.o,lib/simgpu/machine/test/setting.c $(wildcard lib/simgpu/machine/*.c)) \
	| $(REMOTE_SIMGPU)
$(REMOTE_OBJ)/test/test_fuzz.o: CFLAGS += -DREMOTE_SEEDS='"$(abspath lib/remote/generated/seeds.txt)"'
