/* Launches of kernels, in every form that the driver has. */
#include "cuda/memory/local.h"
#include "cuda/time/launch.h"
#include "cuda/time/uses.h"

/* A launch that may need more local memory than the context has: it is reserved first. */
#define ANNOUNCED(fn, kernel, stream, ...)                                                         \
    if (local_suspected(kernel) && !DV_INNER()) {                                                  \
        struct growth growth;                                                                      \
        CUresult room = local_launch(&growth, kernel, stream);                                     \
        if (room == CUDA_SUCCESS) {                                                                \
            room = fn##_timed(__VA_ARGS__);                                                        \
            growth_end(&growth, room == CUDA_SUCCESS);                                             \
        }                                                                                          \
        return room;                                                                               \
    }                                                                                              \
    return fn##_timed(__VA_ARGS__)

/* What stands inside an exported function, so that DV_INNER sees who called that. */
#define INSIDE static inline __attribute__((always_inline))

/* A launch of `launched` in `stream` with parameters in one of two forms; after the prior, the arguments
 * for the driver. */
#define COUNTED(fn, stream, launched, parameters, extra, prior, ...)                               \
    struct launch launch;                                                                          \
    if (!launch_counts()) {                                                                        \
        return DV_REAL(fn)(__VA_ARGS__);                                                           \
    }                                                                                              \
    struct work counted = launched;                                                                \
    CUresult result = launch_begin(&launch, stream, counted, prior);                               \
    if (result == CUDA_SUCCESS) {                                                                  \
        if (uses_matter(&launch)) {                                                                \
            uses_kernel(launch.turns, counted.of, parameters, extra);                              \
        }                                                                                          \
        result = DV_CALL(fn, __VA_ARGS__);                                                         \
    }                                                                                              \
    launch_end(&launch, result);                                                                   \
    return result;

/* Of the arguments of such a launch the ninth, counted from 0, are the parameters, and the tenth, if
 * there is one, their other form. */
#define NINTH(a, b, c, d, e, f, g, h, i, ninth, ...) ninth
#define TENTH(...) TENTH_OF(__VA_ARGS__, NULL)
#define TENTH_OF(a, b, c, d, e, f, g, h, i, j, tenth, ...) tenth

#define CUDA_HOOK_LAUNCHES(fn, null, stream, in_order, key, parameters, arguments)                 \
    INSIDE CUresult fn##_timed parameters{COUNTED(fn, launch_##null(stream), key, NINTH arguments, \
                                                  TENTH(ARGUMENTS arguments, NULL), COST_PRIOR_NS, \
                                                  ARGUMENTS arguments)} CUresult fn parameters {   \
        ANNOUNCED(fn, a0, launch_##null(stream), ARGUMENTS arguments);                             \
    }
#include "abi/generated/cuda_hooks.inc"

static struct work work_of(const CUlaunchConfig *config, CUfunction function) {
    return cost_kernel(function, config->gridDimX, config->gridDimY, config->gridDimZ,
                       config->blockDimX, config->blockDimY, config->blockDimZ,
                       config->sharedMemBytes);
}

#define CONFIGURED(fn, stream_of)                                                                  \
    INSIDE CUresult fn##_timed(const CUlaunchConfig *config, CUfunction function,                  \
                               void **parameters, void **extra){                                   \
        COUNTED(fn, stream_of(config -> hStream), work_of(config, function), parameters, extra,    \
                COST_PRIOR_NS, config, function, parameters,                                       \
                extra)} CUresult fn(const CUlaunchConfig *config, CUfunction function,             \
                                    void **parameters, void **extra) {                             \
        if (config == NULL) {                                                                      \
            return DV_REAL(fn)(config, function, parameters, extra);                               \
        }                                                                                          \
        ANNOUNCED(fn, function, stream_of(config->hStream), config, function, parameters, extra);  \
    }
CONFIGURED(cuLaunchKernelEx, launch_legacy)
CONFIGURED(cuLaunchKernelEx_ptsz, launch_own)

/* The interface before CUDA 4, in which the function holds the shape of a block. */
#define GRID_WORK(function, width, height)                                                         \
    cost_kernel(function, (unsigned)(width), (unsigned)(height), 1, 0, 0, 0, 0)

INSIDE CUresult cuLaunch_timed(CUfunction function){
    COUNTED(cuLaunch, CU_STREAM_LEGACY, GRID_WORK(function, 1, 1), NULL, NULL, COST_PRIOR_NS,
            function)} CUresult cuLaunch(CUfunction function) {
    ANNOUNCED(cuLaunch, function, CU_STREAM_LEGACY, function);
}

INSIDE CUresult cuLaunchGrid_timed(CUfunction function, int width, int height){
    COUNTED(cuLaunchGrid, CU_STREAM_LEGACY, GRID_WORK(function, width, height), NULL, NULL,
            COST_PRIOR_NS, function, width, height)} CUresult
    cuLaunchGrid(CUfunction function, int width, int height) {
    ANNOUNCED(cuLaunchGrid, function, CU_STREAM_LEGACY, function, width, height);
}

INSIDE CUresult cuLaunchGridAsync_timed(CUfunction function, int width, int height,
                                        CUstream stream){
    COUNTED(cuLaunchGridAsync, launch_legacy(stream), GRID_WORK(function, width, height), NULL,
            NULL, COST_PRIOR_NS, function, width, height, stream)} CUresult
    cuLaunchGridAsync(CUfunction function, int width, int height, CUstream stream) {
    ANNOUNCED(cuLaunchGridAsync, function, launch_legacy(stream), function, width, height, stream);
}

/* Launches one kernel on several GPUs at once, each in a stream of its own. The driver refuses more
   launches than a tenant can have GPUs. */
static CUresult launch_list(CUDA_LAUNCH_PARAMS *list, unsigned count, unsigned flags) {
    struct launch launches[DV_PAGE_DEVICES];
    if (!launch_watched()) {
        return DV_CALL(cuLaunchCooperativeKernelMultiDevice, list, count, flags);
    }
    CUresult result = CUDA_SUCCESS;
    unsigned begun = 0;
    for (; begun < count && result == CUDA_SUCCESS; begun++) {
        const CUDA_LAUNCH_PARAMS *one = &list[begun];
        struct work work =
            cost_kernel(one->function, one->gridDimX, one->gridDimY, one->gridDimZ, one->blockDimX,
                        one->blockDimY, one->blockDimZ, one->sharedMemBytes);
        CUstream stream = launch_legacy(one->hStream);
        result = begun == 0 ? launch_begin(&launches[begun], stream, work, COST_PRIOR_NS)
                            : launch_joins(&launches[begun], stream, work, COST_PRIOR_NS);
        if (result == CUDA_SUCCESS && uses_matter(&launches[begun])) {
            uses_kernel(launches[begun].turns, one->function, one->kernelParams, NULL);
        }
    }
    if (result == CUDA_SUCCESS) {
        result = DV_CALL(cuLaunchCooperativeKernelMultiDevice, list, count, flags);
    }
    for (unsigned i = 0; i < begun; i++) {
        launch_end(&launches[i], result);
    }
    return result;
}

CUresult cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS *list, unsigned count,
                                              unsigned flags) {
    struct growth growths[DV_PAGE_DEVICES];
    if (DV_INNER() || list == NULL || count > DV_PAGE_DEVICES) {
        return DV_REAL(cuLaunchCooperativeKernelMultiDevice)(list, count, flags);
    }
    CUresult result = CUDA_SUCCESS;
    unsigned grown = 0;
    for (; grown < count && result == CUDA_SUCCESS; grown++) {
        result = local_launch(&growths[grown], list[grown].function, list[grown].hStream);
    }
    if (result == CUDA_SUCCESS) {
        result = launch_list(list, count, flags);
    } else {
        grown--; /* it has nothing to end */
    }
    for (unsigned i = 0; i < grown; i++) {
        growth_end(&growths[i], result == CUDA_SUCCESS);
    }
    return result;
}
