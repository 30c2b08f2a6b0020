/* Random copies of all kinds, directly to the simulated driver and through client and worker: after each the results are equal,
 * and so are all bytes of devices and of the host, those that must not change among them. */
#include "remote/test/copies_world.h"

#include "test/check.h"

#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define OK(call) CHECK_EQUAL(call, CUDA_SUCCESS)
#define ROOM (3u << 20)       /* of each buffer, larger than a chunk */
#define FAR ((size_t)1 << 44) /* where a device has no memory */
#define WIDTH 1024u           /* of the arrays, in elements */
#define ELEMENT 4u
#define HEIGHT 96u
#define DEPTH 4u

/* The same things, once for direct calls and once for the others. */
static struct side {
    CUdeviceptr device[2];
    unsigned char *pageable[2];
    unsigned char *pinned[2];
    CUarray flat, deep; /* the driver's handle, or the client's number */
    CUstream stream;
    CUcontext context;
} direct, remote;
static CUarray remote_flat, remote_deep; /* the driver's handles */

static uint64_t state;

static uint64_t draw(void) {
    state += UINT64_C(0x9e3779b97f4a7c15);
    uint64_t z = (state ^ state >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

static uint64_t below(uint64_t bound) {
    return bound ? draw() % bound : 0;
}

static void paint(unsigned char *a, unsigned char *b, size_t size) {
    for (size_t i = 0; i < size; i += 8) {
        uint64_t value = draw();
        memcpy(a + i, &value, 8);
        memcpy(b + i, &value, 8);
    }
}

static void make_arrays(struct side *side) {
    const CUDA_ARRAY3D_DESCRIPTOR flat = {WIDTH, HEIGHT, 0, CU_AD_FORMAT_UNSIGNED_INT8, ELEMENT, 0};
    const CUDA_ARRAY3D_DESCRIPTOR deep = {WIDTH / 4, HEIGHT / 2, DEPTH, CU_AD_FORMAT_FLOAT, 1, 0};

    OK(copies_driver.cuArray3DCreate_v2(&side->flat, &flat));
    OK(copies_driver.cuArray3DCreate_v2(&side->deep, &deep));
}

static void make(void) {
    for (int i = 0; i < 2; i++) {
        OK(copies_driver.cuMemAlloc_v2(&direct.device[i], ROOM));
        OK(copies_driver.cuMemAlloc_v2(&remote.device[i], ROOM));
        const struct remote_range range = {
            .start = remote.device[i], .size = ROOM, .context = 7, .kind = REMOTE_RANGE_LINEAR};
        /* Of the second the client does not know, as of a module's variable. */
        CHECK(i || remote_range_add(&range));
        direct.pageable[i] = malloc(ROOM);
        remote.pageable[i] = malloc(ROOM);
        CHECK(direct.pageable[i] && remote.pageable[i]);
        OK(copies_driver.cuMemHostAlloc((void **)&direct.pinned[i], ROOM, 0));
        OK(CLIENT(cuMemHostAlloc)((void **)&remote.pinned[i], ROOM, 0));
        paint(direct.pageable[i], remote.pageable[i], ROOM);
        paint(direct.pinned[i], remote.pinned[i], ROOM);
    }
    make_arrays(&direct);
    make_arrays(&remote);
    OK(copies_driver.cuStreamCreate(&direct.stream, CU_STREAM_NON_BLOCKING));
    OK(copies_driver.cuStreamCreate(&remote.stream, CU_STREAM_NON_BLOCKING));
    OK(copies_driver.cuCtxGetCurrent(&direct.context));
    remote.context = (CUcontext)7;
    remote_number_learn(REMOTE_KIND_CUcontext, 7);
    remote_flat = remote.flat;
    remote_deep = remote.deep;
    remote.flat = (CUarray)loopback_number(REMOTE_KIND_CUarray, (uint64_t)remote.flat);
    remote.deep = (CUarray)loopback_number(REMOTE_KIND_CUarray, (uint64_t)remote.deep);
    remote.stream = (CUstream)loopback_number(REMOTE_KIND_CUstream, (uint64_t)remote.stream);
}

/* What a drawn copy touches: one of these on each side, and where. */
enum where { DEVICE, OTHER_DEVICE, PAGEABLE, PINNED, FLAT, DEEP, NOWHERE, PLACES };

static bool is_array(enum where where) {
    return where == FLAT || where == DEEP;
}

static bool is_host(enum where where) {
    return where == PAGEABLE || where == PINNED;
}

static enum where draw_where(void) {
    return below(40) ? (enum where)below(NOWHERE) : NOWHERE;
}

static void *host_of(const struct side *side, enum where where, unsigned which, size_t at) {
    return where == NOWHERE ? NULL : (where == PINNED ? side->pinned : side->pageable)[which] + at;
}

static CUdeviceptr device_of(const struct side *side, enum where where, size_t at) {
    return where == NOWHERE ? 0 : side->device[where == OTHER_DEVICE] + at;
}

/* In one process an address of the device that the client does not know is reserved nevertheless, by the driver. */
static CUdeviceptr unified_of(const struct side *side, enum where where, unsigned which,
                              size_t at) {
    return is_host(where) || where == NOWHERE ? (uintptr_t)host_of(side, where, which, at)
                                              : device_of(side, DEVICE, at);
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
        return REMOTE_CHUNK_BYTES - 2 + below(5);
    default:
        return below(5000);
    }
}

/* One row, by the function that fits the two places. */
#define ROW(side, call)                                                                            \
    static CUresult row_##side(enum where to, size_t to_at, unsigned to_which, enum where from,    \
                               size_t from_at, unsigned from_which, size_t bytes, unsigned form) { \
        CUstream stream = form % 3 ? side.stream : NULL;                                           \
        bool wait = form % 2;                                                                      \
        CUarray to_array = to == DEEP ? side.deep : side.flat;                                     \
        CUarray from_array = from == DEEP ? side.deep : side.flat;                                 \
        if (is_array(to)) {                                                                        \
            const void *at = host_of(&side, from, from_which, from_at);                            \
            return wait ? call(cuMemcpyHtoA_v2)(to_array, to_at, at, bytes)                        \
                        : call(cuMemcpyHtoAAsync_v2)(to_array, to_at, at, bytes, stream);          \
        }                                                                                          \
        if (is_array(from)) {                                                                      \
            void *at = host_of(&side, to, to_which, to_at);                                        \
            return wait ? call(cuMemcpyAtoH_v2)(at, from_array, from_at, bytes)                    \
                        : call(cuMemcpyAtoHAsync_v2)(at, from_array, from_at, bytes, stream);      \
        }                                                                                          \
        if (form & 8 || (is_host(to) == is_host(from))) {                                          \
            CUdeviceptr into = unified_of(&side, to, to_which, to_at);                             \
            CUdeviceptr out = unified_of(&side, from, from_which, from_at);                        \
            return wait ? call(cuMemcpy)(into, out, bytes)                                         \
                        : call(cuMemcpyAsync)(into, out, bytes, stream);                           \
        }                                                                                          \
        if (is_host(from)) {                                                                       \
            CUdeviceptr into = device_of(&side, to, to_at);                                        \
            const void *out = host_of(&side, from, from_which, from_at);                           \
            return wait       ? call(cuMemcpyHtoD_v2)(into, out, bytes)                            \
                   : form & 4 ? call(cuMemcpyHtoDAsync_v2_ptsz)(into, out, bytes, stream)          \
                              : call(cuMemcpyHtoDAsync_v2)(into, out, bytes, stream);              \
        }                                                                                          \
        void *into = host_of(&side, to, to_which, to_at);                                          \
        CUdeviceptr out = device_of(&side, from, from_at);                                         \
        return wait       ? call(cuMemcpyDtoH_v2)(into, out, bytes)                                \
               : form & 4 ? call(cuMemcpyDtoHAsync_v2_ptsz)(into, out, bytes, stream)              \
                          : call(cuMemcpyDtoHAsync_v2)(into, out, bytes, stream);                  \
    }
#define DIRECT(name) copies_driver.name
ROW(direct, DIRECT)
ROW(remote, CLIENT)

static CUresult row(CUresult *other) {
    enum where to = draw_where(), from = draw_where();
    unsigned to_which = (unsigned)below(2), from_which = (unsigned)below(2);
    unsigned form = (unsigned)below(16);
    size_t bytes = draw_bytes();

    if (is_array(to) || is_array(from)) {
        from = is_array(to) ? (is_host(from) ? from : PAGEABLE) : from;
        to = is_array(from) && !is_host(to) ? PAGEABLE : to;
        bytes = below(8) ? below(WIDTH * ELEMENT) : bytes;
    }
    /* Beyond the device's memory, sometimes; beyond the host's never, which would be no error but the end. */
    size_t to_at = below(ROOM - bytes + 1), from_at = below(ROOM - bytes + 1);
    if (below(24) == 0 && is_host(from) && !is_host(to)) {
        to_at = FAR;
    } else if (below(24) == 0 && is_host(to) && !is_host(from)) {
        from_at = FAR;
    }
    /* As an address of either side it would be the host's, and the end of the process. */
    form &= to_at == FAR || from_at == FAR ? 7u : 15u;
    to_at = is_array(to) ? below(64) * ELEMENT : to_at;
    from_at = is_array(from) ? below(64) * ELEMENT : from_at;
    *other = row_remote(to, to_at, to_which, from, from_at, from_which, bytes, form);
    return row_direct(to, to_at, to_which, from, from_at, from_which, bytes, form);
}

/* One half of a description, drawn once for both sides. */
struct half {
    enum where where;
    unsigned which, type;
    size_t x, y, z, pitch, height, at;
};

static struct half draw_half(size_t width, size_t height, size_t depth, bool deep) {
    struct half half = {.where = draw_where(), .which = (unsigned)below(2)};

    half.where = !deep && half.where == DEEP ? FLAT : half.where;
    half.x = below(3) ? 0 : below(8) * ELEMENT;
    half.y = below(3) ? 0 : below(5);
    half.z = deep && !below(3) ? below(3) : 0;
    if (half.where == NOWHERE) {
        /* With an offset it is an address like any other, and the driver's end. */
        half.x = half.y = half.z = 0;
    }
    half.pitch = below(4) ? width + below(64) : below(2) ? 0 : below(2) ? width : below(width + 1);
    half.height = deep && below(2) ? height + below(3) : 0;
    half.type = (unsigned)below(2);
    size_t pitch = half.pitch ? half.pitch : width,
           slice = pitch * (half.height ? half.height : height);
    size_t reach = (half.z + depth) * slice + (half.y + height) * pitch + half.x + width;
    half.at = reach < ROOM ? below(ROOM - reach) : FAR;
    half.type = half.at == FAR ? 0 : half.type;
    return half;
}

static void write_half(const struct side *side, const struct half *half, bool to,
                       CUDA_MEMCPY3D *what) {
    enum where where = half->where;
    CUmemorytype type = is_array(where)    ? CU_MEMORYTYPE_ARRAY
                        : half->type       ? CU_MEMORYTYPE_UNIFIED
                        : is_host(where)   ? CU_MEMORYTYPE_HOST
                        : where == NOWHERE ? CU_MEMORYTYPE_HOST
                                           : CU_MEMORYTYPE_DEVICE;
    void *host = type == CU_MEMORYTYPE_HOST ? host_of(side, where, half->which, half->at) : NULL;
    CUdeviceptr device = type == CU_MEMORYTYPE_UNIFIED
                             ? unified_of(side, where, half->which, half->at)
                         : type == CU_MEMORYTYPE_DEVICE ? device_of(side, where, half->at)
                                                        : 0;
    CUarray array = where == DEEP ? side->deep : where == FLAT ? side->flat : NULL;

    if (to) {
        what->dstMemoryType = type, what->dstHost = host, what->dstDevice = device;
        what->dstArray = array, what->dstXInBytes = half->x, what->dstY = half->y;
        what->dstZ = half->z, what->dstPitch = half->pitch, what->dstHeight = half->height;
    } else {
        what->srcMemoryType = type, what->srcHost = host, what->srcDevice = device;
        what->srcArray = array, what->srcXInBytes = half->x, what->srcY = half->y;
        what->srcZ = half->z, what->srcPitch = half->pitch, what->srcHeight = half->height;
    }
}

static CUDA_MEMCPY2D flat_of(const CUDA_MEMCPY3D *w) {
    return (CUDA_MEMCPY2D){w->srcXInBytes, w->srcY,          w->srcMemoryType, w->srcHost,
                           w->srcDevice,   w->srcArray,      w->srcPitch,      w->dstXInBytes,
                           w->dstY,        w->dstMemoryType, w->dstHost,       w->dstDevice,
                           w->dstArray,    w->dstPitch,      w->WidthInBytes,  w->Height};
}

#define SHAPE(side, call)                                                                          \
    static CUresult shape_##side(const CUDA_MEMCPY3D *what, bool deep, unsigned form) {            \
        CUDA_MEMCPY2D flat = flat_of(what);                                                        \
        CUstream stream = form & 2 ? side.stream : NULL;                                           \
        CUDA_MEMCPY3D_PEER peer;                                                                   \
        memcpy(&peer, what, sizeof peer);                                                          \
        peer.srcContext = peer.dstContext = form % 5 ? side.context : NULL;                        \
        if (!deep) {                                                                               \
            return form & 1   ? call(cuMemcpy2DAsync_v2)(&flat, stream)                            \
                   : form & 4 ? call(cuMemcpy2DUnaligned_v2)(&flat)                                \
                              : call(cuMemcpy2D_v2)(&flat);                                        \
        }                                                                                          \
        if (form & 8) {                                                                            \
            return form & 1 ? call(cuMemcpy3DPeerAsync)(&peer, stream)                             \
                            : call(cuMemcpy3DPeer)(&peer);                                         \
        }                                                                                          \
        return form & 1 ? call(cuMemcpy3DAsync_v2)(what, stream) : call(cuMemcpy3D_v2)(what);      \
    }
SHAPE(direct, DIRECT)
SHAPE(remote, CLIENT)

static CUresult shape(CUresult *other) {
    bool deep = below(2);
    size_t width = below(10) ? 1 + below(deep ? 400 : 4000) : below(ROOM / 2);
    size_t height = width > 5000 ? 1 + below(2) : 1 + below(deep ? 40 : 400);
    size_t depth = deep ? 1 + below(4) : 1;
    CUDA_MEMCPY3D what = {.WidthInBytes = below(30) ? width : 0,
                          .Height = below(30) ? height : 0,
                          .Depth = below(30) ? depth : 0};
    CUDA_MEMCPY3D there;
    struct half to = draw_half(width, height, depth, deep);
    struct half from = draw_half(width, height, depth, deep);
    unsigned form = (unsigned)below(16);

    while (is_host(to.where) && to.at == FAR) {
        to = draw_half(width, height, depth, deep);
    }
    while (is_host(from.where) && from.at == FAR) {
        from = draw_half(width, height, depth, deep);
    }
    there = what;
    write_half(&direct, &to, true, &what);
    write_half(&direct, &from, false, &what);
    write_half(&remote, &to, true, &there);
    write_half(&remote, &from, false, &there);
    *other = shape_remote(&there, deep, form);
    return shape_direct(&what, deep, form);
}

static void equal(const void *a, const void *b, size_t size, const char *what, uint64_t step) {
    const unsigned char *one = a, *other = b;

    if (memcmp(one, other, size) != 0) {
        size_t i = 0;
        while (one[i] == other[i]) {
            i++;
        }
        fprintf(stderr, "step %llu: %s differs from byte %zu on\n", (unsigned long long)step, what,
                i);
        exit(1);
    }
}

static void compare_array(CUarray one, CUarray other, size_t row, size_t height, size_t depth,
                          uint64_t step) {
    static unsigned char a[WIDTH * ELEMENT * HEIGHT], b[WIDTH * ELEMENT * HEIGHT];
    CUDA_MEMCPY3D what = {.srcMemoryType = CU_MEMORYTYPE_ARRAY,
                          .srcArray = one,
                          .dstMemoryType = CU_MEMORYTYPE_HOST,
                          .dstHost = a,
                          .dstPitch = row,
                          .dstHeight = height,
                          .WidthInBytes = row,
                          .Height = height,
                          .Depth = depth};

    OK(copies_driver.cuMemcpy3D_v2(&what));
    what.srcArray = other;
    what.dstHost = b;
    OK(copies_driver.cuMemcpy3D_v2(&what));
    equal(a, b, row * height * depth, "an array", step);
}

static void compare(uint64_t step) {
    static unsigned char a[ROOM], b[ROOM];

    OK(copies_driver.cuCtxSynchronize());
    for (int i = 0; i < 2; i++) {
        OK(copies_driver.cuMemcpyDtoH_v2(a, direct.device[i], ROOM));
        OK(copies_driver.cuMemcpyDtoH_v2(b, remote.device[i], ROOM));
        equal(a, b, ROOM, "a device's memory", step);
        equal(direct.pageable[i], remote.pageable[i], ROOM, "pageable memory", step);
        equal(direct.pinned[i], remote.pinned[i], ROOM, "pinned memory", step);
    }
    compare_array(direct.flat, remote_flat, WIDTH * ELEMENT, HEIGHT, 1, step);
    compare_array(direct.deep, remote_deep, WIDTH / 4 * 4, HEIGHT / 2, DEPTH, step);
}

/* In a process of its own, because there is one area in each. */
static void run(bool shared, uint64_t steps) {
    unsigned long succeeded = 0;

    copies_shared = shared;
    copies_area_bytes = 4u << 20;
    copies_start();
    make();
    for (uint64_t i = 0; i < steps; i++) {
        CUresult other = CUDA_SUCCESS;

        state = i * UINT64_C(0x1000193);
        loopback_late = 0;
        loopback_strict = below(4) == 0;
        CUresult result = below(2) ? row(&other) : shape(&other);
        other = other == CUDA_SUCCESS ? (CUresult)loopback_late : other;
        if (result != other) {
            fprintf(stderr, "step %llu: direct %d, remote %d\n", (unsigned long long)i, result,
                    other);
            exit(1);
        }
        succeeded += result == CUDA_SUCCESS;
        compare(i);
    }
    printf("%s memory: %llu copies, %lu with success\n", shared ? "shared" : "no shared",
           (unsigned long long)steps, succeeded);
    CHECK(succeeded * 2 > steps);
}

int main(void) {
    const char *given = getenv("STEPS");
    uint64_t steps = given ? strtoull(given, NULL, 10) : 700;
    int status;
    pid_t child = fork();

    CHECK(child >= 0);
    if (child == 0) {
        run(false, steps);
        return 0;
    }
    CHECK_EQUAL(waitpid(child, &status, 0), child);
    CHECK_EQUAL(status, 0);
    run(true, steps);
    return 0;
}
