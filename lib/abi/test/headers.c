/* Compiles every description of a binary interface under the warnings of the
 * build, and checks what users of the name lists rely on. */
#include "abi/generated/cuda_functions.h"
#include "abi/generated/nvml_functions.h"
#include "abi/testdata/example_layout.h"
#include "test/check.h"

#include <stdio.h>
#include <string.h>

struct name {
    const char *name;
    const char *base;
    int since;
    const char *variant;
    const char *kind;
};

static const struct name cuda[] = {
#define CUDA_FN(name, base, since, variant, kind, hooked) {#name, #base, since, #variant, #kind},
#include "abi/generated/cuda_names.inc"
#undef CUDA_FN
};

static const struct name nvml[] = {
#define NVML_FN(name, base, version, kind) {#name, #base, version, "none", #kind},
#include "abi/generated/nvml_names.inc"
#undef NVML_FN
};

/* Every name has a prototype, and kinds and variants paste into identifiers. */
enum {
    of_none,
    of_ptsz,
    of_ptds,
    kind_allocate,
    kind_free,
    kind_launch,
    kind_copy,
    kind_map,
    kind_pool,
    kind_ipc,
    kind_context,
    kind_module,
    kind_graph,
    kind_capture,
    kind_sync,
    kind_information,
    kind_lookup,
    kind_configure,
    kind_session,
    kind_pass
};
#define CUDA_FN(name, base, since, variant, kind, hooked)                                          \
    _Static_assert(sizeof(&name) == 8 && of_##variant != kind_##kind, #name);
#include "abi/generated/cuda_names.inc"
#undef CUDA_FN
#define NVML_FN(name, base, version, kind)                                                         \
    _Static_assert(sizeof(&name) == 8 && kind_##kind != 0, #name);
#include "abi/generated/nvml_names.inc"
#undef NVML_FN

static void check_sorted(const struct name *names, size_t count) {
    for (size_t i = 1; i < count; i++) {
        CHECK(strcmp(names[i - 1].name, names[i].name) < 0);
    }
    for (size_t i = 0; i < count; i++) {
        CHECK(strncmp(names[i].name, names[i].base, strlen(names[i].base)) == 0);
    }
}

/* A switch over all values compiles only while no two names share one. */
static const char *result_name(CUresult result) {
    switch (result) {
#define CUDA_RESULT(name, value)                                                                   \
    case name:                                                                                     \
        return #name;
#include "abi/cuda/results.inc"
#undef CUDA_RESULT
    }
    return NULL;
}

static const char *attribute_name(CUdevice_attribute attribute) {
    switch (attribute) {
#define CUDA_ATTRIBUTE(name, value)                                                                \
    case CU_DEVICE_ATTRIBUTE_##name:                                                               \
        return #name;
#include "abi/cuda/attributes.inc"
#undef CUDA_ATTRIBUTE
    }
    return NULL;
}

static const char *nvml_result_name(nvmlReturn_t result) {
    switch (result) {
#define NVML_RESULT(name, value)                                                                   \
    case name:                                                                                     \
        return #name;
#include "abi/nvml/results.inc"
#undef NVML_RESULT
    }
    return NULL;
}

int main(void) {
    CHECK(sizeof(cuda) / sizeof(cuda[0]) == CUDA_FN_COUNT);
    CHECK(sizeof(nvml) / sizeof(nvml[0]) == NVML_FN_COUNT);
    check_sorted(cuda, CUDA_FN_COUNT);
    check_sorted(nvml, NVML_FN_COUNT);
    CHECK(strcmp(result_name((CUresult)2), "CUDA_ERROR_OUT_OF_MEMORY") == 0);
    CHECK(strcmp(result_name((CUresult)802), "CUDA_ERROR_SYSTEM_NOT_READY") == 0);
    CHECK(result_name((CUresult)5000) == NULL);
    CHECK(strcmp(attribute_name((CUdevice_attribute)75), "COMPUTE_CAPABILITY_MAJOR") == 0);
    CHECK(strcmp(nvml_result_name((nvmlReturn_t)7), "NVML_ERROR_INSUFFICIENT_SIZE") == 0);
    CHECK(EXAMPLE_FLOOR + 6 == 1);
    return 0;
}
