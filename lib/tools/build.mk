# divvy-probe and divvy-checkpoint, which are linked to no driver but told by path which one to load; and
# divvy-reap, whose path REAP lib/share/build.mk names for its test.

PROBE := $(B)/libexec/divvy/divvy-probe
CHECKPOINT := $(B)/libexec/divvy/divvy-checkpoint

ALL_C += $(PROBE) $(CHECKPOINT) $(REAP)

-include $(wildcard $(B)/obj/tools/*.d)

$(B)/obj/tools/%.o: lib/tools/%.c
	$(call step,CC)
	mkdir -p $(@D)
	$(CC) $(CFLAGS) -MMD -MP -c -o $@ $<

$(PROBE): $(B)/obj/tools/probe.o | $(LIBC_STUB)
	$(call step,LINK)
	mkdir -p $(@D)
	$(CC) -pie $(LDFLAGS) -o $@ $^ $(LINK_LIBC)

$(CHECKPOINT): $(B)/obj/tools/checkpoint.o | $(LIBC_STUB)
	$(call step,LINK)
	mkdir -p $(@D)
	$(CC) -pie $(LDFLAGS) -o $@ $^ $(LINK_LIBC)

$(REAP): $(B)/obj/tools/reap.o $(SHARE_OBJECTS) | $(LIBC_STUB)
	$(call step,LINK)
	mkdir -p $(@D)
	$(CC) -pie $(LDFLAGS) -o $@ $^ $(LINK_LIBC)
