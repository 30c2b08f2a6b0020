/* Facts of devices: what the client answers from one record is what the simulated driver answers, but for what a program
 * elsewhere cannot use; a worker that lies about them; and allocations at addresses that are taken, or that come with the
 * error of an earlier call. */
#define _GNU_SOURCE
#include "remote/client/snapshot.h"
#include "remote/test/facts.h"
#include "remote/test/pair.h"
#include "remote/test/sequence.h"

#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MOST_FACTS 8192u

struct fact {
    const char *what;
    int32_t result, attribute;
    unsigned char bytes[64];
};
static struct fact facts[2][MOST_FACTS];
static struct fact *next;

/* Asks one question; what the call leaves untouched is the same before each. */
#define ASK(name, ...)                                                                             \
    do {                                                                                           \
        union {                                                                                    \
            char text[64];                                                                         \
            int number;                                                                            \
            unsigned small[2];                                                                     \
            size_t size;                                                                           \
            CUuuid uuid;                                                                           \
            CUdevprop properties;                                                                  \
        } a;                                                                                       \
        memset(&a, 0x5a, sizeof a);                                                                \
        *next = (struct fact){.what = #name, .result = (int32_t)CALL(name, __VA_ARGS__)};          \
        memcpy(next->bytes, &a, sizeof a);                                                         \
        next++;                                                                                    \
    } while (0)

static void ask_names(CUdevice d) {
    ASK(cuDeviceGet, &a.number, d);
    ASK(cuDeviceGet, NULL, d);
    for (int room = -1; room < 20; room++) {
        ASK(cuDeviceGetName, a.text, room, d);
        ASK(cuDeviceGetPCIBusId, a.text, room, d);
    }
    ASK(cuDeviceGetName, NULL, 20, d);
    ASK(cuDeviceGetUuid, &a.uuid, d);
    ASK(cuDeviceGetUuid_v2, &a.uuid, d);
    ASK(cuDeviceGetUuid, NULL, d);
    ASK(cuDeviceGetLuid, a.text, &a.small[1], d);
    ASK(cuDeviceGetLuid, a.text, NULL, d);
}

static void ask_numbers(CUdevice d) {
    ASK(cuDeviceTotalMem_v2, &a.size, d);
    ASK(cuDeviceTotalMem_v2, NULL, d);
    ASK(cuDeviceGetProperties, &a.properties, d);
    ASK(cuDeviceComputeCapability, &a.number, (int *)&a.small[1], d);
    ASK(cuDeviceComputeCapability, &a.number, NULL, d);
    ASK(cuDeviceComputeCapability, NULL, &a.number, d);
    for (int i = -2; i < 300; i++) {
        ASK(cuDeviceGetAttribute, &a.number, (CUdevice_attribute)i, d);
        next[-1].attribute = i;
    }
    ASK(cuDeviceGetAttribute, NULL, (CUdevice_attribute)1, d);
    for (unsigned channels = 0; channels < 6; channels++) {
        ASK(cuDeviceGetTexture1DLinearMaxWidth, &a.size, CU_AD_FORMAT_FLOAT, channels, d);
    }
    for (int type = -1; type < 3; type++) {
        ASK(cuDeviceGetExecAffinitySupport, &a.number, (CUexecAffinityType)type, d);
    }
    ASK(cuDeviceGetExecAffinitySupport, NULL, CU_EXEC_AFFINITY_TYPE_SM_COUNT, d);
}

static void ask_pairs(CUdevice d) {
    for (CUdevice peer = -1; peer < DEVICES + 2; peer++) {
        ASK(cuDeviceCanAccessPeer, &a.number, d, peer);
        for (int i = 0; i < 7; i++) {
            ASK(cuDeviceGetP2PAttribute, &a.number, (CUdevice_P2PAttribute)i, d, peer);
        }
    }
    ASK(cuDeviceCanAccessPeer, NULL, d, d);
}

static void ask_all(enum way way, struct fact *to) {
    static const char *const buses[] = {"0000:12:00.0", "0000:21:00.0", "12:0.0", "zz", "", NULL};

    sequence_way = way;
    next = to;
    ASK(cuDriverGetVersion, &a.number);
    ASK(cuDriverGetVersion, NULL);
    ASK(cuDeviceGetCount, &a.number);
    ASK(cuDeviceGetCount, NULL);
    ASK(cuModuleGetLoadingMode, (CUmoduleLoadingMode *)(void *)&a.number);
    for (unsigned i = 0; i < sizeof buses / sizeof *buses; i++) {
        ASK(cuDeviceGetByPCIBusId, &a.number, buses[i]);
    }
    for (CUdevice d = -1; d < DEVICES + 1; d++) {
        ask_names(d);
        ask_numbers(d);
        ask_pairs(d);
    }
}

static bool is_told_otherwise(const struct fact *direct, const struct fact *through) {
    int had, told;

    memcpy(&had, direct->bytes, sizeof had);
    memcpy(&told, through->bytes, sizeof told);
    return strcmp(direct->what, "cuDeviceGetAttribute") == 0 && direct->result == 0 &&
           through->result == 0 &&
           told == snapshot_attribute((CUdevice_attribute)direct->attribute, had, !facts_shared);
}

static int attribute(CUdevice_attribute which) {
    int value = -7;

    CHECK_EQUAL(CALL(cuDeviceGetAttribute, &value, which, 1), CUDA_SUCCESS);
    return value;
}

/* All answers, with what is asked again and again. */
static void test_answers(void) {
    unsigned otherwise = 0;
    int count;

    ask_all(DIRECT, facts[0]);
    unsigned long before = loopback_sent;
    sequence_way = LOOPBACK;
    attribute(CU_DEVICE_ATTRIBUTE_WARP_SIZE);
    CHECK_EQUAL(loopback_sent - before, 1);
    ask_all(LOOPBACK, facts[1]);
    CHECK(next - facts[1] > 2000);
    for (unsigned i = 0; i < next - facts[1]; i++) {
        const struct fact *direct = &facts[0][i], *through = &facts[1][i];
        CHECK(strcmp(direct->what, through->what) == 0);
        if (direct->result != through->result ||
            memcmp(direct->bytes, through->bytes, sizeof direct->bytes) != 0) {
            if (!is_told_otherwise(direct, through)) {
                fprintf(stderr, "%s %d: %d and %d\n", direct->what, direct->attribute,
                        direct->result, through->result);
                exit(1);
            }
            otherwise++;
        }
    }
    CHECK(otherwise >= 8 * DEVICES);
    CHECK_EQUAL(attribute(CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY), 0);
    CHECK_EQUAL(attribute(CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY), facts_shared);
    CHECK_EQUAL(attribute(CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID), facts_shared ? 0 : -1);
    /* What succeeded is not asked again. */
    before = loopback_sent;
    for (unsigned i = 0; i < 3; i++) {
        size_t width;
        int value;
        CHECK_EQUAL(CALL(cuDeviceGetTexture1DLinearMaxWidth, &width, CU_AD_FORMAT_FLOAT, 4, 2), 0);
        CHECK_EQUAL(
            CALL(cuDeviceGetP2PAttribute, &value, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 0, 1),
            0);
        CHECK_EQUAL(CALL(cuDeviceGetByPCIBusId, &value, "0000:12:00.0"), 0);
        CHECK_EQUAL(attribute(CU_DEVICE_ATTRIBUTE_WARP_SIZE), 32);
    }
    CHECK_EQUAL(loopback_sent - before, 0);
    loopback_gate = CUDA_ERROR_DEVICE_UNAVAILABLE;
    CHECK_EQUAL(CALL(cuDeviceGetCount, &count), CUDA_ERROR_DEVICE_UNAVAILABLE);
    CHECK_EQUAL(CALL(cuDriverGetVersion, &count), CUDA_ERROR_DEVICE_UNAVAILABLE);
}

static void test_answers_shared(void) {
    facts_shared = true;
    test_answers();
}

/* ---- a worker that lies ---- */

static unsigned lie;

static void spoil(struct remote_answer *head, unsigned char *body, size_t *size) {
    struct remote_facts *all = (struct remote_facts *)(void *)body;
    uint64_t *told = (uint64_t *)(void *)(body + sizeof *all);
    struct remote_device_facts *first = (struct remote_device_facts *)(void *)(told + 1);

    if (head->call != REMOTE_SNAPSHOT) {
        return;
    }
    switch (lie) {
    case 0: /* more devices than it tells of */
        all->count.value = 1 << 30;
        *told = 0;
        *size = sizeof *all + 8;
        break;
    case 1: /* parts of a device */
        *told = 100;
        *size = sizeof *all + 8 + 104;
        break;
    case 2: /* more than there is room for */
        *told = UINT64_MAX - 7;
        break;
    case 3:
        all->count.value = -1;
        break;
    case 4: /* text without its end */
        memset(first->name, 'n', sizeof first->name);
        memset(first->bus, 'b', sizeof first->bus);
        break;
    case 5:
        head->result = 999;
        head->given = 0;
        *size = 0;
        break;
    default: /* the error of an earlier call */
        head->late = 700;
        lie = 99;
    }
}

static void test_lies(void) {
    char text[600];
    int count = -5;

    sequence_way = LOOPBACK;
    loopback_spoil = spoil;
    for (lie = 0; lie < 3; lie++) {
        CHECK_EQUAL(CALL(cuDeviceGetCount, &count), CUDA_ERROR_DEVICE_UNAVAILABLE);
        CHECK_EQUAL(count, -5);
    }
    lie = 5;
    CHECK_EQUAL(CALL(cuDeviceGetCount, &count), 999);
    CHECK_EQUAL(count, -5);
    /* An earlier error is told, and the snapshot is taken nevertheless. */
    lie = 6;
    count = -5;
    unsigned long before = loopback_sent;
    CHECK_EQUAL(CALL(cuDeviceGetCount, &count), 700);
    CHECK_EQUAL(count, -5);
    CHECK_EQUAL(CALL(cuDeviceGetCount, &count), CUDA_SUCCESS);
    CHECK_EQUAL(count, DEVICES);
    CHECK_EQUAL(loopback_sent - before, 1);
    CHECK_EQUAL(CALL(cuDeviceGetName, text, 600, 0), CUDA_SUCCESS);
}

static void test_none(void) {
    int count = -5;

    sequence_way = LOOPBACK;
    loopback_spoil = spoil;
    lie = 3;
    CHECK_EQUAL(CALL(cuDeviceGetCount, &count), CUDA_SUCCESS);
    CHECK_EQUAL(count, 0);
    CHECK_EQUAL(CALL(cuDeviceGet, &count, 0), CUDA_ERROR_INVALID_DEVICE);
}

static int many;

static CUresult count_many(int *count) {
    *count = many;
    return CUDA_SUCCESS;
}

/* More devices than an answer has, and more than a program sees. */
static void test_many_devices(void) {
    int count = 0, device = 0;

    sequence_way = LOOPBACK;
    sequence_driver.cuDeviceGetCount = count_many;
    many = 70;
    unsigned long before = loopback_sent;
    CHECK_EQUAL(CALL(cuDeviceGetCount, &count), CUDA_SUCCESS);
    CHECK_EQUAL(count, REMOTE_FACT_DEVICES);
    CHECK_EQUAL(loopback_sent - before, 2);
    CHECK_EQUAL(CALL(cuDeviceGet, &device, 63), CUDA_SUCCESS);
    CHECK_EQUAL(device, 63);
    CHECK_EQUAL(CALL(cuDeviceGet, &device, 64), CUDA_ERROR_INVALID_DEVICE);
    CHECK_EQUAL(attribute(CU_DEVICE_ATTRIBUTE_WARP_SIZE), 32);
}

static void test_text_without_end(void) {
    char text[600];

    sequence_way = LOOPBACK;
    loopback_spoil = spoil;
    lie = 4;
    CHECK_EQUAL(CALL(cuDeviceGetName, text, 600, 0), CUDA_SUCCESS);
    CHECK_EQUAL(strlen(text), sizeof(((struct remote_device_facts *)0)->name) - 1);
    CHECK_EQUAL(CALL(cuDeviceGetPCIBusId, text, 600, 0), CUDA_SUCCESS);
    CHECK_EQUAL(strlen(text), sizeof(((struct remote_device_facts *)0)->bus) - 1);
}

/* ---- allocations ---- */

static size_t room(void) {
    size_t left = 0, total;

    CHECK_EQUAL(CALL(cuMemGetInfo_v2, &left, &total), CUDA_SUCCESS);
    return left;
}

/* Each kind of allocation, with so many addresses in a row that are taken. */
static void allocate_all(unsigned taken, CUresult want) {
    CUdeviceptr address[4] = {1, 1, 1, 1};
    size_t pitch = 1;

    facts_taken = taken;
    CHECK_EQUAL(CALL(cuMemAlloc_v2, &address[0], 3 * MIB), want);
    facts_taken = taken;
    CHECK_EQUAL(CALL(cuMemAllocPitch_v2, &address[1], &pitch, 4000, 600, 4), want);
    facts_taken = taken;
    CHECK_EQUAL(CALL(cuMemAllocAsync, &address[2], 4096, NULL), want);
    facts_taken = taken;
    CHECK_EQUAL(CALL(cuMemAddressReserve, &address[3], 2 * MIB, 0, 0, 0), want);
    facts_taken = 0;
    for (unsigned i = 0; want && i < 4; i++) {
        CHECK_EQUAL(address[i], 1);
    }
    if (want == CUDA_SUCCESS) {
        CHECK_EQUAL(CALL(cuMemFree_v2, address[0]), CUDA_SUCCESS);
        CHECK_EQUAL(CALL(cuMemFree_v2, address[1]), CUDA_SUCCESS);
        CHECK_EQUAL(CALL(cuMemFreeAsync, address[2], NULL), CUDA_SUCCESS);
        CHECK_EQUAL(CALL(cuMemAddressFree, address[3], 2 * MIB), CUDA_SUCCESS);
    }
    CHECK_EQUAL(facts_reserved, 0);
    CHECK_EQUAL(CALL(cuCtxSynchronize), CUDA_SUCCESS);
}

static int32_t late;

static void spoil_late(struct remote_answer *head, unsigned char *body, size_t *size) {
    (void)body;
    (void)size;
    head->late = (uint64_t)late;
    late = 0;
}

static void test_allocations(void) {
    CUcontext ctx, second = NULL;
    CUdeviceptr address = 1;

    sequence_way = LOOPBACK;
    CHECK_EQUAL(CALL(cuCtxCreate_v2, &ctx, 0, 0), CUDA_SUCCESS);
    allocate_all(0, CUDA_SUCCESS);
    size_t before = room();
    for (unsigned taken = 0; taken < 16; taken += 3) {
        allocate_all(taken, CUDA_SUCCESS);
        CHECK_EQUAL(room(), before);
    }
    allocate_all(16, CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQUAL(room(), before);
    /* The error of an earlier call comes with what was made: it is ended again. */
    loopback_spoil = spoil_late;
    late = 719;
    CHECK_EQUAL(CALL(cuMemAlloc_v2, &address, 3 * MIB), 719);
    CHECK(address == 1 && facts_reserved == 0);
    CHECK_EQUAL(room(), before);
    late = 719;
    CHECK_EQUAL(CALL(cuCtxCreate_v2, &second, 0, 0), 719);
    CHECK(second == NULL);
    CHECK_EQUAL(CALL(cuCtxGetCurrent, &second), CUDA_SUCCESS);
    CHECK(second == ctx);
    CHECK_EQUAL(room(), before);
    late = 719;
    CHECK_EQUAL(CALL(cuCtxDestroy_v2, ctx), 719);
    CHECK_EQUAL(CALL(cuCtxGetDevice, (CUdevice *)&late), CUDA_ERROR_INVALID_CONTEXT);
}

/* A variable of a module has a place that nobody chooses. */
static void test_variables(void) {
    static const char ptx[] = ".version 8.0\n.target sm_80\n.address_size 64\n"
                              ".visible .global .align 8 .u64 table[2];\n"
                              ".visible .entry none() { ret; }\n";
    CUcontext ctx;
    CUmodule module;
    CUdeviceptr at = 0, again = 0;
    size_t size = 0;
    int value = 0;

    sequence_way = LOOPBACK;
    CHECK_EQUAL(CALL(cuCtxCreate_v2, &ctx, 0, 0), CUDA_SUCCESS);
    sequence_driver.cuCtxSetCurrent(
        (CUcontext)loopback_handle(REMOTE_KIND_CUcontext, (uint64_t)ctx));
    CHECK_EQUAL(sequence_driver.cuModuleLoadData(&module, ptx), CUDA_SUCCESS);
    sequence_driver.cuCtxSetCurrent(NULL);
    module = (CUmodule)loopback_number(REMOTE_KIND_CUmodule, (uint64_t)module);
    CHECK_EQUAL(CALL(cuModuleGetGlobal_v2, NULL, NULL, module, "none"), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQUAL(CALL(cuModuleGetGlobal_v2, &at, &size, module, "none"), CUDA_ERROR_NOT_FOUND);
    CHECK(at == 0 && size == 0 && facts_reserved == 0);
    /* Where the program has something there, the variable is told nevertheless. */
    facts_taken = 1;
    CHECK_EQUAL(CALL(cuModuleGetGlobal_v2, &at, NULL, module, "table"), CUDA_SUCCESS);
    CHECK(at && facts_taken == 0 && facts_reserved == 0);
    CHECK_EQUAL(CALL(cuModuleGetGlobal_v2, NULL, &size, module, "table"), CUDA_SUCCESS);
    CHECK(size == 16 && facts_reserved == 2 * MIB);
    CHECK_EQUAL(CALL(cuModuleGetGlobal_v2, &again, &size, module, "table"), CUDA_SUCCESS);
    CHECK(again == at && facts_reserved == 2 * MIB);
    CHECK_EQUAL(CALL(cuPointerGetAttribute, &value, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at + 15), 0);
    CHECK_EQUAL(value, CU_MEMORYTYPE_DEVICE);
    CHECK_EQUAL(CALL(cuMemFree_v2, at), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQUAL(CALL(cuMemGetAddressRange_v2, &again, &size, at + 1), CUDA_SUCCESS);
    CHECK(again <= at && again + size > at);
}

/* Each has a process of its own, and so a client that knows nothing yet. */
static void run(void (*test)(void)) {
    int status;
    pid_t child = fork();

    CHECK(child >= 0);
    if (child == 0) {
        sim_machine machine;

        alarm(300);
        setting_describe(&machine);
        machine.cuda_version = 13040;
        setting_make(&machine);
        pair_load(SIMGPU_FOLDER "libcuda.so.1");
        remote_cuda_driver_find(&sequence_driver, pair_find);
        CHECK_EQUAL(sequence_driver.cuInit(0), CUDA_SUCCESS);
        facts_start(&sequence_driver);
        loopback_strict = true;
        test();
        exit(0);
    }
    CHECK_EQUAL(waitpid(child, &status, 0), child);
    CHECK_EQUAL(status, 0);
}

int main(void) {
    run(test_answers);
    run(test_answers_shared);
    run(test_lies);
    run(test_none);
    run(test_many_devices);
    run(test_text_without_end);
    run(test_allocations);
    run(test_variables);
    return 0;
}
