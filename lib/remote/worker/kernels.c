#include "remote/worker/kernels.h"

#include "remote/worker/hand.h"

#include <stdlib.h>

static struct remote_codes *codes;

void remote_refuse(struct remote_decoder *d, CUresult result) {
    if (!d->refused) {
        d->refused = true;
        d->result = (int32_t)result;
    }
}

/* The kind and handle of a number, in the order in which remote_handle looks. */
static bool resolve(struct remote_decoder *d, uint64_t number, enum remote_kind *kind,
                    uint64_t *handle) {
    for (int i = 0; number && i < 2; i++) {
        *kind = i ? REMOTE_KIND_CUkernel : REMOTE_KIND_CUfunction;
        if (remote_worker_resolve(d->worker, *kind, number, handle)) {
            return true;
        }
    }
    return false;
}

static CUresult param(struct remote_decoder *d, enum remote_kind kind, uint64_t handle, size_t i,
                      size_t *at, size_t *size) {
    if (kind == REMOTE_KIND_CUkernel) {
        return d->cuda->cuKernelGetParamInfo
                   ? d->cuda->cuKernelGetParamInfo((CUkernel)handle, i, at, size)
                   : CUDA_ERROR_NOT_SUPPORTED;
    }
    return d->cuda->cuFuncGetParamInfo
               ? d->cuda->cuFuncGetParamInfo((CUfunction)handle, i, at, size)
               : CUDA_ERROR_NOT_SUPPORTED;
}

/* The driver says how many parameters there are by refusing the one after the last. */
static struct remote_layout *ask(struct remote_decoder *d, enum remote_kind kind, uint64_t handle,
                                 CUresult *result) {
    static struct remote_param params[REMOTE_PARAM_BYTES];
    size_t count = 0;

    for (;; count++) {
        size_t at = 0, size = 0;

        *result = param(d, kind, handle, count, &at, &size);
        if (*result == CUDA_ERROR_INVALID_VALUE) {
            break;
        }
        if (*result != CUDA_SUCCESS) {
            return NULL;
        }
        if (count == REMOTE_PARAM_BYTES || at > REMOTE_PARAM_BYTES || size > REMOTE_PARAM_BYTES) {
            *result = CUDA_ERROR_NOT_SUPPORTED;
            return NULL;
        }
        params[count] = (struct remote_param){(uint16_t)at, (uint16_t)size};
    }
    struct remote_layout *layout = remote_layout_new(params, count);
    *result = layout ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
    return layout;
}

/* The layout that is kept, or without one, or if `again`, the driver's. */
static const struct remote_layout *layout_of(struct remote_decoder *d, uint64_t number, bool again,
                                             CUresult *result) {
    enum remote_kind kind;
    uint64_t handle;

    if (!resolve(d, number, &kind, &handle)) {
        *result = CUDA_ERROR_INVALID_HANDLE;
        return NULL;
    }
    struct remote_code *code = remote_code_find(&codes, kind, number);
    if (code && code->layout && code->handle == handle && !again) {
        *result = CUDA_SUCCESS;
        return code->layout;
    }
    struct remote_layout *layout = ask(d, kind, handle, result);
    if (!layout) {
        return NULL;
    }
    code = remote_code_add(&codes, kind, number);
    if (!code) {
        free(layout);
        *result = CUDA_ERROR_OUT_OF_MEMORY;
        return NULL;
    }
    free(code->layout);
    code->layout = layout;
    code->handle = handle;
    return layout;
}

const struct remote_layout *remote_worker_layout(struct remote_decoder *d, uint64_t number,
                                                 CUresult *result) {
    return layout_of(d, number, false, result);
}

/* The parameters behind a launch's words. Their memory is the record's, which ends at REMOTE_RECORD_BYTES. */
bool remote_in_params(struct remote_decoder *d, uint64_t number, uint64_t size, unsigned params,
                      unsigned extra, struct remote_given_params *to) {
    static void *pointers[REMOTE_PARAM_BYTES];
    static size_t buffer_size;
    static void *list[5];
    bool packed = remote_is_given(d, params), buffer = remote_is_given(d, extra);
    CUresult result;

    *to = (struct remote_given_params){NULL, NULL};
    if (packed == buffer || size > REMOTE_PARAM_BYTES) {
        d->garbled |= packed || size != 0;
        return !d->garbled;
    }
    unsigned char *bytes = remote_in(d, packed ? params : extra, size, 1);
    if (!bytes || d->refused) {
        return false;
    }
    if (buffer) {
        buffer_size = size;
        list[0] = CU_LAUNCH_PARAM_BUFFER_POINTER;
        list[1] = bytes;
        list[2] = CU_LAUNCH_PARAM_BUFFER_SIZE;
        list[3] = &buffer_size;
        list[4] = CU_LAUNCH_PARAM_END;
        to->extra = list;
        return true;
    }
    const struct remote_layout *layout = remote_worker_layout(d, number, &result);
    if (!layout || layout->bytes != size) {
        remote_refuse(d, layout ? CUDA_ERROR_INVALID_VALUE : result);
        return false;
    }
    for (uint32_t i = 0; i < layout->count; i++) {
        pointers[i] = bytes + layout->params[i].at;
    }
    to->params = pointers;
    return true;
}

/* Words: number. The parameters' places, in the order of the parameters. */
enum remote_outcome remote_hand_layout(struct remote_decoder *d) {
    CUresult result = CUDA_SUCCESS;

    if (!remote_words(d, 1)) {
        return REMOTE_GARBLED;
    }
    remote_handle(d, 0, REMOTE_KIND_CUfunction);
    if (!remote_taken(d, true)) {
        return remote_not_called(d);
    }
    /* A client that asks again was told of another function that has the number: the driver gives addresses of ended ones
     * away again. */
    const struct remote_layout *layout = layout_of(d, d->words[0], true, &result);
    remote_answer(d, (int32_t)result);
    if (layout) {
        remote_give_some(d, 1, layout->params, layout->count, sizeof *layout->params, false);
    }
    return remote_finish(d);
}

static void forget(struct remote_decoder *d, enum remote_kind kind, const uint64_t *numbers,
                   uint64_t count) {
    for (uint64_t i = 0; i < count; i++) {
        struct remote_code *code = remote_code_find(&codes, kind, numbers[i]);
        uint64_t handle;

        if (code) {
            remote_code_remove(&codes, code);
        }
        if (numbers[i] && remote_worker_resolve(d->worker, kind, numbers[i], &handle)) {
            remote_worker_unbind(d->worker, kind, numbers[i]);
        }
    }
}

/* Words: how many functions, how many kernels. Pieces: their numbers. */
enum remote_outcome remote_hand_forget(struct remote_decoder *d) {
    if (!remote_words(d, 2)) {
        return REMOTE_GARBLED;
    }
    const uint64_t *functions = remote_in(d, 0, d->words[0], sizeof *functions);
    const uint64_t *kernels = remote_in(d, 1, d->words[1], sizeof *kernels);
    if (!remote_taken(d, true)) {
        return remote_not_called(d);
    }
    forget(d, REMOTE_KIND_CUfunction, functions, functions ? d->words[0] : 0);
    forget(d, REMOTE_KIND_CUkernel, kernels, kernels ? d->words[1] : 0);
    remote_answer(d, 0);
    return remote_finish(d);
}
