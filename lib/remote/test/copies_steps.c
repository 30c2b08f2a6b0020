#include "remote/test/copies_draw.h"

#include "test/check.h"

#include <stdlib.h>
#include <string.h>

static uint64_t state;

uint64_t copies_draw(void) {
    state += UINT64_C(0x9e3779b97f4a7c15);
    uint64_t z = (state ^ state >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

static void paint(unsigned char *at, size_t size) {
    for (size_t i = 0; i < size; i += 8) {
        uint64_t value = copies_draw();
        memcpy(at + i, &value, 8);
    }
}

void copies_make(struct copies_side *side, const struct remote_cuda_driver *call,
                 const struct remote_cuda_driver *see) {
    const CUDA_ARRAY3D_DESCRIPTOR flat = {WIDTH, HEIGHT, 0, CU_AD_FORMAT_UNSIGNED_INT8, ELEMENT, 0};
    const CUDA_ARRAY3D_DESCRIPTOR deep = {WIDTH / 4, HEIGHT / 2, DEPTH, CU_AD_FORMAT_FLOAT, 1, 0};

    side->call = call;
    side->see = see;
    state = 1;
    for (int i = 0; i < 2; i++) {
        OK(see->cuMemAlloc_v2(&side->device[i], ROOM));
        OK(see->cuMemsetD8_v2(side->device[i], 0, ROOM));
        side->pageable[i] = malloc(ROOM);
        CHECK(side->pageable[i]);
        OK(call->cuMemHostAlloc((void **)&side->pinned[i], ROOM, 0));
        paint(side->pageable[i], ROOM);
        paint(side->pinned[i], ROOM);
    }
    OK(see->cuArray3DCreate_v2(&side->flat, &flat));
    OK(see->cuArray3DCreate_v2(&side->deep, &deep));
    side->seen_flat = side->flat;
    side->seen_deep = side->deep;
    OK(see->cuStreamCreate(&side->stream, CU_STREAM_NON_BLOCKING));
    OK(see->cuCtxGetCurrent(&side->context));
}

void copies_end(struct copies_side *side) {
    for (int i = 0; i < 2; i++) {
        OK(side->see->cuMemFree_v2(side->device[i]));
        OK(side->call->cuMemFreeHost(side->pinned[i]));
        free(side->pageable[i]);
    }
    OK(side->see->cuArrayDestroy(side->seen_flat));
    OK(side->see->cuArrayDestroy(side->seen_deep));
}

static size_t draw_bytes(void) {
    switch (below(6)) {
    case 0:
        return below(4);
    case 1:
        return below(ROOM);
    case 2:
        return 65536 + below(3);
    case 3:
        return CHUNK - 2 + below(5);
    default:
        return below(5000);
    }
}

/* A drawn row. */
struct row {
    enum where to, from;
    unsigned to_which, from_which, form;
    size_t to_at, from_at, bytes;
};

/* By the function that fits the two places. */
static CUresult array_row(const struct copies_side *side, const struct row *r, CUstream stream) {
    bool wait = r->form % 2;

    if (is_array(r->to)) {
        CUarray to = r->to == DEEP ? side->deep : side->flat;
        const void *from = host_of(side, r->from, r->from_which, r->from_at);
        return wait ? side->call->cuMemcpyHtoA_v2(to, r->to_at, from, r->bytes)
                    : side->call->cuMemcpyHtoAAsync_v2(to, r->to_at, from, r->bytes, stream);
    }
    CUarray from = r->from == DEEP ? side->deep : side->flat;
    void *to = host_of(side, r->to, r->to_which, r->to_at);
    return wait ? side->call->cuMemcpyAtoH_v2(to, from, r->from_at, r->bytes)
                : side->call->cuMemcpyAtoHAsync_v2(to, from, r->from_at, r->bytes, stream);
}

static CUresult unified_row(const struct copies_side *side, const struct row *r, CUstream stream) {
    CUdeviceptr to = unified_of(side, r->to, r->to_which, r->to_at);
    CUdeviceptr from = unified_of(side, r->from, r->from_which, r->from_at);
    size_t bytes = r->bytes, failed = 77;

    if (r->form % 2) {
        return r->form & 4 ? side->call->cuMemcpy_ptds(to, from, bytes)
                           : side->call->cuMemcpy(to, from, bytes);
    }
    if (!(r->form & 4)) {
        return side->call->cuMemcpyAsync(to, from, bytes, stream);
    }
    CUresult result =
        r->form & 2
            ? side->call->cuMemcpyBatchAsync(&to, &from, &bytes, 1, NULL, NULL, 0, &failed, stream)
            : side->call->cuMemcpyBatchAsync_v2(&to, &from, &bytes, 1, NULL, NULL, 0, stream);
    CHECK(failed == 77 || (failed == 0 && result != CUDA_SUCCESS));
    return result;
}

static CUresult do_row(const struct copies_side *side, const struct row *r) {
    CUstream stream = r->form % 3 ? side->stream : NULL;
    const struct remote_cuda_driver *call = side->call;

    if (is_array(r->to) || is_array(r->from)) {
        return array_row(side, r, stream);
    }
    if (r->form & 8 || is_host(r->to) == is_host(r->from)) {
        return unified_row(side, r, stream);
    }
    if (is_host(r->from)) {
        CUdeviceptr to = device_of(side, r->to, r->to_at);
        const void *from = host_of(side, r->from, r->from_which, r->from_at);
        switch (r->form % 4) {
        case 0:
            return call->cuMemcpyHtoDAsync_v2(to, from, r->bytes, stream);
        case 1:
            return call->cuMemcpyHtoD_v2(to, from, r->bytes);
        case 2:
            return call->cuMemcpyHtoDAsync_v2_ptsz(to, from, r->bytes, stream);
        default:
            return call->cuMemcpyHtoD_v2_ptds(to, from, r->bytes);
        }
    }
    void *to = host_of(side, r->to, r->to_which, r->to_at);
    CUdeviceptr from = device_of(side, r->from, r->from_at);
    switch (r->form % 4) {
    case 0:
        return call->cuMemcpyDtoHAsync_v2(to, from, r->bytes, stream);
    case 1:
        return call->cuMemcpyDtoH_v2(to, from, r->bytes);
    case 2:
        return call->cuMemcpyDtoHAsync_v2_ptsz(to, from, r->bytes, stream);
    default:
        return call->cuMemcpyDtoH_v2_ptds(to, from, r->bytes);
    }
}

static CUresult row(const struct copies_side *side) {
    struct row r = {.to = draw_where(), .from = draw_where()};

    r.to_which = (unsigned)below(2);
    r.from_which = (unsigned)below(2);
    r.form = (unsigned)below(16);
    r.bytes = draw_bytes();
    if (is_array(r.to) || is_array(r.from)) {
        r.from = is_array(r.to) ? (is_host(r.from) ? r.from : PAGEABLE) : r.from;
        r.to = is_array(r.from) && !is_host(r.to) ? PAGEABLE : r.to;
        r.bytes = below(8) ? below(WIDTH * ELEMENT) : r.bytes;
    }
    /* Beyond the device's memory, sometimes; beyond the host's never, which would be no error but the end. */
    r.to_at = below(ROOM - r.bytes + 1);
    r.from_at = below(ROOM - r.bytes + 1);
    if (below(24) == 0 && is_host(r.from) && !is_host(r.to)) {
        r.to_at = FAR;
    } else if (below(24) == 0 && is_host(r.to) && !is_host(r.from)) {
        r.from_at = FAR;
    }
    /* As an address of either side it would be the host's, and the end of the process. */
    r.form &= r.to_at == FAR || r.from_at == FAR ? 7u : 15u;
    r.to_at = is_array(r.to) ? below(64) * ELEMENT : r.to_at;
    r.from_at = is_array(r.from) ? below(64) * ELEMENT : r.from_at;
    return do_row(side, &r);
}

/* Host memory comes and goes, and tells of itself. */
static CUresult host(const struct copies_side *side) {
    const struct remote_cuda_driver *call = side->call;
    size_t bytes = below(8) ? below(300000) : 0;
    unsigned flags = (unsigned)below(9), told = 0, mapped = CU_MEMHOSTALLOC_DEVICEMAP;
    CUdeviceptr device = 0;
    void *at = NULL;

    if (side->maps_nothing) {
        mapped = 0;
        flags &= ~(unsigned)CU_MEMHOSTALLOC_DEVICEMAP;
    }
    CUresult result = call->cuMemHostAlloc(&at, bytes, flags);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    unsigned char *bytes_there = at;
    OK(call->cuMemHostGetFlags(&told, bytes_there + below(bytes)));
    /* Directly it is mapped in any case. */
    CHECK_EQUAL(told | CU_MEMHOSTALLOC_DEVICEMAP, flags | CU_MEMHOSTALLOC_DEVICEMAP);
    CHECK_EQUAL(told & mapped, mapped);
    CHECK(call->cuMemHostGetDevicePointer_v2(&device, at, 0) == CUDA_SUCCESS || !mapped);
    CHECK_EQUAL(call->cuMemHostUnregister(at), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
    memset(at, 0x3c, bytes);
    result = call->cuMemcpyHtoDAsync_v2(side->device[0], at, bytes, side->stream);
    OK(call->cuMemFreeHost(at));
    CHECK_EQUAL(call->cuMemFreeHost(at), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQUAL(call->cuMemHostGetFlags(&told, at), CUDA_ERROR_INVALID_VALUE);
    OK(call->cuMemHostRegister_v2(side->pageable[0], ROOM, 0));
    CHECK_EQUAL(call->cuMemHostRegister_v2(side->pageable[0] + 5, 9, 0),
                CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    CHECK_EQUAL(call->cuMemFreeHost(side->pageable[0]), CUDA_ERROR_INVALID_VALUE);
    OK(call->cuMemHostUnregister(side->pageable[0]));
    return result;
}

CUresult copies_step(struct copies_side *side, uint64_t seed) {
    state = seed * UINT64_C(0x1000193);
    switch (below(20)) {
    case 0:
        return host(side);
    default:
        return below(2) ? row(side) : copies_shape(side);
    }
}

/* Four sums side by side, which a processor works at together. */
static uint64_t digest(uint64_t sum, const void *at, size_t size) {
    uint64_t sums[4] = {sum, sum + 1, sum + 2, sum + 3};

    for (size_t i = 0; i < size; i += sizeof sums) {
        uint64_t values[4];
        memcpy(values, (const unsigned char *)at + i, sizeof values);
        for (size_t k = 0; k < 4; k++) {
            sums[k] = (sums[k] ^ values[k]) * UINT64_C(0x9fb21c651e98df25);
            sums[k] = sums[k] << 23 | sums[k] >> 41;
        }
    }
    return sums[0] + 3 * sums[1] + 5 * sums[2] + 7 * sums[3];
}

static uint64_t look_array(const struct copies_side *side, CUarray array, size_t row, size_t height,
                           size_t depth, uint64_t sum) {
    static unsigned char bytes[WIDTH * ELEMENT * HEIGHT];
    const CUDA_MEMCPY3D what = {.srcMemoryType = CU_MEMORYTYPE_ARRAY,
                                .srcArray = array,
                                .dstMemoryType = CU_MEMORYTYPE_HOST,
                                .dstHost = bytes,
                                .dstPitch = row,
                                .dstHeight = height,
                                .WidthInBytes = row,
                                .Height = height,
                                .Depth = depth};

    OK(side->see->cuMemcpy3D_v2(&what));
    return digest(sum, bytes, row * height * depth);
}

uint64_t copies_look(const struct copies_side *side) {
    static unsigned char bytes[ROOM];
    uint64_t sum = 0;

    for (int i = 0; i < 2; i++) {
        OK(side->see->cuMemcpyDtoH_v2(bytes, side->device[i], ROOM));
        sum = digest(sum, bytes, ROOM);
        sum = digest(sum, side->pageable[i], ROOM);
        sum = digest(sum, side->pinned[i], ROOM);
    }
    sum = look_array(side, side->seen_flat, WIDTH * ELEMENT, HEIGHT, 1, sum);
    return look_array(side, side->seen_deep, WIDTH, HEIGHT / 2, DEPTH, sum);
}
