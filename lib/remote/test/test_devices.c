/* Facts of devices: what the client answers from one record is what the simulated driver answers, but for what a program
 * elsewhere cannot use; and a worker that lies about them. */
#include "remote/client/snapshot.h"
#include "remote/test/facts.h"
#include "remote/test/pair.h"
#include "remote/test/sequence.h"

#include <string.h>

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

int main(void) {
    facts_run(test_answers);
    facts_run(test_answers_shared);
    facts_run(test_lies);
    facts_run(test_none);
    facts_run(test_many_devices);
    facts_run(test_text_without_end);
    return 0;
}
