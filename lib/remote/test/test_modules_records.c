/* Records of code, options and linkers that no client of ours would send, beside a driver that reads and writes all that it
 * is given, up to its last byte; and answers that no worker of ours would give. */
#include "remote/client/module.h"
#include "remote/generated/cuda_decode.h"
#include "remote/image.h"
#include "remote/test/exercise.h"
#include "remote/worker/session.h"

#include "test/check.h"

#include <string.h>

#define OK(call) CHECK_EQUAL(call, CUDA_SUCCESS)
#define FAILS(call, result) CHECK_EQUAL(call, result)
#define INFO ((CUjit_option)3)
#define INFO_SIZE ((CUjit_option)4)
#define VALUE(number) ((void *)(uintptr_t)(number))

static const char ptx[] = ".version 8.0\n";
static uint64_t state = 11;
static unsigned char sum;

static uint64_t next(void) {
    state = state * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return state >> 33;
}

CUresult remote_current_result(void) {
    return CUDA_SUCCESS;
}

static void read_all(const void *at, size_t size) {
    for (size_t i = 0; i < size; i++) {
        sum = (unsigned char)(sum + ((const unsigned char *)at)[i]);
    }
}

/* Fills each log as far as the last size that belongs to it says. */
static void fill(unsigned count, CUjit_option *options, void **values) {
    CHECK(count <= REMOTE_MOST_OPTIONS);
    for (unsigned i = 0; i < count; i++) {
        enum remote_jit kind = remote_jit_of((uint32_t)options[i]);

        CHECK(kind != REMOTE_JIT_LISTS && kind != REMOTE_JIT_NONE);
        for (unsigned k = 0; kind == REMOTE_JIT_LOG && values[i] && k < count; k++) {
            if ((uint32_t)options[k] == (uint32_t)options[i] + 1) {
                memset(values[i], 'y', (uintptr_t)values[k]);
            }
        }
    }
}

static CUresult load_module(CUmodule *module, const void *image, unsigned count,
                            CUjit_option *options, void **values) {
    static uint64_t modules = 0x1000;

    fill(count, options, values);
    if (image) {
        read_all(image, remote_image_size(image));
    }
    if (module) {
        *module = (CUmodule)++modules;
    }
    return CUDA_SUCCESS;
}

/* What each linker was begun with, by its handle. */
static struct begun {
    unsigned count;
    CUjit_option *options;
    void **values;
} begun[1 << 16];
static uint64_t linkers;

static void fill_begun(CUlinkState linker) {
    struct begun *of = &begun[(uint64_t)linker % (1 << 16)];

    CHECK(linker);
    fill(of->count, of->options, of->values);
}

static CUresult link_create(unsigned count, CUjit_option *options, void **values, CUlinkState *to) {
    begun[++linkers % (1 << 16)] = (struct begun){count, options, values};
    if (to) {
        *to = (CUlinkState)linkers;
    }
    return CUDA_SUCCESS;
}

static CUresult link_add(CUlinkState linker, CUjitInputType type, void *data, size_t size,
                         const char *name, unsigned count, CUjit_option *options, void **values) {
    (void)type;
    read_all(data, size + 1);
    read_all(name, name ? strlen(name) : 0);
    fill(count, options, values);
    fill_begun(linker);
    return CUDA_SUCCESS;
}

static unsigned char made[3000];
static size_t made_size = sizeof made;

static CUresult link_complete(CUlinkState linker, void **image, size_t *size) {
    fill_begun(linker);
    *image = made;
    *size = made_size;
    return CUDA_SUCCESS;
}

static CUresult link_destroy(CUlinkState linker) {
    (void)linker;
    return CUDA_SUCCESS;
}

static const struct remote_cuda_driver driver = {.cuModuleLoadDataEx = load_module,
                                                 .cuLinkCreate_v2 = link_create,
                                                 .cuLinkAddData_v2 = link_add,
                                                 .cuLinkComplete = link_complete,
                                                 .cuLinkDestroy = link_destroy};

static enum remote_outcome decode(void) {
    enum remote_outcome outcome = remote_decode(&loopback, loopback_record, loopback_size);

    if (outcome == REMOTE_BY_HAND) {
        remote_decode_one *one = remote_hand_decoder(loopback.head.call);

        outcome = one ? one(&loopback) : REMOTE_GARBLED;
    }
    return outcome;
}

static uint64_t *words(void) {
    return (uint64_t *)(void *)(loopback_record + sizeof(struct remote_head));
}

static char info[64];
static CUjit_option options[] = {INFO, INFO_SIZE, CU_JIT_TARGET};
static void *values[] = {info, VALUE(sizeof info), VALUE(80)};

static void send_module(void) {
    CUmodule module;

    values[1] = VALUE(sizeof info);
    OK(cuModuleLoadDataEx(&module, ptx, 3, options, values));
}

static void expect_end(void) {
    CHECK_EQUAL(decode(), REMOTE_GARBLED);
}

static void check_options(void) {
    uint32_t *list = (uint32_t *)(void *)(loopback_record + sizeof(struct remote_head) + 48);

    send_module();
    words()[3] = 65;
    expect_end();
    send_module();
    words()[3] = UINT64_C(1) << 62;
    expect_end();
    send_module();
    words()[4] = REMOTE_LOG_BYTES + 1; /* room that no answer carries */
    expect_end();
    send_module();
    words()[4] = UINT64_MAX;
    expect_end();
    send_module();
    list[2] = 25; /* names by their addresses */
    expect_end();
    send_module();
    list[2] = 36;
    expect_end();
    send_module();
    words()[2]++; /* code that is not as long as what came */
    expect_end();
    /* A size beyond the room, and an address of the client's: the driver is given ours. */
    send_module();
    uint64_t *sent = words() + 8;
    sent[0] = 0xdeadbeef;
    sent[1] = UINT64_C(1) << 40;
    words()[0] = 0x777777;
    CHECK_EQUAL(decode(), REMOTE_ANSWERED);
    CHECK_EQUAL(loopback.result, CUDA_SUCCESS);
}

/* Code that says it is longer than it is, which our client would not have sent. */
static void check_image(void) {
    static const unsigned char fat[16] = {0x50, 0xed, 0x55, 0xba, 1, 0, 16, 0, 0xff, 0xff};
    struct remote_call call;
    struct remote_reply reply;
    CUmodule module;

    remote_begin(&call, REMOTE_cuModuleLoadDataEx, 3 + REMOTE_OPTION_WORDS);
    remote_make(&call, 0, 0, REMOTE_KIND_CUmodule, &module);
    remote_bulk(&call, 1, 1, fat, sizeof fat);
    remote_ask(&call, &reply);
    CHECK_EQUAL(loopback_outcome, REMOTE_GARBLED);
    remote_begin(&call, REMOTE_cuModuleLoadDataEx, 3 + REMOTE_OPTION_WORDS);
    remote_make(&call, 0, 0, REMOTE_KIND_CUmodule, &module);
    remote_bulk(&call, 1, 1, ptx, sizeof ptx - 1); /* text without its end */
    remote_ask(&call, &reply);
    CHECK_EQUAL(loopback_outcome, REMOTE_GARBLED);
}

static void check_linker(void) {
    CUlinkState linker;
    void *image;

    values[1] = VALUE(sizeof info);
    OK(cuLinkCreate_v2(3, options, values, &linker));
    OK(cuLinkComplete(linker, &image, NULL));
    CHECK_EQUAL(loopback.head.call, REMOTE_LENT);
    /* All was fetched: there is nothing more to lend. */
    CHECK_EQUAL(decode(), REMOTE_ANSWERED);
    CHECK_EQUAL(loopback.result, CUDA_ERROR_INVALID_VALUE);
    words()[1] = UINT64_MAX;
    CHECK_EQUAL(decode(), REMOTE_ANSWERED);
    CHECK_EQUAL(loopback.result, CUDA_ERROR_INVALID_VALUE);
    /* The number of another kind of thing. */
    words()[0] = 0x777777;
    CHECK_EQUAL(decode(), REMOTE_ANSWERED);
    CHECK_EQUAL(loopback.result, CUDA_ERROR_INVALID_HANDLE);
    OK(cuLinkDestroy(linker));
}

/* A worker that lies about how much there is. */
static uint64_t lie;

static void spoil(struct remote_answer *head, unsigned char *body, size_t *size) {
    (void)size;
    if (head->call == REMOTE_cuLinkComplete) {
        memcpy(body, &lie, sizeof lie);
    }
}

static void check_lies(void) {
    CUlinkState linker;
    void *image = NULL;

    OK(cuLinkCreate_v2(0, NULL, NULL, &linker));
    loopback_spoil = spoil;
    lie = UINT64_MAX;
    FAILS(cuLinkComplete(linker, &image, NULL), CUDA_ERROR_OUT_OF_MEMORY);
    lie = REMOTE_MOST_MADE;
    FAILS(cuLinkComplete(linker, &image, NULL), CUDA_ERROR_INVALID_VALUE);
    loopback_spoil = NULL;
    CHECK(!image);
    made_size = 0;
    OK(cuLinkComplete(linker, &image, NULL));
    made_size = sizeof made;
    OK(cuLinkDestroy(linker));
}

/* Random changes of good records. */
static void check_random(void) {
    unsigned long outcomes[4] = {0};
    CUlinkState linker = NULL;
    void *image;

    for (unsigned i = 0; i < 60000; i++) {
        values[1] = VALUE(sizeof info);
        switch (i % 5) {
        case 0:
            send_module();
            break;
        case 1:
            if (linker) {
                OK(cuLinkDestroy(linker));
            }
            OK(cuLinkCreate_v2(3, options, values, &linker));
            break;
        case 2:
            OK(cuLinkAddData_v2(linker, CU_JIT_INPUT_PTX, (void *)(uintptr_t)ptx, sizeof ptx,
                                "name", 3, options, values));
            break;
        case 3:
            OK(cuLinkComplete(linker, &image, NULL));
            break;
        default:
            send_module();
            words()[0] = 0x800000 + i;
        }
        for (unsigned changes = (unsigned)next() % 4; changes > 0; changes--) {
            /* What is given, and all words but the first: a number that is chosen here must not be the next one. */
            size_t at = 28 + next() % (loopback_size - 28);

            at = at >= 32 && at < 40 ? 40 : at;
            loopback_record[at] ^= (unsigned char)(1u << next() % 8);
        }
        outcomes[decode()]++;
    }
    CHECK(outcomes[REMOTE_ANSWERED] && outcomes[REMOTE_GARBLED]);
    CHECK_EQUAL(outcomes[REMOTE_LATER] + outcomes[REMOTE_BY_HAND], 0);
    printf("%lu answered, %lu ended, %u read\n", outcomes[0], outcomes[2], sum);
}

int main(void) {
    loopback_start(&driver, &nvml_mock);
    check_options();
    check_image();
    check_linker();
    check_lies();
    check_random();
    return 0;
}
