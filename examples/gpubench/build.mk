gpubench_sources := $(wildcard examples/gpubench/*.c)
gpubench_objects := $(gpubench_sources:%.c=$(B)/obj/%.o)

$(gpubench_objects): $(B)/obj/%.o: %.c $(wildcard examples/gpubench/*.h lib/abi/*/*.h)
	$(call step,CC)
	mkdir -p $(@D)
	$(CC) $(CFLAGS) -c $< -o $@

$(B)/bin/gpubench: $(gpubench_objects) | $(LIBC_STUB) $(filter %.6,$(LIBM_STUB))
	$(call step,LINK)
	mkdir -p $(@D)
	$(CC) $(LDFLAGS) $^ -o $@ $(LIBM_STUB) $(LINK_LIBC)

ALL_C += $(B)/bin/gpubench
