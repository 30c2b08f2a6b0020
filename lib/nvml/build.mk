# Our libnvidia-ml.so.1: stands in front of the driver's, which it depends on under the name
# libnvidia-ml-real.so.1; and its tests, against a driver of their own. RUNPATH_ROOM is in
# lib/cuda/build.mk.

NVML_OBJECTS := $(patsubst lib/nvml/%.c,$(B)/obj/nvml/%.o,$(wildcard lib/nvml/*.c))
NVML_PARTS := $(SUBSTITUTE_OBJECTS) $(SHARE_OBJECTS)
NVML_LIBRARY := $(B)/lib/divvy/libnvidia-ml.so.1
NVML_STUB := $(B)/obj/nvml/stub/libnvidia-ml-real.so.1
NVML_TEST := $(B)/test/nvml
NVML_TEST_DRIVER := $(NVML_TEST)/driver.so
NVML_TESTS := $(addprefix $(NVML_TEST)/,lookup memory closed threads)

ALL_C += $(NVML_LIBRARY)
C_TESTS += $(NVML_TESTS) $(NVML_TEST)/exports

-include $(wildcard $(B)/obj/nvml/*.d $(B)/obj/nvml/test/*.d)

$(B)/obj/nvml/%.o: lib/nvml/%.c
	$(call step,CC)
	mkdir -p $(@D)
	$(CC) $(CFLAGS) -MMD -MP -c -o $@ $<

$(NVML_STUB):
	$(call step,LINK)
	mkdir -p $(@D)
	echo | $(CC) $(SOFLAGS) -Wl,-soname,$(@F) -x c -o $@ -

$(NVML_LIBRARY): $(NVML_OBJECTS) $(NVML_PARTS) $(NVML_STUB) lib/nvml/exports.map $(LIBC_STUB)
	$(call step,LINK)
	mkdir -p $(@D)
	$(CC) $(LDFLAGS) $(SOFLAGS) -Wl,-soname,$(@F) -Wl,-Bsymbolic \
		-Wl,--version-script=lib/nvml/exports.map -Wl,--enable-new-dtags \
		-Wl,-rpath,'$(RUNPATH_ROOM)' -o $@ $(NVML_OBJECTS) $(NVML_PARTS) -Wl,--no-as-needed $(NVML_STUB) $(LINK_LIBC)

# The test driver calls itself through the dynamic linker, so it is not linked symbolically.
$(NVML_TEST_DRIVER): $(addprefix $(B)/obj/nvml/test/,driver.o driver_lists.o)
	$(call step,LINK)
	mkdir -p $(@D)
	$(CC) $(LDFLAGS) $(SOFLAGS) -Wl,-soname,libnvidia-ml.so.1 -o $@ $^

$(B)/obj/nvml/test/setting.o: CFLAGS += -DTEST_DRIVER='"$(abspath $(NVML_TEST_DRIVER))"' \
	-DLIBRARY_UNDER_TEST='"$(abspath $(NVML_LIBRARY))"'

$(NVML_TESTS): $(NVML_TEST)/%: $(B)/obj/nvml/test/test_%.o $(B)/obj/nvml/test/setting.o \
		$(NVML_PARTS) $(NVML_TEST_DRIVER) $(NVML_LIBRARY)
	$(call step,LINK)
	$(CC) $(LDFLAGS) -pthread -o $@ $(filter %.o,$^)

# What we export is what abi/ describes, no more and no less.
$(NVML_TEST)/exports: $(NVML_LIBRARY) lib/abi/generated/nvml_exports.txt
	$(call step,GEN)
	mkdir -p $(@D)
	printf '#!/bin/sh\nnm -D --defined-only %s | cut -d" " -f3 | LC_ALL=C sort | diff - %s\n' $^ >$@
	chmod +x $@
