# Our libcuda.so.1: stands in front of the driver's, which it depends on under the name
# libcuda-real.so.1.

CUDA_OBJECTS := $(patsubst lib/cuda/%.c,$(B)/obj/cuda/%.o,$(wildcard lib/cuda/*.c))
CUDA_COMMON := $(B)/obj/common/substitute.o $(B)/obj/common/log.o $(SHARE_OBJECTS)
CUDA_LIBRARY := $(B)/lib/divvy/libcuda.so.1
CUDA_STUB := $(B)/obj/cuda/stub/libcuda-real.so.1

# The agent overwrites this run path with the tenant's directory; it must be as long as any that.
RUNPATH_ROOM := /divvy-runpath-$(shell printf '%0497d' 0 | tr 0 .)

ALL_C += $(CUDA_LIBRARY)

-include $(wildcard $(B)/obj/cuda/*.d)

$(B)/obj/cuda/%.o: lib/cuda/%.c
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) -MMD -MP -c -o $@ $<

# Only its name matters: the linker writes it down as what ours depends on.
$(CUDA_STUB):
	@mkdir -p $(@D)
	echo | $(CC) $(SOFLAGS) -Wl,-soname,libcuda-real.so.1 -x c -o $@ -

$(CUDA_LIBRARY): $(CUDA_OBJECTS) $(CUDA_COMMON) $(CUDA_STUB) lib/cuda/exports.map
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS) $(SOFLAGS) -Wl,-soname,libcuda.so.1 -Wl,-Bsymbolic \
		-Wl,--version-script=lib/cuda/exports.map -Wl,--enable-new-dtags \
		-Wl,-rpath,'$(RUNPATH_ROOM)' -o $@ $(CUDA_OBJECTS) $(CUDA_COMMON) -Wl,--no-as-needed $(CUDA_STUB)
