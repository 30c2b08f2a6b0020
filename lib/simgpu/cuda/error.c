/* Names and descriptions of results: those that the driver of the machine knows. */
#include "simgpu/cuda/driver.h"

#include <limits.h>

static const struct {
    CUresult result;
    int since;
    const char *name, *text;
} results[] = {
#define RESULT(name, since, text) {name, since, #name, text},
#include "simgpu/cuda/results.inc"
#undef RESULT
};
#define RESULTS (sizeof results / sizeof *results)

/* The place of a result in the table, RESULTS if the driver does not know it. Without a machine it
 * knows all. */
static size_t place_of(CUresult result) {
    int newest;

    if (sg_claimed_version(&newest) != CUDA_SUCCESS) {
        newest = INT_MAX;
    }
    for (size_t i = 0; i < RESULTS; i++) {
        if (results[i].result == result && results[i].since <= newest) {
            return i;
        }
    }
    return RESULTS;
}

CUresult cuGetErrorName(CUresult result, const char **name) {
    SG_REQUIRE(name, CUDA_ERROR_INVALID_VALUE);
    size_t place = place_of(result);
    *name = place < RESULTS ? results[place].name : NULL;
    return *name ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGetErrorString(CUresult result, const char **text) {
    SG_REQUIRE(text, CUDA_ERROR_INVALID_VALUE);
    size_t place = place_of(result);
    *text = place < RESULTS ? results[place].text : NULL;
    return *text ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
