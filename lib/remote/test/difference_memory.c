/* Memory: allocations, fills, copies, pools, and what is told of addresses. */
#include "remote/test/difference.h"

#define draw difference_draw
#define see difference_see
#define PAD 8192u
#define NOWHERE 4096u /* no memory is there */

static unsigned draw_buffer(void) {
    unsigned i = (unsigned)draw(BUFFERS);

    for (unsigned k = 0; draw(12) && !w.buffers[i].held && k < BUFFERS; k++) {
        i = (i + 1) % BUFFERS;
    }
    return i;
}

/* Mostly inside, and some that reach beyond the end of all. */
static size_t draw_bytes(size_t of) {
    return draw(40) == 0 ? (size_t)1 << (30 + draw(20)) : draw(of + 1);
}

/* Each has more than is said of it, so that nothing reaches another: where they lie depends on when memory became free. For
 * that reason also nothing of what was there before is looked at. */
static void allocate(void) {
    unsigned i = (unsigned)draw(BUFFERS);
    size_t size = draw(30) ? 1 + draw(ROOM) : (size_t)draw(2) << 45, pitch = 0;
    CUdeviceptr at = 0;
    CUresult result;

    if (w.buffers[i].held) {
        return;
    }
    switch (draw(4)) {
    case 0:
        size = 1 + draw(256);
        result = WAITS(cuMemAllocPitch_v2, &at, &pitch, size, 1 + PAD / 256 + draw(16),
                       draw(20) ? 4 : 3);
        see(pitch);
        break;
    case 1:
        result = WAITS(cuMemAllocAsync, &at, size ? size + PAD : 0, w.streams[0]);
        break;
    default:
        result = WAITS(cuMemAlloc_v2, draw(50) ? &at : NULL, size ? size + PAD : 0);
    }
    see(at != 0);
    if (result == CUDA_SUCCESS) {
        w.buffers[i].at = at;
        w.buffers[i].size = size;
        w.buffers[i].held = true;
        POSTS(cuMemsetD8_v2, at, 0, size + PAD);
    }
}

static void release(void) {
    unsigned i = draw_buffer();
    CUdeviceptr at = w.buffers[i].at + (draw(16) == 0);

    if (draw(3) == 0) {
        return;
    }
    draw(4) ? POSTS(cuMemFree_v2, at) : POSTS(cuMemFreeAsync, at, w.streams[0]);
    if (w.buffers[i].held && at == w.buffers[i].at) {
        w.buffers[i].held = false;
        w.buffers[i].at = NOWHERE;
    }
}

static void fill(void) {
    unsigned i = draw_buffer();
    size_t n = draw_bytes(w.buffers[i].size);
    CUdeviceptr at = w.buffers[i].at + (draw(4) ? 0 : draw(64));
    unsigned value = (unsigned)draw(1u << 31);

    switch (draw(8)) {
    case 0:
        JUDGED(cuMemsetD8_v2, at, (unsigned char)value, n);
        return;
    case 1:
        JUDGED(cuMemsetD16_v2, at, (unsigned short)value, n / 2);
        return;
    case 2:
        JUDGED(cuMemsetD32_v2, at, value, n / 4);
        return;
    case 3:
        JUDGED(cuMemsetD8Async, at, (unsigned char)value, n, difference_stream());
        return;
    case 4:
        JUDGED(cuMemsetD16Async, at, (unsigned short)value, n / 2, difference_stream());
        return;
    case 5:
        JUDGED(cuMemsetD32Async, at, value, n / 4, difference_stream());
        return;
    case 6:
        JUDGED(cuMemsetD2D8_v2, at, 256, (unsigned char)value, draw(300), draw(16));
        return;
    default:
        JUDGED(cuMemsetD2D32Async, at, 256, value, draw(70), draw(16), difference_stream());
    }
}

static void copy_in(void) {
    unsigned i = draw_buffer();
    size_t n = draw(w.buffers[i].size + 1);
    CUdeviceptr at = w.buffers[i].at + (draw(6) ? 0 : draw(64));
    size_t from = draw(ROOM - (n < ROOM ? n : ROOM) + 1);

    n = n > ROOM ? ROOM : n;
    difference_host[draw(ROOM)] ^= (unsigned char)draw(256);
    switch (draw(3)) {
    case 0:
        POSTS(cuMemcpyHtoD_v2, at, difference_host + from, n);
        return;
    case 1:
        POSTS(cuMemcpyHtoDAsync_v2, at, difference_host + from, n, difference_stream());
        return;
    default: /* what is not the driver's is taken for the program's */
        if (w.buffers[i].held) {
            POSTS(cuMemcpy, at, (uintptr_t)(difference_host + from), n);
        }
    }
}

static void copy_out(void) {
    static unsigned char out[ROOM + 64];
    unsigned i = draw_buffer();
    size_t n = draw((w.buffers[i].size < ROOM ? w.buffers[i].size : ROOM) + 1);
    CUdeviceptr at = w.buffers[i].at + (draw(6) ? 0 : draw(64));

    memset(out, 0x5a, sizeof out);
    WAITS(cuMemcpyDtoH_v2, out, at, n);
    difference_see_bytes(out, n + 64);
}

static void copy_within(void) {
    unsigned i = draw_buffer(), k = draw_buffer();
    size_t least = w.buffers[i].size < w.buffers[k].size ? w.buffers[i].size : w.buffers[k].size;
    size_t n = draw_bytes(least);
    CUstream stream = difference_stream();

    if (i == k) {
        return; /* what overlaps is not documented */
    }
    if (draw(2)) {
        JUDGED(cuMemcpyDtoD_v2, w.buffers[k].at, w.buffers[i].at, n);
    } else {
        JUDGED(cuMemcpyDtoDAsync_v2, w.buffers[k].at, w.buffers[i].at, n, stream);
    }
}

static void copy_rectangle(void) {
    static unsigned char out[256 * 16];
    unsigned i = draw_buffer();
    CUDA_MEMCPY2D c = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                       .srcDevice = w.buffers[i].at,
                       .srcPitch = draw(20) ? 128 : draw(200),
                       .srcXInBytes = draw(32),
                       .dstMemoryType = draw(40) ? CU_MEMORYTYPE_HOST : (CUmemorytype)7,
                       .dstHost = out,
                       .dstPitch = 256,
                       .WidthInBytes = draw(130),
                       .Height = draw(15)};

    memset(out, 0x6b, sizeof out);
    WAITS(cuMemcpy2D_v2, &c);
    difference_see_bytes(out, sizeof out);
}

static void ask_range(void) {
    unsigned i = draw_buffer();
    CUdeviceptr at = w.buffers[i].at + draw(w.buffers[i].size + 100), base = at;
    size_t size = 7;

    WAITS(cuMemGetAddressRange_v2, draw(8) ? &base : NULL, draw(8) ? &size : NULL, at);
    see(base - at);
    see(size);
}

static void ask_pointer(void) {
    static const CUpointer_attribute all[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                              CU_POINTER_ATTRIBUTE_IS_MANAGED,
                                              CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                              CU_POINTER_ATTRIBUTE_RANGE_SIZE,
                                              CU_POINTER_ATTRIBUTE_MAPPED,
                                              CU_POINTER_ATTRIBUTE_ACCESS_FLAGS,
                                              (CUpointer_attribute)99};
    unsigned i = draw_buffer();
    uint64_t value = 0;

    WAITS(cuPointerGetAttribute, draw(20) ? &value : NULL, all[draw(7)],
          w.buffers[i].at + draw(100));
    see(value);
}

static void ask_room(void) {
    size_t left = 0, total = 0;

    /* What streams have freed is given back when they are waited for. */
    WAITS(cuCtxSynchronize);
    WAITS(cuMemGetInfo_v2, &left, &total);
    see(left);
    see(total);
}

/* A pool gives memory back when something is synchronised; whether a copy that blocks does so too, nobody documents. So it is
 * looked at behind a call that does, and what it had at most is left out. */
static void use_pool(void) {
    static const CUmemPool_attribute all[] = {
        CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT,
        CU_MEMPOOL_ATTR_USED_MEM_CURRENT, CU_MEMPOOL_ATTR_USED_MEM_HIGH, (CUmemPool_attribute)77};
    cuuint64_t value = draw(3) * 4096;
    CUmemPool_attribute attribute = all[draw(5)];

    WAITS(cuCtxSynchronize);
    switch (draw(3)) {
    case 0:
        WAITS(cuMemPoolSetAttribute, w.pool, attribute, &value);
        return;
    case 1:
        WAITS(cuMemPoolTrimTo, w.pool, draw(2) << 20);
        return;
    default:
        value = 0;
        WAITS(cuMemPoolGetAttribute, w.pool, attribute, &value);
        see(value);
    }
}

difference_operation *const difference_memory[MEMORY_KINDS] = {
    allocate,       release,   fill,        copy_in,  copy_out, copy_within,
    copy_rectangle, ask_range, ask_pointer, ask_room, use_pool};
