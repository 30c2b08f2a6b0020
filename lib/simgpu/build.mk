# The simulated driver: libcuda.so.1 and its tests. It shares nothing with the libraries under test
# but the descriptions in lib/abi.

SIMGPU_CUDA_SOURCES := $(filter-out lib/simgpu/nvml_%.c lib/simgpu/ctl%.c,$(wildcard lib/simgpu/*.c))
SIMGPU_CUDA_OBJECTS := $(patsubst lib/simgpu/%.c,$(B)/obj/simgpu/%.o,$(SIMGPU_CUDA_SOURCES))
SIMGPU_CUDA := $(B)/lib/simgpu/libcuda.so.1

ALL_C += $(SIMGPU_CUDA)

include lib/simgpu/nvml.mk

-include $(wildcard $(B)/obj/simgpu/*.d $(B)/obj/simgpu/test/*.d)

$(B)/obj/simgpu/%.o: lib/simgpu/%.c
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) -MMD -MP -c -o $@ $<

$(SIMGPU_CUDA): $(SIMGPU_CUDA_OBJECTS) $(B)/obj/simgpu/cuda.map
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS) $(SOFLAGS) -Wl,-soname,$(@F) -Wl,-Bsymbolic \
		-Wl,--version-script=$(B)/obj/simgpu/cuda.map -o $@ $(SIMGPU_CUDA_OBJECTS) -lpthread -ldl

# Exactly the described names are exported.
$(B)/obj/simgpu/cuda.map: lib/abi/generated/cuda_exports.txt
	@mkdir -p $(@D)
	(echo '{ global:'; sed 's/$$/;/' $<; echo 'local: *; };') >$@

# Tests link the driver's objects, so that they can ask the state for the truth.
SIMGPU_CUDA_TESTS := $(patsubst lib/simgpu/test/test_%.c,$(B)/test/simgpu/%,\
	$(filter-out lib/simgpu/test/test_nvml% lib/simgpu/test/test_ctl%,$(wildcard lib/simgpu/test/test_*.c)))
C_TESTS += $(SIMGPU_CUDA_TESTS)

$(SIMGPU_CUDA_TESTS): $(B)/test/simgpu/%: $(B)/obj/simgpu/test/test_%.o $(B)/obj/simgpu/test/cuda.o \
		$(B)/obj/simgpu/test/setting.o $(SIMGPU_CUDA_OBJECTS)
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS) -o $@ $^ -lpthread -ldl

# The file itself; a sanitizer adds names and dependencies of its own.
ifeq ($(SAN),)
C_TESTS += $(B)/test/simgpu/exports
endif
$(B)/test/simgpu/exports: lib/simgpu/test/exports.sh | $(SIMGPU_CUDA)
	@mkdir -p $(@D)
	printf '#!/bin/sh\nexec %s %s\n' $< $(SIMGPU_CUDA) >$@ && chmod +x $@
