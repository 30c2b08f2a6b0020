/* Launches of kernels: records that nobody waits for. */
#include "remote/launch.h"
#include "remote/client/pack.h"

struct launch {
    enum remote_number number;
    CUfunction function;
    unsigned grid[3];
    unsigned block[3];
    unsigned shared;
    CUstream stream;
    void **params;
    void **extra;
    const CUlaunchAttribute *attributes;
    unsigned attribute_count;
};

static bool is_fixed(CUstream stream) {
    return (uint64_t)stream <= remote_kinds[REMOTE_KIND_CUstream].fixed;
}

static bool is_known(CUfunction function) {
    uint64_t number = (uint64_t)function;

    return number && (remote_number_known(REMOTE_KIND_CUfunction, number) ||
                      remote_number_known(REMOTE_KIND_CUkernel, number));
}

/* What the call answers by itself, for several reasons the one that the driver finds first. */
static CUresult refuse(const struct launch *launch, CUresult result) {
    CUresult first = (CUresult)remote_gate(launch->number);

    if (first == CUDA_SUCCESS && is_fixed(launch->stream)) {
        first = remote_current_result();
    } else if (first == CUDA_SUCCESS &&
               !remote_number_known(REMOTE_KIND_CUstream, (uint64_t)launch->stream)) {
        first = CUDA_ERROR_INVALID_HANDLE;
    }
    if (first == CUDA_SUCCESS && !(launch->params && launch->extra) &&
        !is_known(launch->function)) {
        first = CUDA_ERROR_INVALID_HANDLE;
    }
    return first == CUDA_SUCCESS ? result : first;
}

static uint64_t both(unsigned low, unsigned high) {
    return low | (uint64_t)high << 32;
}

static void write_words(struct remote_call *call, const struct launch *launch, uint32_t bytes) {
    remote_use(call, 0, REMOTE_KIND_CUfunction, (uint64_t)launch->function);
    remote_use(call, 1, REMOTE_KIND_CUstream, (uint64_t)launch->stream);
    call->words[2] = both(launch->grid[0], launch->grid[1]);
    call->words[3] = both(launch->grid[2], launch->block[0]);
    call->words[4] = both(launch->block[1], launch->block[2]);
    call->words[5] = both(launch->shared, bytes);
}

/* Attributes are values, but for events; one has the driver tell a handle for use on the GPU, which nobody could use here. */
static CUresult judge(const CUlaunchAttribute *attribute) {
    switch ((int)attribute->id) {
    case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT:
    case CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT:
        return remote_number_known(REMOTE_KIND_CUevent,
                                   (uint64_t)attribute->value.programmaticEvent.event)
                   ? CUDA_SUCCESS
                   : CUDA_ERROR_INVALID_HANDLE;
    default:
        return remote_attribute_served(attribute->id) ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
    }
}

/* Puts what was packed into a record, and sends it. */
static CUresult send_launch(const struct launch *launch, const struct remote_packed *packed) {
    struct remote_call call;

    remote_begin(&call, launch->number,
                 REMOTE_LAUNCH_WORDS + (launch->number == REMOTE_cuLaunchKernelEx));
    write_words(&call, launch, packed->size);
    if (launch->number == REMOTE_cuLaunchKernelEx) {
        call.words[REMOTE_LAUNCH_ATTRIBUTES] = launch->attribute_count;
        remote_array(&call, REMOTE_GIVEN_ATTRIBUTES,
                     launch->attribute_count ? launch->attributes : NULL, launch->attribute_count,
                     sizeof *launch->attributes);
    }
    if (packed->form != REMOTE_NO_PARAMS) {
        remote_array(&call,
                     packed->form == REMOTE_POINTERS ? REMOTE_GIVEN_PARAMS : REMOTE_GIVEN_EXTRA,
                     packed->size ? packed->at : packed->room, packed->size, 1);
    }
    return call.fault ? refuse(launch, (CUresult)call.fault) : (CUresult)remote_post(&call);
}

static CUresult launch(const struct launch *launch) {
    struct remote_packed packed;

    packed.large = NULL; /* its room is not cleared for nothing */
    CUresult result = launch->function ? remote_judge_shape(launch->grid, launch->block)
                                       : CUDA_ERROR_INVALID_HANDLE;

    /* The child of a fork must look nothing up. */
    if (result == CUDA_SUCCESS && launch->attribute_count) {
        result = (CUresult)remote_gate(launch->number);
    }
    for (unsigned i = 0; result == CUDA_SUCCESS && i < launch->attribute_count; i++) {
        result = judge(&launch->attributes[i]);
    }
    if (result == CUDA_SUCCESS) {
        result = remote_pack(launch->function, launch->params, launch->extra, &packed);
    }
    result = result == CUDA_SUCCESS ? send_launch(launch, &packed) : refuse(launch, result);
    remote_packed_end(&packed);
    return result;
}

/* The stream that NULL is, in a function for each default. */
static CUstream of_thread(CUstream stream) {
    return stream ? stream : CU_STREAM_PER_THREAD;
}

#define LAUNCH(name, stream_of)                                                                    \
    CUresult name(CUfunction function, unsigned int gx, unsigned int gy, unsigned int gz,          \
                  unsigned int bx, unsigned int by, unsigned int bz, unsigned int shared,          \
                  CUstream stream, void **params, void **extra) {                                  \
        const struct launch one = {.number = REMOTE_cuLaunchKernel,                                \
                                   .function = function,                                           \
                                   .grid = {gx, gy, gz},                                           \
                                   .block = {bx, by, bz},                                          \
                                   .shared = shared,                                               \
                                   .stream = stream_of(stream),                                    \
                                   .params = params,                                               \
                                   .extra = extra};                                                \
        return launch(&one);                                                                       \
    }

LAUNCH(cuLaunchKernel, )
LAUNCH(cuLaunchKernel_ptsz, of_thread)

#define LAUNCH_COOPERATIVE(name, stream_of)                                                        \
    CUresult name(CUfunction function, unsigned int gx, unsigned int gy, unsigned int gz,          \
                  unsigned int bx, unsigned int by, unsigned int bz, unsigned int shared,          \
                  CUstream stream, void **params) {                                                \
        const struct launch one = {.number = REMOTE_cuLaunchCooperativeKernel,                     \
                                   .function = function,                                           \
                                   .grid = {gx, gy, gz},                                           \
                                   .block = {bx, by, bz},                                          \
                                   .shared = shared,                                               \
                                   .stream = stream_of(stream),                                    \
                                   .params = params};                                              \
        return launch(&one);                                                                       \
    }

LAUNCH_COOPERATIVE(cuLaunchCooperativeKernel, )
LAUNCH_COOPERATIVE(cuLaunchCooperativeKernel_ptsz, of_thread)

static CUresult launch_config(const CUlaunchConfig *config, CUfunction function, void **params,
                              void **extra, CUstream stream) {
    const struct launch one = {
        .number = REMOTE_cuLaunchKernelEx,
        .function = function,
        .grid = {config->gridDimX, config->gridDimY, config->gridDimZ},
        .block = {config->blockDimX, config->blockDimY, config->blockDimZ},
        .shared = config->sharedMemBytes,
        .stream = stream,
        .params = params,
        .extra = extra,
        .attributes = config->attrs,
        .attribute_count = config->numAttrs,
    };

    if (one.attribute_count && !one.attributes) {
        return refuse(&one, CUDA_ERROR_INVALID_VALUE);
    }
    return one.attribute_count > REMOTE_MOST_ATTRIBUTES ? refuse(&one, CUDA_ERROR_NOT_SUPPORTED)
                                                        : launch(&one);
}

#define LAUNCH_EX(name, stream_of)                                                                 \
    CUresult name(const CUlaunchConfig *config, CUfunction function, void **params,                \
                  void **extra) {                                                                  \
        if (!config) {                                                                             \
            CUresult gate = (CUresult)remote_gate(REMOTE_cuLaunchKernelEx);                        \
                                                                                                   \
            return gate != CUDA_SUCCESS ? gate : CUDA_ERROR_INVALID_VALUE;                         \
        }                                                                                          \
        return launch_config(config, function, params, extra, stream_of(config->hStream));         \
    }

LAUNCH_EX(cuLaunchKernelEx, )
LAUNCH_EX(cuLaunchKernelEx_ptsz, of_thread)
