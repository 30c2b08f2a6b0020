# What our libraries share. Each of them compiles these sources for itself, with its own visibility.
SHARE_SOURCES := $(addprefix lib/common/,export.c leaving.c ledger.c open.c os.c pulse.c reap.c room.c \
	share.c slot.c time.c worker.c)

COMMON_OBJ := $(B)/obj/common
COMMON_TEST := $(B)/test/common
SHARE_OBJECTS := $(patsubst lib/common/%.c,$(COMMON_OBJ)/%.o,$(SHARE_SOURCES))

-include $(wildcard $(COMMON_OBJ)/*.d $(COMMON_OBJ)/test/*.d)

$(COMMON_OBJ)/%.o: lib/common/%.c
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) -MMD -MP -c -o $@ $<

$(COMMON_TEST)/%: $(COMMON_OBJ)/test/%.o $(COMMON_OBJ)/test/tenant.o $(SHARE_OBJECTS)
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS) -Wl,-z,now -pthread -o $@ $^

$(COMMON_TEST)/crash: $(COMMON_OBJ)/test/crash_scenarios.o

# Loaded twice by the test of processes.
COPY := $(COMMON_TEST)/copy.so
$(COPY): $(COMMON_OBJ)/test/copy.o $(SHARE_OBJECTS)
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS) $(SOFLAGS) -o $@ $^

$(COMMON_OBJ)/test/process.o: CFLAGS += -DCOPY_UNDER_TEST='"$(abspath $(COPY))"'
$(COMMON_TEST)/process: | $(COPY)

# Stepping through the code that TSAN adds takes minutes and tests nothing new.
C_TESTS += $(addprefix $(COMMON_TEST)/,open ledger process export threads race storm reaper spend time pulse worker) \
	$(if $(filter tsan,$(SAN)),,$(COMMON_TEST)/crash)

REAP := $(B)/libexec/divvy/divvy-reap
ALL_C += $(REAP)

$(COMMON_OBJ)/tools/%.o: lib/tools/%.c
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) -MMD -MP -c -o $@ $<

$(REAP): $(COMMON_OBJ)/tools/reap.o $(SHARE_OBJECTS)
	@mkdir -p $(@D)
	$(CC) -pie $(LDFLAGS) -o $@ $^

$(COMMON_OBJ)/test/reaper.o: CFLAGS += -DREAPER_UNDER_TEST='"$(abspath $(REAP))"'
$(COMMON_TEST)/reaper: | $(REAP)
