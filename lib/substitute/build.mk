# How our libraries put functions in front of the driver's. Both of them link these objects.
SUBSTITUTE_OBJECTS := $(patsubst lib/substitute/%.c,$(B)/obj/substitute/%.o,$(wildcard lib/substitute/*.c))

-include $(wildcard $(B)/obj/substitute/*.d)

$(B)/obj/substitute/%.o: lib/substitute/%.c
	$(call step,CC)
	mkdir -p $(@D)
	$(CC) $(CFLAGS) -MMD -MP -c -o $@ $<
