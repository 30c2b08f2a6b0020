/* Records of launches, layouts and forgotten kernels that no client of ours would send, and answers that no worker of ours
 * would give: beside a driver that reads everything it was given, and that gives addresses of ended functions away again. */
#include "remote/client/layout.h"
#include "remote/client/pack.h"
#include "remote/generated/cuda_decode.h"
#include "remote/launch.h"
#include "remote/test/exercise.h"
#include "remote/worker/session.h"

#include "test/check.h"

#include <string.h>

#define OK(call) CHECK_EQUAL(call, CUDA_SUCCESS)
#define FAILS(call, result) CHECK_EQUAL(call, result)

CUresult stub_cuModuleLoadData(CUmodule *module, const void *image);

static const char ptx[] = ".version 8.0\n";
static uint64_t state = 3;

static uint64_t next(void) {
    state = state * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return state >> 33;
}

CUresult remote_current_result(void) {
    return CUDA_SUCCESS;
}

/* The driver: one function, whose parameters the test tells. */
static struct remote_param params[8];
static size_t param_count;
static CUresult param_result;
static unsigned long asked, launched;
static unsigned char sum;

static CUresult load(CUmodule *module, const void *image) {
    static uint64_t modules;

    (void)image;
    *module = (CUmodule)(0x10000 + ++modules);
    return CUDA_SUCCESS;
}

static CUresult unload(CUmodule module) {
    (void)module;
    return CUDA_SUCCESS;
}

static CUresult function(CUfunction *f, CUmodule module, const char *name) {
    (void)module;
    (void)name;
    *f = (CUfunction)0x7770;
    return CUDA_SUCCESS;
}

static CUresult info(CUfunction f, size_t i, size_t *at, size_t *size) {
    CHECK_EQUAL((uint64_t)f, 0x7770);
    asked++;
    if (param_result != CUDA_SUCCESS || i >= param_count) {
        return param_result != CUDA_SUCCESS ? param_result : CUDA_ERROR_INVALID_VALUE;
    }
    *at = params[i].at;
    *size = params[i].size;
    return CUDA_SUCCESS;
}

static void read_all(const void *at, size_t size) {
    for (size_t i = 0; i < size; i++) {
        sum = (unsigned char)(sum + ((const unsigned char *)at)[i]);
    }
}

static CUresult launch(const CUlaunchConfig *config, CUfunction f, void **to, void **extra) {
    CHECK(f == NULL || f == (CUfunction)0x7770);
    launched++;
    CHECK(!(to && extra));
    for (size_t i = 0; to && i < param_count; i++) {
        read_all(to[i], params[i].size);
    }
    if (extra) {
        CHECK(*(size_t *)extra[3] <= REMOTE_PARAM_BYTES);
        read_all(extra[1], *(size_t *)extra[3]);
    }
    CHECK(config->numAttrs <= REMOTE_MOST_ATTRIBUTES);
    for (unsigned i = 0; i < config->numAttrs; i++) {
        CHECK(remote_attribute_served((uint32_t)config->attrs[i].id));
        read_all(&config->attrs[i], sizeof config->attrs[i]);
    }
    return CUDA_SUCCESS;
}

static CUresult launch_plain(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                             unsigned by, unsigned bz, unsigned shared, CUstream stream, void **to,
                             void **extra) {
    const CUlaunchConfig config = {gx, gy, gz, bx, by, bz, shared, stream, NULL, 0};

    return launch(&config, f, to, extra);
}

static CUresult launch_cooperative(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                                   unsigned by, unsigned bz, unsigned shared, CUstream stream,
                                   void **to) {
    return launch_plain(f, gx, gy, gz, bx, by, bz, shared, stream, to, NULL);
}

static struct remote_cuda_driver mock = {.cuModuleLoadData = load,
                                         .cuModuleUnload = unload,
                                         .cuModuleGetFunction = function,
                                         .cuFuncGetParamInfo = info,
                                         .cuLaunchKernel = launch_plain,
                                         .cuLaunchKernelEx = launch,
                                         .cuLaunchCooperativeKernel = launch_cooperative};

static CUfunction of_new_module(CUmodule *module) {
    CUfunction f;

    OK(stub_cuModuleLoadData(module, ptx));
    OK(cuModuleGetFunction(&f, *module, "f"));
    return f;
}

static void has_layout(CUfunction f, size_t count) {
    size_t there = 99;

    OK(cuFuncGetParamCount(f, &there));
    CHECK_EQUAL(there, count);
}

/* The driver's function of the next module has the address of the last one's, with other parameters. */
static void check_reuse(void) {
    CUmodule first, second;
    CUfunction f, again;

    param_count = 2;
    params[0] = (struct remote_param){0, 8};
    params[1] = (struct remote_param){8, 4};
    f = of_new_module(&first);
    has_layout(f, 2);
    unsigned long before = asked;
    has_layout(f, 2);
    OK(cuModuleGetFunction(&again, first, "f"));
    CHECK(again == f);
    has_layout(again, 2);
    CHECK_EQUAL(asked, before);
    OK(cuModuleUnload(first));
    CHECK_EQUAL(loopback_outcome, REMOTE_ANSWERED);
    CHECK_EQUAL(loopback_handle(REMOTE_KIND_CUfunction, (uint64_t)f), 0);
    FAILS(cuFuncGetParamCount(f, &(size_t){0}), CUDA_ERROR_INVALID_HANDLE);
    param_count = 1;
    f = of_new_module(&first);
    has_layout(f, 1);
    /* A module that ends with its context, without a word. */
    param_count = 2;
    f = of_new_module(&second);
    has_layout(f, 2);
    OK(cuModuleUnload(first));
    has_layout(f, 2);
    OK(cuModuleUnload(second));
}

static void check_unknown(void) {
    CUmodule module;
    CUfunction f = of_new_module(&module);
    uint64_t value = 1;
    size_t size = 8;
    void *list[] = {&value, &value};
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &value, CU_LAUNCH_PARAM_BUFFER_SIZE, &size,
                     CU_LAUNCH_PARAM_END};

    /* Code of which the driver tells nothing is launched with packed parameters alone. */
    param_result = CUDA_ERROR_NOT_SUPPORTED;
    FAILS(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, list, NULL), CUDA_ERROR_NOT_SUPPORTED);
    OK(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, extra));
    CHECK_EQUAL(loopback_outcome, REMOTE_ANSWERED);
    mock.cuFuncGetParamInfo = NULL;
    FAILS(cuFuncGetParamCount(f, &size), CUDA_ERROR_NOT_SUPPORTED);
    mock.cuFuncGetParamInfo = info;
    param_result = CUDA_SUCCESS;
    /* A driver that tells nonsense. */
    params[1] = (struct remote_param){4, 4};
    FAILS(cuFuncGetParamCount(f, &size), CUDA_ERROR_NOT_SUPPORTED);
    params[1] = (struct remote_param){8, 65535};
    FAILS(cuFuncGetParamCount(f, &size), CUDA_ERROR_NOT_SUPPORTED);
    params[1] = (struct remote_param){8, 4};
    has_layout(f, 2);
    OK(cuModuleUnload(module));
}

/* Answers to a question for a layout. */
static uint32_t told[4];
static uint64_t told_size;
static size_t told_more;

static void spoil(struct remote_answer *head, unsigned char *body, size_t *size) {
    (void)head;
    memcpy(body, &told_size, sizeof told_size);
    memcpy(body + 8, told, sizeof told);
    *size = 8 + told_more;
}

static void lie(uint64_t size, size_t more, uint32_t first, uint32_t second) {
    CUmodule module;
    CUfunction f = of_new_module(&module);
    size_t count;

    told_size = size;
    told_more = more;
    told[0] = first;
    told[1] = second;
    loopback_spoil = spoil;
    FAILS(cuFuncGetParamCount(f, &count), CUDA_ERROR_DEVICE_UNAVAILABLE);
    loopback_spoil = NULL;
    has_layout(f, param_count);
    OK(cuModuleUnload(module));
}

static uint32_t place(uint32_t at, uint32_t size) {
    return at | size << 16;
}

static void check_lies(void) {
    lie(8, 0, 0, 0);                                                 /* nothing follows */
    lie(6, 8, place(0, 4), 0);                                       /* no whole place */
    lie(8, 8, place(0, 8), place(4, 4));                             /* one over the other */
    lie(8, 8, place(0, 4), place(8, 0));                             /* nothing in it */
    lie(8, 8, place(0, 4), place(32760, 8));                         /* too far */
    lie(8, 8, place(0, 4), place(65535, 65535));                     /* wraps */
    lie(UINT64_C(1) << 63, 16, place(0, 4), place(8, 4));            /* more than there is */
    lie(4 * (REMOTE_PARAM_BYTES + 1), 16, place(0, 4), place(8, 4)); /* more than there can be */
}

/* Decodes a record that the test made from the last one. */
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

static uint32_t *given(void) {
    return &((struct remote_head *)(void *)loopback_record)->given;
}

/* A launch of two parameters, whose record the test changes. */
static CUfunction good;
static uint64_t value[2] = {1, 2};

static void send_good(void) {
    void *list[] = {&value[0], &value[1]};

    OK(cuLaunchKernel(good, 1, 1, 1, 1, 1, 1, 0, NULL, list, NULL));
    CHECK_EQUAL(loopback_outcome, REMOTE_ANSWERED);
}

static void expect_end(const char *what) {
    unsigned long before = launched;
    enum remote_outcome outcome = decode();

    if (outcome != REMOTE_GARBLED || launched != before) {
        fprintf(stderr, "%s: outcome %d\n", what, (int)outcome);
        exit(1);
    }
}

static void expect_answer(CUresult result) {
    unsigned long before = launched;

    CHECK_EQUAL(decode(), REMOTE_ANSWERED);
    CHECK_EQUAL(loopback.result, result);
    CHECK_EQUAL(launched, before);
}

static void check_changed(void) {
    CUmodule module;

    good = of_new_module(&module);
    send_good();
    words()[5] = UINT64_C(8) << 32; /* shorter than the layout, and than the piece */
    expect_end("short");
    send_good();
    words()[5] = UINT64_C(16) << 32; /* longer, within the padding */
    expect_answer(CUDA_ERROR_INVALID_VALUE);
    send_good();
    words()[5] = UINT64_C(17) << 32;
    expect_end("longer than the record");
    send_good();
    words()[5] = UINT64_C(0xffffffff) << 32;
    expect_end("wraps");
    send_good();
    *given() |= 1u << REMOTE_GIVEN_EXTRA;
    expect_end("both forms");
    send_good();
    *given() = 0;
    expect_end("bytes that nobody gave");
    send_good();
    words()[0] = 0x123456;
    expect_answer(CUDA_ERROR_INVALID_HANDLE);
    send_good();
    words()[1] = 0x123456;
    expect_answer(CUDA_ERROR_INVALID_HANDLE);
    /* The number of a function whose layout the client was never told. */
    OK(cuModuleUnload(module));
    good = of_new_module(&module);
    send_good();
    param_count = 1;
    OK(cuModuleUnload(module));
    CUmodule other;
    good = of_new_module(&other);
    OK(cuLaunchKernel(good, 1, 1, 1, 1, 1, 1, 0, NULL, (void *[]){value}, NULL));
    param_count = 2;
    OK(cuModuleUnload(other));
}

/* Random changes of good records: nothing but what was sent is read, and every outcome is one that a client may cause. */
static void check_random(void) {
    const CUlaunchAttribute list[2] = {{.id = CU_LAUNCH_ATTRIBUTE_PRIORITY},
                                       {.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE}};
    CUlaunchConfig config = {1, 1, 1, 1, 1, 1, 0, NULL, (CUlaunchAttribute *)list, 2};
    void *pointers[] = {&value[0], &value[1]};
    size_t size = 16;
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, value, CU_LAUNCH_PARAM_BUFFER_SIZE, &size,
                     CU_LAUNCH_PARAM_END};
    unsigned long outcomes[4] = {0};
    CUmodule module;
    CUfunction f = of_new_module(&module);

    for (unsigned i = 0; i < 300000; i++) {
        switch (i % 4) {
        case 0:
            OK(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, pointers, NULL));
            break;
        case 1:
            OK(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, extra));
            break;
        case 2:
            OK(cuLaunchCooperativeKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, pointers));
            break;
        default:
            OK(cuLaunchKernelEx(&config, f, pointers, NULL));
        }
        for (unsigned changes = 1 + (unsigned)next() % 3; changes > 0; changes--) {
            size_t at = 28 + next() % (loopback_size - 28);

            loopback_record[at] ^= (unsigned char)(1u << next() % 8);
        }
        outcomes[decode()]++;
    }
    CHECK(outcomes[REMOTE_ANSWERED] && outcomes[REMOTE_GARBLED]);
    CHECK_EQUAL(outcomes[REMOTE_LATER] + outcomes[REMOTE_BY_HAND], 0);
    remote_code_ended(REMOTE_KIND_CUmodule, (uint64_t)module);
    /* Numbers to forget: more than there are, and of kinds that are none. */
    words()[0] = UINT64_C(1) << 61;
    expect_end("numbers that wrap");
    OK(cuModuleUnload(module));
    printf("%lu answered, %lu ended, %u read\n", outcomes[0], outcomes[2], sum);
}

int main(void) {
    loopback_start(&mock, &nvml_mock);
    check_reuse();
    check_unknown();
    check_lies();
    check_changed();
    check_random();
    return 0;
}
