# The API suite: a program that takes the path of a library which says that it is the driver's.

API_OBJ := $(B)/obj/test/api
API_SUITE := $(B)/test/api/apisuite

-include $(wildcard $(API_OBJ)/*.d)

$(API_OBJ)/%.o: lib/test/api/%.c
	$(call step,CC)
	mkdir -p $(@D)
	$(CC) $(CFLAGS) -MMD -MP -c -o $@ $<

$(API_SUITE): $(patsubst lib/test/api/%.c,$(API_OBJ)/%.o,$(wildcard lib/test/api/*.c))
	$(call step,LINK)
	mkdir -p $(@D)
	$(CC) $(LDFLAGS) -pthread -o $@ $^ -ldl
