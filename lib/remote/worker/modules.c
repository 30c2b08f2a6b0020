/* Modules and libraries, and the names of what is in them. */
#include "remote/worker/modules.h"

#include "remote/worker/hand.h"

enum remote_outcome remote_hand_cuModuleLoadDataEx(struct remote_decoder *d) {
    struct remote_jit_options o;
    CUmodule module = 0;

    if (!remote_words(d, 3 + REMOTE_OPTION_WORDS)) {
        return REMOTE_GARBLED;
    }
    const void *image = remote_in_image(d, 1, 1);
    remote_in_options(d, 3, &o);
    if (!remote_taken(d, d->cuda->cuModuleLoadDataEx != NULL)) {
        return remote_not_called(d);
    }
    CUresult result = d->cuda->cuModuleLoadDataEx(remote_is_given(d, 0) ? &module : NULL, image,
                                                  o.count, o.options, o.values);
    remote_answer(d, (int32_t)result);
    remote_give_made(d, 0, 0, REMOTE_KIND_CUmodule, (uint64_t)module);
    remote_give_options(d, REMOTE_GIVEN_VALUES, REMOTE_GIVEN_LOGS, &o);
    return remote_finish(d);
}

enum remote_outcome remote_hand_cuLibraryLoadData(struct remote_decoder *d) {
    struct remote_jit_options o;
    CUlibrary library = 0;

    if (!remote_words(d, 3 + REMOTE_OPTION_WORDS)) {
        return REMOTE_GARBLED;
    }
    const void *image = remote_in_image(d, 1, 1);
    remote_in_options(d, 3, &o);
    if (!remote_taken(d, d->cuda->cuLibraryLoadData != NULL)) {
        return remote_not_called(d);
    }
    CUresult result = d->cuda->cuLibraryLoadData(remote_is_given(d, 0) ? &library : NULL, image,
                                                 o.options, o.values, o.count, NULL, NULL, 0);
    remote_answer(d, (int32_t)result);
    remote_give_made(d, 0, 0, REMOTE_KIND_CUlibrary, (uint64_t)library);
    remote_give_options(d, REMOTE_GIVEN_VALUES, REMOTE_GIVEN_LOGS, &o);
    return remote_finish(d);
}

static enum remote_outcome give_name(struct remote_decoder *d, CUresult result, const char *name) {
    remote_answer(d, (int32_t)(result == CUDA_SUCCESS && !name ? CUDA_ERROR_UNKNOWN : result));
    if (result == CUDA_SUCCESS && name) {
        remote_give_text(d, 0, name, REMOTE_ARRAY_BYTES, false);
    }
    return remote_finish(d);
}

enum remote_outcome remote_hand_cuFuncGetName(struct remote_decoder *d) {
    const char *name = NULL;

    if (!remote_words(d, 1)) {
        return REMOTE_GARBLED;
    }
    CUfunction function = (CUfunction)remote_handle(d, 0, REMOTE_KIND_CUfunction);
    if (!remote_taken(d, d->cuda->cuFuncGetName != NULL)) {
        return remote_not_called(d);
    }
    CUresult result = d->cuda->cuFuncGetName(&name, function);
    return give_name(d, result, name);
}

enum remote_outcome remote_hand_cuKernelGetName(struct remote_decoder *d) {
    const char *name = NULL;

    if (!remote_words(d, 1)) {
        return REMOTE_GARBLED;
    }
    CUkernel kernel = (CUkernel)remote_handle(d, 0, REMOTE_KIND_CUkernel);
    if (!remote_taken(d, d->cuda->cuKernelGetName != NULL)) {
        return remote_not_called(d);
    }
    CUresult result = d->cuda->cuKernelGetName(&name, kernel);
    return give_name(d, result, name);
}
