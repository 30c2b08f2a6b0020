# divvy-probe. It is linked to no driver: it is told by path which one to load.

PROBE := $(B)/libexec/divvy/divvy-probe

ALL_C += $(PROBE)

-include $(B)/obj/tools/probe.d

$(B)/obj/tools/%.o: lib/tools/%.c
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) -MMD -MP -c -o $@ $<

$(PROBE): $(B)/obj/tools/probe.o
	@mkdir -p $(@D)
	$(CC) -pie $(LDFLAGS) -o $@ $^ -ldl
