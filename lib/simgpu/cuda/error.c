/* Names and descriptions of results. */
#include "simgpu/cuda/driver.h"

#include <stdio.h>
#include <string.h>

static const struct {
    CUresult result;
    const char *name;
} results[] = {
#define CUDA_RESULT(name, value) {name, #name},
#include "abi/cuda/results.inc"
#undef CUDA_RESULT
};
#define RESULTS (sizeof results / sizeof *results)

/* Results whose sentence is more than their name in small letters. */
static const struct {
    CUresult result;
    const char *text;
} sentences[] = {
    {CUDA_SUCCESS, "no error"},
    {CUDA_ERROR_INVALID_VALUE, "invalid argument"},
    {CUDA_ERROR_OUT_OF_MEMORY, "out of memory"},
    {CUDA_ERROR_NOT_INITIALIZED, "initialization error"},
    {CUDA_ERROR_DEINITIALIZED, "driver shutting down"},
    {CUDA_ERROR_NO_DEVICE, "no CUDA-capable device is detected"},
    {CUDA_ERROR_INVALID_DEVICE, "invalid device ordinal"},
    {CUDA_ERROR_INVALID_CONTEXT, "invalid device context"},
    {CUDA_ERROR_INVALID_HANDLE, "invalid resource handle"},
    {CUDA_ERROR_NOT_FOUND, "named symbol not found"},
    {CUDA_ERROR_NOT_READY, "device not ready"},
    {CUDA_ERROR_NOT_SUPPORTED, "operation not supported"},
};

CUresult cuGetErrorName(CUresult result, const char **name) {
    SG_REQUIRE(name, CUDA_ERROR_INVALID_VALUE);
    *name = NULL;
    for (size_t i = 0; i < RESULTS; i++) {
        if (results[i].result == result) {
            *name = results[i].name;
        }
    }
    return *name ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* "CUDA_ERROR_LAUNCH_FAILED" reads "launch failed". Written once; threads write the same bytes. */
static const char *spelled(size_t i) {
    static char texts[RESULTS][64];
    static pthread_mutex_t writing = PTHREAD_MUTEX_INITIALIZER;
    const char *name = results[i].name + strlen("CUDA_ERROR_");

    pthread_mutex_lock(&writing);
    for (size_t k = 0; name[k] && k < sizeof texts[i] - 1; k++) {
        texts[i][k] = name[k] == '_' ? ' ' : (char)(name[k] | 0x20);
    }
    pthread_mutex_unlock(&writing);
    return texts[i];
}

CUresult cuGetErrorString(CUresult result, const char **text) {
    SG_REQUIRE(text, CUDA_ERROR_INVALID_VALUE);
    *text = NULL;
    for (size_t i = 0; i < sizeof sentences / sizeof *sentences; i++) {
        if (sentences[i].result == result) {
            *text = sentences[i].text;
        }
    }
    for (size_t i = 0; i < RESULTS && !*text; i++) {
        if (results[i].result == result) {
            *text = spelled(i);
        }
    }
    return *text ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
