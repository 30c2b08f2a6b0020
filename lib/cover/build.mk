# The program that hides an image's own driver libraries from a container, and tells its cgroup. It is linked statically,
# because it runs on hosts of any kind.
COVER := $(B)/libexec/divvy/divvy-cover

ALL_C += $(COVER)

$(COVER): $(B)/obj/cover/cover.o $(B)/obj/cover/cgroup.o $(B)/obj/cover/json.o $(B)/obj/cover/quota.o
	$(call step,LINK)
	mkdir -p $(@D)
	$(CC) $(if $(SAN),,-static) $(LDFLAGS) -o $@ $^

$(B)/obj/cover/%.o: lib/cover/%.c
	$(call step,CC)
	mkdir -p $(@D)
	$(CC) $(CFLAGS) -D_GNU_SOURCE -MMD -MP -c -o $@ $<

-include $(wildcard $(B)/obj/cover/*.d $(B)/obj/cover/test/*.d)

C_TESTS += $(B)/test/cover/json $(B)/test/cover/cgroup $(B)/test/cover/quota

$(B)/test/cover/json: $(B)/obj/cover/test/json.o $(B)/obj/cover/json.o
	$(call step,LINK)
	mkdir -p $(@D)
	$(CC) $(LDFLAGS) -o $@ $^

$(B)/test/cover/cgroup: $(B)/obj/cover/test/cgroup.o $(B)/obj/cover/cgroup.o
	$(call step,LINK)
	mkdir -p $(@D)
	$(CC) $(LDFLAGS) -o $@ $^

$(B)/test/cover/quota: $(B)/obj/cover/test/quota.o $(B)/obj/cover/quota.o
	$(call step,LINK)
	mkdir -p $(@D)
	$(CC) $(LDFLAGS) -o $@ $^
