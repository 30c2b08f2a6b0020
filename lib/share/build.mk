# A share as its pages hold it. Both of our libraries link these objects.
SHARE_OBJ := $(B)/obj/share
SHARE_TEST := $(B)/test/share
SHARE_OBJECTS := $(patsubst lib/share/%.c,$(SHARE_OBJ)/%.o,$(wildcard lib/share/*.c))

-include $(wildcard $(SHARE_OBJ)/*.d $(SHARE_OBJ)/test/*.d)

$(SHARE_OBJ)/%.o: lib/share/%.c
	$(call step,CC)
	mkdir -p $(@D)
	$(CC) $(CFLAGS) -MMD -MP -c -o $@ $<

$(SHARE_TEST)/%: $(SHARE_OBJ)/test/%.o $(SHARE_OBJ)/test/tenant.o $(SHARE_OBJECTS)
	$(call step,LINK)
	mkdir -p $(@D)
	$(CC) $(LDFLAGS) -Wl,-z,now -pthread -o $@ $^

$(SHARE_TEST)/crash: $(SHARE_OBJ)/test/crash_scenarios.o

# Loaded twice by the test of processes.
COPY := $(SHARE_TEST)/copy.so
$(COPY): $(SHARE_OBJ)/test/copy.o $(SHARE_OBJECTS)
	$(call step,LINK)
	mkdir -p $(@D)
	$(CC) $(LDFLAGS) $(SOFLAGS) -o $@ $^

$(SHARE_OBJ)/test/process.o: CFLAGS += -DCOPY_UNDER_TEST='"$(abspath $(COPY))"'
$(SHARE_TEST)/process: | $(COPY)

# Stepping through the code that TSAN adds takes minutes and tests nothing new.
C_TESTS += $(addprefix $(SHARE_TEST)/,open limits ledger overhead overhead_model process export descriptor mark threads race storm reaper spend time blocked turn residence learned pulse worker) \
	$(if $(filter tsan,$(SAN)),,$(SHARE_TEST)/crash)

# Built in lib/tools.
REAP := $(B)/libexec/divvy/divvy-reap

$(SHARE_OBJ)/test/reaper.o: CFLAGS += -DREAPER_UNDER_TEST='"$(abspath $(REAP))"'
$(SHARE_TEST)/reaper: | $(REAP)
