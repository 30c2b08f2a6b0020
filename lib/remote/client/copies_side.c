/* On which side an address is. Host memory that both sides see is named by its region. Other memory of the program is its
 * own alone. What the client knows of neither is decided by whether the program has memory there: the worker's addresses are
 * reserved in the client as far as it learns of them, and not all are, such as those of a module's variables. */
#define _GNU_SOURCE
#include "remote/client/copies.h"

#include <errno.h>
#include <sys/mman.h>

#define PAGE UINT64_C(4096)

/* Pages of the kernel are no smaller, and one that is larger answers for each of its parts. */
bool remote_side_is_there(const unsigned char *at, uint64_t extent) {
    unsigned char states[256];
    uint64_t from = (uintptr_t)at / PAGE * PAGE, to;
    int saved = errno;
    bool there = extent > 0 && !__builtin_add_overflow((uintptr_t)at, extent, &to);

    while (there && from < to) {
        uint64_t size = to - from < sizeof states * PAGE ? to - from : sizeof states * PAGE;

        there = mincore((void *)(uintptr_t)from, size, states) == 0 || errno == EAGAIN;
        from += size;
    }
    errno = saved;
    return there;
}

static struct remote_side shared(const void *at, uint64_t extent) {
    struct remote_side side = {.place = REMOTE_PLACE_NONE};

    if (remote_region_find(at, extent, &side.value, &side.offset)) {
        side.place = REMOTE_PLACE_REGION;
        side.host = (unsigned char *)(uintptr_t)at;
    }
    return side;
}

/* The addresses of a device are no memory of the program's. The driver is not asked: it would take them for the worker's. */
struct remote_side remote_side_host(const void *at, uint64_t extent) {
    struct remote_side side = shared(at, extent);
    struct remote_range range;
    uint64_t end;

    if (side.place != REMOTE_PLACE_NONE || !at ||
        __builtin_add_overflow((uintptr_t)at, extent, &end) ||
        (remote_range_find((uintptr_t)at, &range) && !range.host)) {
        return side;
    }
    side.place = REMOTE_PLACE_AREA;
    side.host = (unsigned char *)(uintptr_t)at;
    return side;
}

struct remote_side remote_side_device(CUdeviceptr at, uint64_t extent) {
    struct remote_side side = {.place = REMOTE_PLACE_DEVICE, .value = at};
    struct remote_range range;

    /* Of addresses for cuMemMap it is not known what is mapped, and of a graph and a module not whether the memory is there. */
    side.known = remote_range_find(at, &range) &&
                 (range.kind == REMOTE_RANGE_LINEAR || range.kind == REMOTE_RANGE_POOL) &&
                 extent <= range.size - (at - range.start);
    return side;
}

struct remote_side remote_side_unified(CUdeviceptr at, uint64_t extent) {
    struct remote_side side = shared((const void *)(uintptr_t)at, extent);
    struct remote_range range;

    if (side.place != REMOTE_PLACE_NONE || !at) {
        return side;
    }
    if (remote_range_find(at, &range) ? !range.host
                                      : !remote_side_is_there((const unsigned char *)at, 1)) {
        return remote_side_device(at, extent);
    }
    return remote_side_host((const void *)(uintptr_t)at, extent);
}

struct remote_side remote_side_array(CUarray array, uint64_t offset) {
    return (struct remote_side){
        .place = REMOTE_PLACE_ARRAY, .value = (uint64_t)(uintptr_t)array, .offset = offset};
}
