/* Records of the calls by hand that ask for facts and make contexts, changed at random: whatever a client sends, the worker
 * reads no byte beyond it, gives the driver nothing that is not there, and answers no more than an answer can have. */
#include "remote/facts.h"
#include "remote/generated/nvml_decode.h"
#include "remote/test/loopback.h"
#include "remote/worker/hand.h"

#include "test/check.h"

#include <stdlib.h>
#include <string.h>

static uint64_t state = 1;

static uint64_t draw(uint64_t below) {
    state = state * UINT64_C(6364136223846793005) + 1442695040888963407;
    return (state >> 33) % below;
}

/* ---- a driver ---- */

static unsigned long made, asked;
static int device_count;

static CUresult create(CUcontext *ctx, CUctxCreateParams *params, unsigned int flags,
                       CUdevice device) {
    unsigned sum = flags + (unsigned)device;

    if (params) {
        CHECK(!params->cigParams);
        for (int i = 0; params->execAffinityParams && i < params->numExecAffinityParams; i++) {
            sum += params->execAffinityParams[i].param.smCount.val;
        }
    }
    if (!ctx || sum % 7 == 3) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *ctx = (CUcontext)(++made << 4);
    return CUDA_SUCCESS;
}

static CUresult pointer(void *data, CUpointer_attribute attribute, CUdeviceptr address) {
    const uint64_t value = address ^ attribute;

    CHECK(attribute != CU_POINTER_ATTRIBUTE_P2P_TOKENS);
    memcpy(data, &value, sizeof value);
    asked++;
    return address % 3 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult get_count(int *count) {
    *count = device_count;
    return CUDA_SUCCESS;
}

static CUresult get_name(char *name, int room, CUdevice device) {
    (void)device;
    memset(name, 'n', (size_t)room);
    return CUDA_SUCCESS;
}

static CUresult get_attribute(int *value, CUdevice_attribute attribute, CUdevice device) {
    CHECK(device >= 0 && device < device_count);
    *value = (int)attribute;
    asked++;
    return CUDA_SUCCESS;
}

static CUresult can_access(int *can, CUdevice device, CUdevice peer) {
    CHECK(device < device_count && peer >= 0 && peer < device_count);
    *can = 1;
    return CUDA_SUCCESS;
}

static const struct remote_cuda_driver driver = {
    .cuCtxCreate_v4 = create,
    .cuPointerGetAttribute = pointer,
    .cuDeviceGetCount = get_count,
    .cuDeviceGetName = get_name,
    .cuDeviceGetPCIBusId = get_name,
    .cuDeviceGetAttribute = get_attribute,
    .cuDeviceCanAccessPeer = can_access,
};

static const struct remote_nvml_driver no_nvml;

/* ---- records ---- */

static size_t record(unsigned char *to, uint16_t call, uint32_t given, const uint64_t *words,
                     unsigned count, size_t piece) {
    struct remote_head head = {.size = (uint32_t)(sizeof head + 8u * count + piece),
                               .call = call,
                               .sequence = 7,
                               .thread = 1,
                               .given = given};

    memcpy(to, &head, sizeof head);
    memcpy(to + sizeof head, words, 8u * count);
    memset(to + sizeof head + 8u * count, 3, piece);
    return head.size;
}

static size_t draw_record(unsigned char *to) {
    static uint64_t number = 0x10000;
    uint64_t words[4] = {0};
    unsigned count = (unsigned)draw(5);

    switch (draw(draw(50) ? 2 : 3)) {
    case 0:
        words[0] = ++number;
        words[1] = count;
        words[2] = draw(8);
        return record(to, REMOTE_cuCtxCreate_v4, 1 | 2 | (count ? 4 : 0), words, 4, 8u * count);
    case 1:
        words[0] = draw(1000);
        return record(to, REMOTE_POINTER, 1, words, 1, 0);
    default:
        words[0] = draw(70);
        return record(to, REMOTE_SNAPSHOT, 3, words, 1, 0);
    }
}

/* Changes some of it, mostly words and the head. */
static void spoil(unsigned char *at, size_t size) {
    static const uint64_t odd[] = {0,          1,          7,          0x7fffffff, 0x80000000,
                                   0xffffffff, UINT64_MAX, 0x10000000, 131072,     16384};
    unsigned times = (unsigned)draw(4);

    for (unsigned i = 0; i < times; i++) {
        size_t place = draw(size);
        uint64_t value = draw(2) ? odd[draw(sizeof odd / sizeof *odd)] : draw(256);
        if (draw(2) && place / 8 * 8 + 8 <= size) {
            memcpy(at + place / 8 * 8, &value, 8);
        } else {
            at[place] = (unsigned char)value;
        }
    }
}

static enum remote_outcome decode(const unsigned char *at, size_t size) {
    enum remote_outcome outcome = remote_decode(&loopback, at, size);
    remote_decode_one *one;

    if (outcome != REMOTE_BY_HAND) {
        return outcome;
    }
    one = remote_hand_decoder(loopback.head.call);
    return one ? one(&loopback) : REMOTE_GARBLED;
}

int main(void) {
    const char *given = getenv("RECORDS");
    uint64_t records = given ? strtoull(given, NULL, 10) : 300000;
    unsigned long answered = 0, garbled = 0;

    loopback_start(&driver, &no_nvml);
    for (uint64_t i = 0; i < records; i++) {
        unsigned char room[256];
        struct remote_answer answer;
        size_t size = draw_record(room);

        if (i % 4096 == 0) {
            loopback_forget();
            device_count = (int)draw(80) - 2;
        }
        spoil(room, size);
        /* Memory that ends where the record does, so that a sanitizer sees a byte too far. */
        unsigned char *exact = malloc(size);
        CHECK(exact);
        memcpy(exact, room, size);
        enum remote_outcome outcome = decode(exact, size);
        free(exact);
        CHECK(outcome == REMOTE_ANSWERED || outcome == REMOTE_GARBLED);
        if (outcome == REMOTE_ANSWERED) {
            memcpy(&answer, loopback.answer, sizeof answer);
            CHECK(answer.size >= sizeof answer && answer.size <= REMOTE_RECORD_BYTES);
            CHECK(answer.size % 8 == 0);
            answered++;
        } else {
            garbled++;
        }
    }
    CHECK(answered > records / 8 && garbled > records / 8 && made > records / 50 &&
          asked > records);
    printf("%lu answered, %lu garbled\n", answered, garbled);
    return 0;
}
