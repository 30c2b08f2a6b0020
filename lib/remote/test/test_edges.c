/* What the client judges by itself, and what it makes of answers that it does not expect. */
#include "remote/generated/cuda_decode.h"
#include "remote/generated/cuda_stubs.h"
#include "remote/generated/nvml_stubs.h"
#include "remote/test/exercise.h"
#include "test/check.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define UNSUPPORTED 801
#define UNAVAILABLE 46

static uint64_t random_state = 1;

static uint64_t next(void) {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

/* What is refused is not sent. */
#define REFUSED(call, result)                                                                      \
    do {                                                                                           \
        unsigned long sent_ = loopback_sent;                                                       \
        CHECK_EQUAL(call, result);                                                                 \
        CHECK_EQUAL(loopback_sent, sent_);                                                         \
    } while (0)
#define SENT(call)                                                                                 \
    do {                                                                                           \
        unsigned long sent_ = loopback_sent;                                                       \
        (void)(call);                                                                              \
        CHECK_EQUAL(loopback_sent, sent_ + 1);                                                     \
    } while (0)

static uint64_t sent_word(unsigned word) {
    uint64_t value;

    memcpy(&value, loopback_record + sizeof(struct remote_head) + 8 * word, sizeof value);
    return value;
}

static void check_handles(void) {
    CUgraphNode node = NULL, nodes[2] = {NULL, (CUgraphNode)0x99};
    CUgraph graph = (CUgraph)loopback_number(REMOTE_KIND_CUgraph, 0x7e10);
    uint64_t kernel = loopback_number(REMOTE_KIND_CUkernel, 0x7e20);
    int value;

    REFUSED(stub_cuStreamQuery((CUstream)0x99), CUDA_ERROR_INVALID_HANDLE);
    REFUSED(stub_cuStreamQuery((CUstream)3), CUDA_ERROR_INVALID_HANDLE);
    SENT(stub_cuStreamQuery((CUstream)2));
    SENT(stub_cuStreamQuery(NULL));
    REFUSED(stub_cuGraphAddEmptyNode(&node, (CUgraph)0x99, NULL, 0), CUDA_ERROR_INVALID_VALUE);
    REFUSED(stub_cuGraphAddEmptyNode(&node, graph, nodes, 2), CUDA_ERROR_INVALID_VALUE);
    SENT(stub_cuGraphAddEmptyNode(&node, graph, nodes, 1));
    REFUSED(stub_cuTexObjectDestroy(0x99), CUDA_ERROR_INVALID_VALUE);
    /* A kernel is taken for a function, not for anything else. */
    SENT(stub_cuFuncGetAttribute(&value, 0, (CUfunction)kernel));
    REFUSED(stub_cuEventQuery((CUevent)kernel), CUDA_ERROR_INVALID_HANDLE);
}

/* Each number goes both ways until its handle has ended. */
static void check_lives(void) {
    CUevent event = (CUevent)0x1234;
    unsigned made = 0, failed = 0;

    loopback_strict = true;
    for (unsigned flags = 0; flags < 100; flags++) {
        event = (CUevent)0x1234;
        CUresult result = stub_cuEventCreate(&event, flags);
        if (result) {
            CHECK(event == (CUevent)0x1234);
            REFUSED(stub_cuEventQuery((CUevent)sent_word(0)), CUDA_ERROR_INVALID_HANDLE);
            failed++;
            continue;
        }
        CHECK_EQUAL((uint64_t)event, sent_word(0));
        SENT(stub_cuEventQuery(event));
        if (stub_cuEventDestroy_v2(event) == CUDA_SUCCESS) {
            REFUSED(stub_cuEventQuery(event), CUDA_ERROR_INVALID_HANDLE);
        } else {
            SENT(stub_cuEventQuery(event));
        }
        made++;
    }
    CHECK(made > 10 && failed > 10);
}

static void check_lengths(void) {
    static CUgraphNode nodes[REMOTE_ARRAY_BYTES / 8 + 1];
    static char name[REMOTE_ARRAY_BYTES];
    CUgraph graph = (CUgraph)loopback_number(REMOTE_KIND_CUgraph, 0x7e10);
    size_t count = SIZE_MAX;

    SENT(stub_cuGraphAddDependencies(graph, nodes, nodes, REMOTE_ARRAY_BYTES / 8));
    REFUSED(stub_cuGraphAddDependencies(graph, nodes, nodes, REMOTE_ARRAY_BYTES / 8 + 1),
            UNSUPPORTED);
    REFUSED(stub_cuGraphAddDependencies(graph, nodes, nodes, SIZE_MAX), UNSUPPORTED);
    REFUSED(stub_cuGraphAddDependencies(graph, nodes, nodes, SIZE_MAX / 8 + 2), UNSUPPORTED);
    SENT(stub_cuGraphGetNodes(graph, nodes, &count));
    CHECK_EQUAL(sent_word(1), REMOTE_ARRAY_BYTES / 8);
    count = 1u << 30;
    SENT(stub_cuGraphGetNodes(graph, NULL, &count));
    CHECK_EQUAL(sent_word(1), 1u << 30);
    SENT(stub_cuGraphGetNodes(graph, nodes, NULL));
    SENT(remote_call_cuDeviceGetName(name, INT_MAX, 0));
    CHECK_EQUAL(sent_word(0), REMOTE_ARRAY_BYTES);
    SENT(remote_call_cuDeviceGetName(name, INT_MIN, 0));
    CHECK_EQUAL(sent_word(0), (uint64_t)(int64_t)INT_MIN);
    REFUSED(stub_nvmlDeviceGetFieldValues(NULL, INT_MAX, (nvmlFieldValue_t *)name), 3);
}

/* A graph with as many nodes as there is room for. */
static CUresult fill_nodes(CUgraph graph, CUgraphNode *nodes, size_t *count) {
    (void)graph;
    (void)nodes;
    (void)count;
    return CUDA_SUCCESS;
}

/* A program that has room for more than an answer can carry must not take a part for the whole. */
static void check_counts(void) {
    static CUgraphNode nodes[REMOTE_ARRAY_BYTES / 8 + 1];
    struct remote_cuda_driver full = cuda_mock;
    CUgraph graph = (CUgraph)loopback_number(REMOTE_KIND_CUgraph, 0x7e10);
    size_t count = REMOTE_ARRAY_BYTES / 8;

    full.cuGraphGetNodes = fill_nodes;
    loopback.cuda = &full;
    CHECK_EQUAL(stub_cuGraphGetNodes(graph, nodes, &count), CUDA_SUCCESS);
    count = REMOTE_ARRAY_BYTES / 8 + 1;
    CHECK_EQUAL(stub_cuGraphGetNodes(graph, nodes, &count), UNSUPPORTED);
    CHECK_EQUAL(stub_cuGraphGetNodes(graph, NULL, &count), CUDA_SUCCESS);
    CHECK_EQUAL(count, REMOTE_ARRAY_BYTES / 8 + 1);
    loopback.cuda = &cuda_mock;
}

static void check_structures(void) {
    nvmlMemory_v2_t memory = {.version = 2};
    CUmodule module;

    REFUSED(stub_nvmlDeviceGetMemoryInfo_v2(NULL, &memory), NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    memory.version = 0xffffffu;
    REFUSED(stub_nvmlDeviceGetMemoryInfo_v2(NULL, &memory), NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    memory.version = NVML_STRUCT_VERSION(nvmlMemory_v2_t, 2);
    SENT(stub_nvmlDeviceGetMemoryInfo_v2(NULL, &memory));
    REFUSED(stub_cuModuleLoadData(&module, "\x01 no code"), CUDA_ERROR_INVALID_IMAGE);
    SENT(stub_cuModuleLoadData(&module, "// code"));
}

static void check_posted(void) {
    unsigned failed = 0;

    loopback_strict = false;
    for (unsigned i = 0; i < 50; i++) {
        CHECK_EQUAL(remote_call_cuMemsetD8_v2(i, 1, 1), CUDA_SUCCESS);
        failed += loopback.result != 0;
    }
    CHECK(failed > 0);
    loopback_strict = true;
    for (unsigned i = 0; i < 50; i++) {
        CHECK_EQUAL(remote_call_cuMemsetD8_v2(i, 1, 1), (CUresult)loopback.result);
    }
}

static void check_refused(void) {
    const void *table;
    CUuuid id = {{0}};

    REFUSED(remote_call_cuGetExportTable(&table, &id), CUDA_ERROR_NOT_SUPPORTED);
    REFUSED(stub_nvmlDeviceSetPersistenceMode(NULL, 0), NVML_ERROR_NO_PERMISSION);
}

static void check_dead(void) {
    CUmodule module;
    unsigned count;

    loopback_dead = true;
    CHECK_EQUAL(stub_cuStreamQuery(NULL), UNAVAILABLE);
    CHECK_EQUAL(remote_call_cuMemsetD8_v2(0, 1, 1), UNAVAILABLE);
    CHECK_EQUAL(stub_cuModuleLoadData(&module, "// code"), UNAVAILABLE);
    CHECK_EQUAL(stub_nvmlDeviceGetCount_v2(&count), NVML_ERROR_GPU_IS_LOST);
    loopback_dead = false;
}

/* A server that wants to do harm: the client writes nothing beyond what the program has room for. */
static void spoil(struct remote_answer *head, unsigned char *body, size_t *size) {
    for (uint64_t i = next() % 4; i > 0; i--) {
        uint64_t value = next() % 3 ? next() % 4096 : next();

        switch (next() % 8) {
        case 0:
            head->given = (uint32_t)next();
            break;
        case 1:
            head->result = (int32_t)(next() % 2 ? 0 : next());
            break;
        case 2:
            head->call = (uint16_t)next();
            break;
        case 3:
            *size = next() % 2 && *size ? next() % *size : *size + next() % 64;
            break;
        default:
            if (*size >= 8) {
                memcpy(body + 8 * (next() % (*size / 8)), &value, sizeof value);
            }
        }
    }
}

static void check_spoiled(const struct exercise_entry *entries) {
    for (; entries->name; entries++) {
        for (uint64_t seed = 0; seed < 40; seed++) {
            struct exercise e = exercise_run(entries, seed, true);

            if (e.failed) {
                fprintf(stderr, "%s, draw %llu: memory of others was written\n", entries->name,
                        (unsigned long long)seed);
                exit(1);
            }
        }
    }
}

int main(void) {
    loopback_start(&cuda_mock, &nvml_mock);
    check_handles();
    check_lives();
    check_lengths();
    check_counts();
    check_structures();
    check_posted();
    check_refused();
    check_dead();
    loopback_strict = true;
    loopback_spoil = spoil;
    check_spoiled(cuda_exercises);
    check_spoiled(nvml_exercises);
    return 0;
}
