# The program that `divvy run` becomes on its way to the command.
ALL_C += $(B)/libexec/divvy/divvy-enter

$(B)/libexec/divvy/divvy-enter: $(B)/obj/enter/enter.o $(B)/obj/enter/contain.o | $(LIBC_STUB)
	$(call step,LINK)
	mkdir -p $(@D)
	$(CC) -pie $(LDFLAGS) -o $@ $^ $(LINK_LIBC)

$(B)/obj/enter/%.o: lib/enter/%.c
	$(call step,CC)
	mkdir -p $(@D)
	$(CC) $(CFLAGS) -D_GNU_SOURCE -MMD -MP -c -o $@ $<

-include $(wildcard $(B)/obj/enter/*.d)
