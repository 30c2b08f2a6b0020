/* cuGetProcAddress: every name by its version and flags, none that the worker's driver has not. Results have names and
 * texts. */
#include "remote/client/names.h"
#include "remote/client/test/setting.h"

#include <string.h>

#include "abi/generated/nvml_functions.h"

#define DRIVER 12040

enum variant { VARIANT_none, VARIANT_ptsz, VARIANT_ptds };

static const struct {
    const char *name, *base;
    int since;
    enum variant variant;
} names[] = {
#define CUDA_FN(name, base, since, variant, kind, hooked) {#name, #base, since, VARIANT_##variant},
#include "abi/generated/cuda_names.inc"
#undef CUDA_FN
};
#define NAMES (sizeof names / sizeof *names)

static void answer(struct remote_link *link, const struct remote_head *head,
                   const uint64_t *words) {
    (void)words;
    setting_answer(link, head, 0, 0, head->call == REMOTE_cuDriverGetVersion ? DRIVER : 0);
}

static void *find(const char *base, int version, cuuint64_t flags,
                  CUdriverProcAddressQueryResult *status) {
    void *function = &function;

    CHECK_EQUAL(cuGetProcAddress_v2(base, &function, version, flags, status), 0);
    return function;
}

/* Whether another name of the same base would be preferred to this one. */
static bool is_best(size_t of, int version) {
    for (size_t i = 0; i < NAMES; i++) {
        if (i != of && strcmp(names[i].base, names[of].base) == 0 && names[i].since <= version &&
            names[i].since <= DRIVER && (names[i].variant != 0) == (names[of].variant != 0) &&
            (names[i].since > names[of].since || (names[i].since == names[of].since && i > of))) {
            return false;
        }
    }
    return true;
}

static void check_one(size_t i) {
    cuuint64_t flags = names[i].variant ? CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM : 0;
    CUdriverProcAddressQueryResult status;
    void *expected, *function = find(names[i].base, names[i].since, flags, &status);

    memcpy(&expected, &divvy_remote_cuda[i], sizeof expected);
    if (names[i].since > DRIVER) {
        CHECK(function != expected);
    } else if (is_best(i, names[i].since)) {
        CHECK_EQUAL(status, CU_GET_PROC_ADDRESS_SUCCESS);
        CHECK(function == expected);
    }
}

static void check_special(void) {
    CUdriverProcAddressQueryResult status;
    void *function;

    CHECK(!find("cuNothing", 12000, 0, &status));
    CHECK_EQUAL(status, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
    CHECK(!find("cuGetProcAddress", 11000, 0, &status));
    CHECK_EQUAL(status, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
    CHECK(!find("cuMemAlloc_v2", 12000, 0, &status)); /* a suffix is no part of what is asked for */
    CHECK_EQUAL(cuGetProcAddress("cuNothing", &function, 12000, 0), CUDA_ERROR_NOT_FOUND);
    CHECK_EQUAL(cuGetProcAddress("cuInit", &function, 12000, 0), 0);
    CHECK_EQUAL(cuGetProcAddress(NULL, &function, 12000, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQUAL(cuGetProcAddress("cuInit", &function, 12000, 4), CUDA_ERROR_INVALID_VALUE);
}

static void check_texts(void) {
    static const struct {
        int result;
        const char *name;
    } results[] = {
#define CUDA_RESULT(name, value) {value, #name},
#include "abi/cuda/results.inc"
    };
    const char *name, *text;

    for (size_t i = 0; i < sizeof results / sizeof *results; i++) {
        CHECK_EQUAL(cuGetErrorName((CUresult)results[i].result, &name), 0);
        CHECK_EQUAL(strcmp(name, results[i].name), 0);
        CHECK_EQUAL(cuGetErrorString((CUresult)results[i].result, &text), 0);
        CHECK(text && *text);
    }
    CHECK_EQUAL(cuGetErrorName((CUresult)12345, &name), CUDA_ERROR_INVALID_VALUE);
    CHECK(!name);
    CHECK_EQUAL(strcmp(nvmlErrorString(NVML_ERROR_GPU_IS_LOST), "GPU is lost"), 0);
    CHECK_EQUAL(strcmp(nvmlErrorString((nvmlReturn_t)777), "Unknown Error"), 0);
}

int main(void) {
    const char *name;

    setting_start(REMOTE_LINK_RINGS, answer);
    check_texts();
    for (size_t i = 0; i < NAMES; i++) {
        check_one(i);
    }
    CHECK_EQUAL(setting_connections(), 1);
    check_special();
    CHECK_EQUAL(cuGetErrorName(CUDA_ERROR_KEY_ROTATION, &name), CUDA_ERROR_INVALID_VALUE);
    return 0;
}
