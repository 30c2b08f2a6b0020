# Calls of the driver from another machine: what client and worker are made of, and its tests.

REMOTE_OBJ := $(B)/obj/remote
REMOTE_TEST := $(B)/test/remote
REMOTE_CLIENT := $(addprefix $(REMOTE_OBJ)/,call.o transport.o image.o layout.o sha256.o) $(addprefix $(REMOTE_OBJ)/generated/,cuda_stubs.o nvml_stubs.o)
# Of the client what needs no session: contexts, addresses, facts of devices.
REMOTE_FACTS := $(addprefix client/,address.o asked.o context_calls.o contexts.o current.o device.o globals.o kept.o pointer.o ranges.o reserve.o snapshot.o tree.o)
# What knows kernels.
REMOTE_KERNELS := $(patsubst lib/remote/%.c,%.o,$(wildcard $(addprefix lib/remote/client/,layout*.c pack.c launch.c module.c module_file.c module_options.c link_state*.c)))
REMOTE_DECODER := $(addprefix $(REMOTE_OBJ)/,take.o give.o worker.o image.o layout.o sha256.o) $(addprefix $(REMOTE_OBJ)/generated/,numbers/numbers.o decode.o cuda_decode.o nvml_decode.o)
REMOTE_WORKER := $(patsubst lib/remote/%.c,$(REMOTE_OBJ)/%.o,$(wildcard lib/remote/worker/*.c))
# Both sides link it.
REMOTE_LINK := $(patsubst lib/remote/%.c,$(REMOTE_OBJ)/%.o,$(wildcard lib/remote/link*.c lib/remote/ring.c))
# A client and a worker in one process, with drawn parameters.
REMOTE_LOOPBACK := $(addprefix $(REMOTE_OBJ)/test/,loopback.o loopback_worker.o exercise.o generated/cuda_exercises.o generated/nvml_exercises.o) \
	$(addprefix $(REMOTE_OBJ)/renamed/,cuda_stubs.o nvml_stubs.o) $(addprefix $(REMOTE_OBJ)/,call.o worker/hand.o)
REMOTE_TESTS := $(patsubst lib/remote/test/test_%.c,$(REMOTE_TEST)/%,$(wildcard lib/remote/test/test_*.c))
# Loaded, as a program does it; its machine is made by its own code.
REMOTE_SIMGPU := $(addprefix $(B)/lib/simgpu/,libcuda.so.1 libnvidia-ml.so.1)

REMOTE_PROGRAM := $(B)/libexec/divvy/divvy-worker

ALL_C += $(REMOTE_PROGRAM) $(REMOTE_CLIENT) $(addprefix $(REMOTE_OBJ)/,$(REMOTE_FACTS)) $(REMOTE_DECODER) $(REMOTE_WORKER)
# Under TSAN those alone in which no simulated driver copies: its processes share memory in an order that the checker does not
# know, and the checker's look at each byte of a copy takes minutes.
REMOTE_UNDER_TSAN := $(addprefix $(REMOTE_TEST)/,aside callbacks executor link link_hello link_lies ranges table)
C_TESTS += $(if $(filter tsan,$(SAN)),$(REMOTE_UNDER_TSAN),$(REMOTE_TESTS))

-include $(wildcard $(REMOTE_OBJ)/*.d $(REMOTE_OBJ)/*/*.d $(REMOTE_OBJ)/*/*/*.d)

$(REMOTE_OBJ)/%.o: lib/remote/%.c
	$(call step,CC)
	mkdir -p $(@D)
	$(CC) $(CFLAGS) -MMD -MP -c -o $@ $<

# It runs in containers, as the libraries do.
$(REMOTE_PROGRAM): $(REMOTE_WORKER) $(REMOTE_DECODER) $(REMOTE_LINK) | $(LIBC_STUB)
	$(call step,LINK)
	mkdir -p $(@D)
	$(CC) -pie $(LDFLAGS) -Wl,-z,relro -Wl,-z,now -o $@ $^ $(LINK_LIBC)

# The worker itself, without what its program begins with.
$(REMOTE_TEST)/table: $(REMOTE_OBJ)/test/test_table.o $(REMOTE_OBJ)/worker/table.o $(REMOTE_OBJ)/generated/numbers/numbers.o
	$(call step,LINK)
	mkdir -p $(@D)
	$(CC) $(LDFLAGS) -o $@ $^ -pthread
$(addprefix $(REMOTE_TEST)/,aside executor): $(REMOTE_TEST)/%: $(REMOTE_OBJ)/test/test_%.o $(REMOTE_OBJ)/test/served.o $(REMOTE_OBJ)/test/sides.o $(filter-out %/main.o,$(REMOTE_WORKER)) $(REMOTE_DECODER) $(REMOTE_LINK)
	$(call step,LINK)
	mkdir -p $(@D)
	$(CC) $(LDFLAGS) -o $@ $^ -ldl -pthread
$(REMOTE_TEST)/sandbox: $(REMOTE_OBJ)/test/test_sandbox.o $(REMOTE_OBJ)/worker/sandbox.o
	$(call step,LINK)
	mkdir -p $(@D)
	$(CC) $(LDFLAGS) -o $@ $^ -ldl -pthread
$(REMOTE_OBJ)/test/program.o: CFLAGS += -DWORKER_PROGRAM='"$(abspath $(REMOTE_PROGRAM))"' -DSIMGPU_FOLDER='"$(abspath $(B)/lib/simgpu)/"'
$(addprefix $(REMOTE_TEST)/,worker worker_bound worker_garbage): $(REMOTE_TEST)/%: $(REMOTE_OBJ)/test/test_%.o $(REMOTE_OBJ)/test/program.o $(REMOTE_OBJ)/test/seeds.o $(patsubst lib/%.c,$(B)/obj/%.o,lib/simgpu/machine/test/setting.c $(wildcard lib/simgpu/machine/*.c)) \
	$(REMOTE_LINK) $(REMOTE_OBJ)/generated/numbers/numbers.o | $(REMOTE_PROGRAM) $(REMOTE_SIMGPU)
	$(call step,LINK)
	mkdir -p $(@D)
	$(CC) $(LDFLAGS) -o $@ $^ -pthread

# In a test the client's functions have other names than the driver's.
$(REMOTE_OBJ)/test/%.o $(REMOTE_OBJ)/renamed/%.o: CFLAGS += -include lib/remote/test/renamed.h
$(REMOTE_OBJ)/renamed/%.o: lib/remote/generated/%.c
	$(call step,CC)
	mkdir -p $(@D)
	$(CC) $(CFLAGS) -MMD -MP -c -o $@ $<
$(REMOTE_OBJ)/renamed/client/%.o: lib/remote/client/%.c
	$(call step,CC)
	mkdir -p $(@D)
	$(CC) $(CFLAGS) -MMD -MP -c -o $@ $<

$(REMOTE_OBJ)/test/seeds.o: CFLAGS += -DREMOTE_SEEDS='"$(abspath lib/remote/generated/seeds.txt)"'
$(REMOTE_OBJ)/test/test_simgpu.o $(REMOTE_OBJ)/test/test_simgpu_nvml.o $(REMOTE_OBJ)/test/test_kernels.o: CFLAGS += -DSIMGPU_FOLDER='"$(abspath $(B)/lib/simgpu)/"'

$(REMOTE_TEST)/%: $(REMOTE_OBJ)/test/test_%.o $(REMOTE_LOOPBACK) $(REMOTE_DECODER)
	$(call step,LINK)
	mkdir -p $(@D)
	$(CC) $(LDFLAGS) -o $@ $^ -ldl
$(addprefix $(REMOTE_TEST)/,kernels kernels_records modules modules_records code): $(addprefix $(REMOTE_OBJ)/,$(REMOTE_KERNELS) \
	$(addprefix worker/,kernels.o launch.o modules.o modules_options.o modules_link.o))
$(REMOTE_TEST)/kernels: $(REMOTE_OBJ)/test/spy.o
$(REMOTE_TEST)/code: $(addprefix $(REMOTE_OBJ)/,client/module_code.o worker/code.o)
$(REMOTE_TEST)/fuzz $(REMOTE_TEST)/link_rewritten: $(REMOTE_OBJ)/test/seeds.o
$(addprefix $(REMOTE_TEST)/,link link_hello link_lies link_rewritten): $(REMOTE_OBJ)/test/sides.o $(REMOTE_LINK)
# Prints how long frames take.
$(REMOTE_TEST)/bench_link: $(addprefix $(REMOTE_OBJ)/test/,bench_link.o sides.o) $(REMOTE_LINK)
	$(call step,LINK)
	mkdir -p $(@D)
	$(CC) $(LDFLAGS) -o $@ $^ -lpthread
$(REMOTE_TEST)/simgpu $(REMOTE_TEST)/simgpu_nvml $(REMOTE_TEST)/kernels: $(REMOTE_OBJ)/test/pair.o $(REMOTE_OBJ)/worker/sandbox.o $(patsubst lib/%.c,$(B)/obj/%.o,lib/simgpu/machine/test/setting.c $(wildcard lib/simgpu/machine/*.c)) \
	| $(REMOTE_SIMGPU)
# Reservations are noted only: the simulated GPUs have their addresses in this process.
$(addprefix $(REMOTE_OBJ)/test/,facts.o sequence.o apart.o test_allocations.o test_kernels_apart.o bench_launch.o): CFLAGS += -DSIMGPU_FOLDER='"$(abspath $(B)/lib/simgpu)/"'
$(addprefix $(REMOTE_TEST)/,facts facts_apart facts_graphs facts_threads devices allocations kernels_apart kernels_relay kernels_threads): $(REMOTE_OBJ)/test/pair.o $(REMOTE_OBJ)/worker/sandbox.o $(patsubst lib/%.c,$(B)/obj/%.o,lib/simgpu/machine/test/setting.c $(wildcard lib/simgpu/machine/*.c)) \
	| $(REMOTE_SIMGPU)
$(addprefix $(REMOTE_TEST)/,facts facts_apart facts_graphs facts_threads devices allocations): $(addprefix $(REMOTE_OBJ)/test/,apart.o facts.o sequence.o sequence_contexts.o sequence_host.o sequence_memory.o) \
	$(patsubst %,$(REMOTE_OBJ)/renamed/%,$(filter-out client/reserve.o,$(REMOTE_FACTS))) $(addprefix $(REMOTE_OBJ)/worker/,contexts.o pointer.o snapshot.o)
$(REMOTE_OBJ)/test/apart.o: CFLAGS += -DWORKER_PROGRAM='"$(abspath $(REMOTE_PROGRAM))"' -DCLIENT_FOLDER='"$(abspath $(B)/lib/remote)/"'
$(REMOTE_TEST)/facts_records: $(addprefix $(REMOTE_OBJ)/worker/,contexts.o pointer.o snapshot.o)
C_TESTS += $(REMOTE_TEST)/lacks
$(REMOTE_TEST)/lacks: lib/remote/test/lacks.sh
	$(call step,GEN)
	mkdir -p $(@D)
	printf '#!/bin/sh\nexec %s %s %s\n' $(abspath $< lib/remote/client/lacks.inc docs/design/remote-facts.md) >$@ && chmod +x $@
$(REMOTE_TEST)/ranges: LDFLAGS += -Wl,--wrap=mmap
$(REMOTE_TEST)/ranges: $(addprefix $(REMOTE_OBJ)/client/,ranges.o reserve.o tree.o)
$(addprefix $(REMOTE_TEST)/,kernels_apart kernels_relay kernels_threads): $(addprefix $(REMOTE_OBJ)/test/,apart.o relay.o)
# Prints how long a launch takes.
$(REMOTE_TEST)/bench_launch: $(addprefix $(REMOTE_OBJ)/test/,bench_launch.o apart.o pair.o relay.o) $(REMOTE_LOOPBACK) $(REMOTE_DECODER) $(REMOTE_OBJ)/worker/sandbox.o \
	$(patsubst lib/%.c,$(B)/obj/%.o,lib/simgpu/machine/test/setting.c $(wildcard lib/simgpu/machine/*.c)) | $(REMOTE_SIMGPU)
	$(call step,LINK)
	mkdir -p $(@D)
	$(CC) $(LDFLAGS) -o $@ $^ -ldl
$(REMOTE_TEST)/facts_apart $(REMOTE_TEST)/facts_graphs $(REMOTE_TEST)/facts_threads $(REMOTE_TEST)/kernels_apart $(REMOTE_TEST)/kernels_relay $(REMOTE_TEST)/kernels_threads $(REMOTE_TEST)/bench_launch: | $(REMOTE_PROGRAM) $(B)/lib/remote/libcuda.so.1

# The client's three files. All code is in one of them, so that a program which loads both of the driver's names has one
# connection. The others jump into it; they look for it where the run path says, which whoever places them overwrites
# (RUNPATH_ROOM, lib/cuda/build.mk), and otherwise beside themselves.
REMOTE_LIB := $(B)/lib/remote
REMOTE_CODE := $(REMOTE_LIB)/libdivvy-remote.so.1
REMOTE_LIBRARIES := $(REMOTE_CODE) $(REMOTE_LIB)/libcuda.so.1 $(REMOTE_LIB)/libnvidia-ml.so.1
REMOTE_CODE_OBJECTS := $(REMOTE_CLIENT) $(REMOTE_LINK) $(REMOTE_OBJ)/generated/numbers/numbers.o \
	$(patsubst lib/remote/%.c,$(REMOTE_OBJ)/%.o,$(wildcard lib/remote/client/*.c))
ALL_C += $(REMOTE_LIBRARIES)

$(REMOTE_OBJ)/%.o: lib/remote/%.S
	$(call step,CC)
	mkdir -p $(@D)
	$(CC) $(filter -I%,$(CFLAGS)) -MMD -MP -c -o $@ $<

$(REMOTE_CODE): $(REMOTE_CODE_OBJECTS) lib/remote/client/code.map $(LIBC_STUB)
	$(call step,LINK)
	mkdir -p $(@D)
	$(CC) $(LDFLAGS) $(SOFLAGS) -Wl,-soname,$(@F) -Wl,-Bsymbolic -Wl,--version-script=lib/remote/client/code.map \
		-o $@ $(REMOTE_CODE_OBJECTS) $(LINK_LIBC)

$(REMOTE_LIB)/libcuda.so.1: $(REMOTE_OBJ)/front/cuda.o lib/cuda/exports.map
$(REMOTE_LIB)/libnvidia-ml.so.1: $(REMOTE_OBJ)/front/nvml.o lib/nvml/exports.map
$(REMOTE_LIB)/libcuda.so.1 $(REMOTE_LIB)/libnvidia-ml.so.1: $(REMOTE_CODE)
	$(call step,LINK)
	$(CC) -nostdlib $(SOFLAGS) -Wl,-soname,$(@F) -Wl,--version-script=$(filter %.map,$^) -Wl,--enable-new-dtags \
		-Wl,-rpath,'$(RUNPATH_ROOM):$$ORIGIN' -o $@ $(filter %.o,$^) $(REMOTE_CODE)

# Tests of the client, whose worker is a thread of the test.
REMOTE_CLIENT_TESTS := $(patsubst lib/remote/client/test/test_%.c,$(REMOTE_TEST)/client/%,$(wildcard lib/remote/client/test/test_*.c))
C_TESTS += $(REMOTE_CLIENT_TESTS) $(if $(SAN),,$(REMOTE_TEST)/client/exports)
$(REMOTE_TEST)/client/%: $(REMOTE_OBJ)/client/test/test_%.o $(REMOTE_OBJ)/client/test/setting.o $(REMOTE_CODE_OBJECTS)
	$(call step,LINK)
	mkdir -p $(@D)
	$(CC) $(LDFLAGS) -pthread -Wl,--wrap=remote_link_connect -o $@ $^ -ldl
$(REMOTE_OBJ)/client/test/test_files.o: CFLAGS += -DREMOTE_FOLDER='"$(abspath $(REMOTE_LIB))/"'
$(REMOTE_TEST)/client/files: | $(REMOTE_LIBRARIES)
$(REMOTE_TEST)/client/exports: lib/remote/client/test/exports.sh | $(REMOTE_LIBRARIES)
	$(call step,GEN)
	mkdir -p $(@D)
	printf '#!/bin/sh\nexec %s %s %s\n' $(abspath $<) $(abspath $(REMOTE_LIB)) $(abspath lib/abi/generated) >$@ && chmod +x $@

# Copies of client and worker, with an area and regions in this process.
REMOTE_COPIES := $(addprefix $(REMOTE_OBJ)/renamed/client/,bulk.o copies.o copies_batch.o copies_cut.o copies_land.o copies_pieces.o copies_shape.o copies_side.o host.o host_table.o) \
	$(addprefix $(REMOTE_OBJ)/worker/,bulk.o chunks.o copies.o copies_done.o copies_give.o copies_issue.o copies_land.o regions.o regions_record.o) \
	$(addprefix $(REMOTE_OBJ)/test/,copies_world.o copies_steps.o copies_shapes.o pair.o) $(REMOTE_OBJ)/worker/sandbox.o $(patsubst lib/%.c,$(B)/obj/%.o,lib/simgpu/machine/test/setting.c $(wildcard lib/simgpu/machine/*.c))
$(REMOTE_OBJ)/test/copies_world.o: CFLAGS += -DSIMGPU_FOLDER='"$(abspath $(B)/lib/simgpu)/"'
$(REMOTE_TEST)/copies $(REMOTE_TEST)/copies_hostile $(REMOTE_TEST)/copies_drawn: $(REMOTE_COPIES) | $(REMOTE_SIMGPU)
# In processes of their own, as programs are; and with the client as part of the test, whose link is a stream.
COPIES_SERVED := $(addprefix $(REMOTE_OBJ)/test/,copies_served.o copies_compare.o copies_steps.o copies_shapes.o) \
	$(patsubst lib/%.c,$(B)/obj/%.o,lib/simgpu/machine/test/setting.c $(wildcard lib/simgpu/machine/*.c))
$(addprefix $(REMOTE_OBJ)/test/,copies_served.o test_copies_worker.o test_copies_stream.o test_copies_land.o): CFLAGS += -DSIMGPU_FOLDER='"$(abspath $(B)/lib/simgpu)/"' \
	-DCLIENT_FOLDER='"$(abspath $(B)/lib/remote)/"' -DWORKER_PROGRAM='"$(abspath $(REMOTE_PROGRAM))"'
$(REMOTE_TEST)/copies_worker: $(COPIES_SERVED) | $(REMOTE_SIMGPU) $(REMOTE_LIBRARIES) $(REMOTE_PROGRAM)
$(REMOTE_TEST)/copies_land: $(REMOTE_OBJ)/test/copies_land.o
COPIES_WRAPPED_copies_land := -Wl,--wrap=remote_wait
$(addprefix $(REMOTE_TEST)/,copies_land copies_stream): $(REMOTE_TEST)/%: $(REMOTE_OBJ)/test/test_%.o $(COPIES_SERVED) $(REMOTE_CODE_OBJECTS) \
	| $(REMOTE_SIMGPU) $(REMOTE_LIBRARIES) $(REMOTE_PROGRAM)
	$(call step,LINK)
	mkdir -p $(@D)
	$(CC) $(LDFLAGS) -pthread -Wl,--wrap=remote_link_connect $(COPIES_WRAPPED_$*) -o $@ $^ -ldl

# Tests of the real thing: client library, worker and simulated driver, each in a process of its own.
REMOTE_WHOLE_TESTS := $(addprefix $(REMOTE_TEST)/,api attributes callbacks callbacks_captured captures difference graphs waits wild)
$(addprefix $(REMOTE_OBJ)/test/,whole.o test_api.o test_difference.o test_waits.o test_wild.o): CFLAGS += -DREMOTE_BUILD='"$(abspath $(B))"'
$(REMOTE_WHOLE_TESTS): $(REMOTE_TEST)/%: $(REMOTE_OBJ)/test/test_%.o $(REMOTE_OBJ)/test/whole.o \
	$(patsubst lib/%.c,$(B)/obj/%.o,lib/simgpu/machine/test/setting.c $(wildcard lib/simgpu/machine/*.c)) \
	| $(REMOTE_SIMGPU) $(REMOTE_LIBRARIES) $(REMOTE_PROGRAM)
	$(call step,LINK)
	mkdir -p $(@D)
	$(CC) $(LDFLAGS) -pthread -o $@ $^ -ldl
REMOTE_API_LACKS := $(addprefix $(REMOTE_TEST)/api_lacks_,posted strict)
$(REMOTE_API_LACKS): $(REMOTE_TEST)/api_lacks_%: lib/remote/test/api_lacks.sh abi/cuda.yaml lib/remote/client/lacks.inc
	$(call step,GEN)
	mkdir -p $(@D)
	$^ $* >$@.tmp && mv $@.tmp $@
$(REMOTE_OBJ)/test/test_api.o: CFLAGS += -DAPI_LACKS='"$(abspath $(REMOTE_TEST)/api_lacks_posted)"' -DAPI_LACKS_STRICT='"$(abspath $(REMOTE_TEST)/api_lacks_strict)"' \
	-DDRIVER_LACKS='"$(abspath lib/simgpu/api_lacks.txt)"'
$(REMOTE_TEST)/api: | $(B)/test/api/apisuite $(REMOTE_API_LACKS)
$(REMOTE_TEST)/wild_functions: lib/remote/test/wild_functions.sh abi/cuda.yaml
	$(call step,GEN)
	mkdir -p $(@D)
	$^ >$@.tmp && mv $@.tmp $@
$(REMOTE_OBJ)/test/test_wild.o: CFLAGS += -DWILD_FUNCTIONS='"$(abspath $(REMOTE_TEST)/wild_functions)"'
$(REMOTE_TEST)/wild: $(REMOTE_OBJ)/test/wild_draw.o | $(REMOTE_TEST)/wild_functions
$(REMOTE_TEST)/difference: $(addprefix $(REMOTE_OBJ)/test/,difference_memory.o difference_work.o relay.o)
$(REMOTE_TEST)/graphs: $(addprefix $(REMOTE_OBJ)/test/,script.o script_nodes.o script_capture.o)
$(REMOTE_TEST)/graphs_records $(REMOTE_TEST)/graphs_lies: $(addprefix $(REMOTE_OBJ)/,test/graphs_driver.o client/graphs_end.o) \
	$(patsubst lib/%.c,$(B)/obj/%.o,$(wildcard $(addprefix lib/remote/worker/,graphs*.c callback*.c capture*.c attribute.c occupancy.c))) $(REMOTE_LINK)
$(REMOTE_TEST)/graphs_lies: $(addprefix $(REMOTE_OBJ)/client/,graphs_get.o graphs_lent.o callback.o capture.o within.o)
