/* Names and descriptions of results, as far as the worker's driver knows them; all while nobody is connected. */
#include "abi/generated/nvml_functions.h"
#include "remote/client/inside.h"

#include <limits.h>

struct text {
    int result, since;
    const char *name, *says;
};

static const struct text cuda[] = {
#define CUDA_TEXT(name, since, says) {name, since, #name, says},
#include "remote/client/cuda_texts.inc"
#undef CUDA_TEXT
};

static const struct text nvml[] = {
#define NVML_TEXT(name, since, says) {name, since, #name, says},
#include "remote/client/nvml_texts.inc"
#undef NVML_TEXT
};

static int newest; /* 0: not asked yet */

int remote_newest_known(void) {
    int known = __atomic_load_n(&newest, __ATOMIC_RELAXED);

    return known ? known : INT_MAX;
}

void remote_newest_set(int version) {
    __atomic_store_n(&newest, version, __ATOMIC_RELAXED);
}

static const struct text *find(const struct text *texts, size_t count, int result) {
    int version = remote_newest_known();

    for (size_t i = 0; i < count; i++) {
        if (texts[i].result == result && texts[i].since <= version) {
            return &texts[i];
        }
    }
    return NULL;
}

CUresult cuGetErrorName(CUresult result, const char **name) {
    const struct text *text = find(cuda, sizeof cuda / sizeof *cuda, (int)result);

    if (!name) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *name = text ? text->name : NULL;
    return text ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGetErrorString(CUresult result, const char **says) {
    const struct text *text = find(cuda, sizeof cuda / sizeof *cuda, (int)result);

    if (!says) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *says = text ? text->says : NULL;
    return text ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

const char *nvmlErrorString(nvmlReturn_t result) {
    const struct text *text = find(nvml, sizeof nvml / sizeof *nvml, (int)result);

    return text ? text->says : "Unknown Error";
}
