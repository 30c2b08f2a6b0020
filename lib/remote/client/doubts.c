/* Whether a posted call names memory of which the client cannot tell that the driver takes it. Such a call waits, and answers
 * what the driver says: the client refuses nothing by itself, because it does not know all that the driver has, such as what
 * is mapped at reserved addresses. */
#include "remote/client/copies.h"

static bool doubts(uint64_t at, uint64_t size) {
    return !remote_side_device(at, size).known;
}

/* Elements of so many bytes, which the driver demands to be aligned to their size. */
static bool doubts_line(uint64_t at, uint64_t count, unsigned element) {
    uint64_t size;

    return __builtin_mul_overflow(count, element, &size) || at % element || doubts(at, size);
}

static bool doubts_rows(const uint64_t *words, unsigned element) {
    uint64_t at = words[0], pitch = words[1], height = words[4], width, extent;
    CUDA_MEMCPY3D_PEER shape = {.Height = height, .Depth = 1};

    if (__builtin_mul_overflow(words[3], element, &width)) {
        return true;
    }
    shape.WidthInBytes = width;
    return at % element || pitch % element || (height > 1 && pitch < width) ||
           !remote_shape_extent(&shape, pitch, 0, &extent) || doubts(at, extent);
}

bool remote_doubts(uint16_t call, const uint64_t *words) {
    switch (call) {
    case REMOTE_cuMemsetD8_v2:
    case REMOTE_cuMemsetD8_v2_ptds:
    case REMOTE_cuMemsetD8Async:
    case REMOTE_cuMemsetD8Async_ptsz:
        return doubts_line(words[0], words[2], 1);
    case REMOTE_cuMemsetD16_v2:
    case REMOTE_cuMemsetD16_v2_ptds:
    case REMOTE_cuMemsetD16Async:
    case REMOTE_cuMemsetD16Async_ptsz:
        return doubts_line(words[0], words[2], 2);
    case REMOTE_cuMemsetD32_v2:
    case REMOTE_cuMemsetD32_v2_ptds:
    case REMOTE_cuMemsetD32Async:
    case REMOTE_cuMemsetD32Async_ptsz:
        return doubts_line(words[0], words[2], 4);
    case REMOTE_cuMemsetD2D8_v2:
    case REMOTE_cuMemsetD2D8_v2_ptds:
    case REMOTE_cuMemsetD2D8Async:
    case REMOTE_cuMemsetD2D8Async_ptsz:
        return doubts_rows(words, 1);
    case REMOTE_cuMemsetD2D16_v2:
    case REMOTE_cuMemsetD2D16_v2_ptds:
    case REMOTE_cuMemsetD2D16Async:
    case REMOTE_cuMemsetD2D16Async_ptsz:
        return doubts_rows(words, 2);
    case REMOTE_cuMemsetD2D32_v2:
    case REMOTE_cuMemsetD2D32_v2_ptds:
    case REMOTE_cuMemsetD2D32Async:
    case REMOTE_cuMemsetD2D32Async_ptsz:
        return doubts_rows(words, 4);
    case REMOTE_cuMemcpyDtoD_v2:
    case REMOTE_cuMemcpyDtoD_v2_ptds:
    case REMOTE_cuMemcpyDtoDAsync_v2:
    case REMOTE_cuMemcpyDtoDAsync_v2_ptsz:
        return doubts(words[0], words[2]) || doubts(words[1], words[2]);
    case REMOTE_cuMemcpyPeerAsync:
    case REMOTE_cuMemcpyPeerAsync_ptsz:
        return doubts(words[0], words[4]) || doubts(words[2], words[4]);
    default:
        return false;
    }
}
