#include "remote/client/pack.h"

#include <stdlib.h>
#include <string.h>

/* Entries of a launch's extra list, of which there are two kinds. */
#define MOST_EXTRA 16u

static void copy(unsigned char *to, const void *from, size_t size) {
    /* What most parameters are. */
    if (size == 8) {
        memcpy(to, from, 8);
    } else if (size == 4) {
        memcpy(to, from, 4);
    } else {
        memcpy(to, from, size);
    }
}

static CUresult pack_pointers(CUfunction function, void **params, struct remote_packed *packed) {
    CUresult result;
    const struct remote_layout *layout = remote_layout_of(function, &result);

    if (!layout) {
        return result;
    }
    unsigned char *room = packed->room;
    if (layout->bytes > sizeof packed->room) {
        room = packed->large = malloc(layout->bytes);
        if (!room) {
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
    }
    packed->form = REMOTE_POINTERS;
    packed->at = room;
    packed->size = layout->bytes;
    /* What lies between parameters must not tell what lay here before. */
    memset(room, 0, layout->bytes);
    for (uint32_t i = 0; i < layout->count; i++) {
        if (!params[i]) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        copy(room + layout->params[i].at, params[i], layout->params[i].size);
    }
    return CUDA_SUCCESS;
}

static CUresult pack_buffer(void **extra, struct remote_packed *packed) {
    size_t size = 0;

    packed->form = REMOTE_BUFFER;
    for (unsigned i = 0; extra[0] != CU_LAUNCH_PARAM_END; i++, extra += 2) {
        if (extra[0] == CU_LAUNCH_PARAM_BUFFER_POINTER) {
            packed->at = extra[1];
        } else if (extra[0] == CU_LAUNCH_PARAM_BUFFER_SIZE && extra[1]) {
            memcpy(&size, extra[1], sizeof size);
        } else {
            return CUDA_ERROR_INVALID_VALUE;
        }
        if (i == MOST_EXTRA) {
            return CUDA_ERROR_INVALID_VALUE;
        }
    }
    if (size > REMOTE_PARAM_BYTES) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    packed->size = packed->at ? (uint32_t)size : 0;
    return CUDA_SUCCESS;
}

CUresult remote_pack(CUfunction function, void **params, void **extra,
                     struct remote_packed *packed) {
    packed->form = REMOTE_NO_PARAMS;
    packed->at = packed->large = NULL;
    packed->size = 0;
    if (params && extra) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return params  ? pack_pointers(function, params, packed)
           : extra ? pack_buffer(extra, packed)
                   : CUDA_SUCCESS;
}

void remote_packed_end(struct remote_packed *packed) {
    free(packed->large);
    packed->large = NULL;
}

void remote_unpack(const struct remote_layout *layout, const void *bytes, void **params) {
    for (uint32_t i = 0; i < layout->count; i++) {
        params[i] = (unsigned char *)(uintptr_t)bytes + layout->params[i].at;
    }
}

CUresult remote_judge_shape(const unsigned grid[3], const unsigned block[3]) {
    /* The same on all GPUs of today. */
    static const unsigned most_blocks[3] = {0x7fffffff, 65535, 65535};
    static const unsigned most_threads[3] = {1024, 1024, 64};

    for (int i = 0; i < 3; i++) {
        if (grid[i] == 0 || grid[i] > most_blocks[i] || block[i] == 0 ||
            block[i] > most_threads[i]) {
            return CUDA_ERROR_INVALID_VALUE;
        }
    }
    return block[0] * block[1] * block[2] > 1024 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}
