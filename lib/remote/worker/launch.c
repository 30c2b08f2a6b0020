/* Launches. The driver has what it needs of a record when its function returns. */
#include "remote/launch.h"

#include "remote/worker/hand.h"
#include "remote/worker/kernels.h"

static unsigned low(uint64_t word) {
    return (unsigned)word;
}

static unsigned high(uint64_t word) {
    return (unsigned)(word >> 32);
}

struct launch {
    CUfunction function;
    CUstream stream;
    struct remote_given_params given;
};

/* Reads what all launches have. Whether the driver can be called says remote_taken. */
static bool take(struct remote_decoder *d, struct launch *launch) {
    launch->function = (CUfunction)remote_handle(d, 0, REMOTE_KIND_CUfunction);
    launch->stream = (CUstream)remote_handle(d, 1, REMOTE_KIND_CUstream);
    return remote_in_params(d, d->words[0], high(d->words[5]), REMOTE_GIVEN_PARAMS,
                            REMOTE_GIVEN_EXTRA, &launch->given);
}

static enum remote_outcome answer(struct remote_decoder *d, CUresult result) {
    remote_answer(d, (int32_t)result);
    return remote_finish(d);
}

enum remote_outcome remote_hand_cuLaunchKernel(struct remote_decoder *d) {
    struct launch launch;

    if (!remote_words(d, REMOTE_LAUNCH_WORDS)) {
        return REMOTE_GARBLED;
    }
    take(d, &launch);
    if (!remote_taken(d, d->cuda->cuLaunchKernel != NULL)) {
        return remote_not_called(d);
    }
    const uint64_t *w = d->words;
    return answer(d,
                  d->cuda->cuLaunchKernel(launch.function, low(w[2]), high(w[2]), low(w[3]),
                                          high(w[3]), low(w[4]), high(w[4]), low(w[5]),
                                          launch.stream, launch.given.params, launch.given.extra));
}

enum remote_outcome remote_hand_cuLaunchCooperativeKernel(struct remote_decoder *d) {
    struct launch launch;

    if (!remote_words(d, REMOTE_LAUNCH_WORDS)) {
        return REMOTE_GARBLED;
    }
    d->garbled |= remote_is_given(d, REMOTE_GIVEN_EXTRA);
    take(d, &launch);
    if (!remote_taken(d, d->cuda->cuLaunchCooperativeKernel != NULL)) {
        return remote_not_called(d);
    }
    const uint64_t *w = d->words;
    return answer(d, d->cuda->cuLaunchCooperativeKernel(
                         launch.function, low(w[2]), high(w[2]), low(w[3]), high(w[3]), low(w[4]),
                         high(w[4]), low(w[5]), launch.stream, launch.given.params));
}

/* Attributes, with the driver's events in place of numbers. */
static CUlaunchAttribute *take_attributes(struct remote_decoder *d) {
    uint64_t count = d->words[REMOTE_LAUNCH_ATTRIBUTES];
    CUlaunchAttribute *attributes = NULL;

    if (count > REMOTE_MOST_ATTRIBUTES ||
        (count > 0) != remote_is_given(d, REMOTE_GIVEN_ATTRIBUTES)) {
        d->garbled = true;
        return NULL;
    }
    attributes = remote_in(d, REMOTE_GIVEN_ATTRIBUTES, count, sizeof *attributes);
    for (uint64_t i = 0; attributes && i < count; i++) {
        uint32_t id = (uint32_t)attributes[i].id;

        if (!remote_attribute_served(id)) {
            d->garbled = true;
        } else if (id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT ||
                   id == CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT) {
            remote_in_field(d, &attributes[i], offsetof(CUlaunchAttribute, value),
                            REMOTE_KIND_CUevent);
        }
    }
    return attributes;
}

enum remote_outcome remote_hand_cuLaunchKernelEx(struct remote_decoder *d) {
    struct launch launch;

    if (!remote_words(d, REMOTE_LAUNCH_WORDS + 1)) {
        return REMOTE_GARBLED;
    }
    CUlaunchAttribute *attributes = take_attributes(d);
    take(d, &launch);
    if (!remote_taken(d, d->cuda->cuLaunchKernelEx != NULL)) {
        return remote_not_called(d);
    }
    const uint64_t *w = d->words;
    const CUlaunchConfig config = {
        .gridDimX = low(w[2]),
        .gridDimY = high(w[2]),
        .gridDimZ = low(w[3]),
        .blockDimX = high(w[3]),
        .blockDimY = low(w[4]),
        .blockDimZ = high(w[4]),
        .sharedMemBytes = low(w[5]),
        .hStream = launch.stream,
        .attrs = attributes,
        .numAttrs = low(w[REMOTE_LAUNCH_ATTRIBUTES]),
    };
    return answer(d, d->cuda->cuLaunchKernelEx(&config, launch.function, launch.given.params,
                                               launch.given.extra));
}
