# The descriptions of the driver's interface: nothing to link, but every header must compile by itself.
ABI_TEST := $(B)/test/abi/headers
C_TESTS += $(ABI_TEST)

$(ABI_TEST): $(B)/obj/abi/test/headers.o
	$(call step,LINK)
	mkdir -p $(@D)
	$(CC) $(LDFLAGS) -o $@ $^

$(B)/obj/abi/%.o: lib/abi/%.c
	$(call step,CC)
	mkdir -p $(@D)
	$(CC) $(CFLAGS) -I. -MMD -MP -c -o $@ $<

-include $(wildcard $(B)/obj/abi/test/*.d)
