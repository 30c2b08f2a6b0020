# divvy-probe, which is linked to no driver but told by path which one to load; and divvy-reap, whose
# path REAP lib/share/build.mk names for its test.

PROBE := $(B)/libexec/divvy/divvy-probe

ALL_C += $(PROBE) $(REAP)

-include $(wildcard $(B)/obj/tools/*.d)

$(B)/obj/tools/%.o: lib/tools/%.c
	$(call step,CC)
	mkdir -p $(@D)
	$(CC) $(CFLAGS) -MMD -MP -c -o $@ $<

$(PROBE): $(B)/obj/tools/probe.o | $(LIBC_STUB)
	$(call step,LINK)
	mkdir -p $(@D)
	$(CC) -pie $(LDFLAGS) -o $@ $^ $(LINK_LIBC)

$(REAP): $(B)/obj/tools/reap.o $(SHARE_OBJECTS) | $(LIBC_STUB)
	$(call step,LINK)
	mkdir -p $(@D)
	$(CC) -pie $(LDFLAGS) -o $@ $^ $(LINK_LIBC)
