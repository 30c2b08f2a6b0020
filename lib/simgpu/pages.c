/* Device addresses: one range for the process, in pages of 2 MiB.
 *
 * The range is taken from the host's address space without access rights, so that no host pointer
 * is ever a device pointer too and touching one from the CPU faults, as on a discrete GPU. */
#define _GNU_SOURCE
#include "simgpu/driver.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define PAGE SG_BLOCK_BYTES

/* Free addresses between others that are in use, sorted. */
struct gap {
    uint64_t first, count; /* pages */
};

static struct {
    CUdeviceptr base;
    uint64_t count;  /* pages */
    uint64_t unused; /* from here on nothing was ever taken */
    struct page *pages;
    struct gap *gaps;
    size_t gap_count, gap_room;
} space;

bool pages_start(void) {
    if (space.pages)
        return true;
    for (uint64_t size = UINT64_C(8) << 40; size >= UINT64_C(32) << 30; size /= 2) {
        void *base =
            mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (base == MAP_FAILED)
            continue;
        space.count = size / PAGE;
        space.pages = mmap(NULL, space.count * sizeof(struct page), PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (space.pages != MAP_FAILED) {
            space.base = ((uintptr_t)base + PAGE - 1) / PAGE * PAGE;
            space.count--;
            madvise(base, size, MADV_DONTDUMP);
            return true;
        }
        munmap(base, size);
    }
    space.pages = NULL;
    return false;
}

static bool insert_gap(size_t at, uint64_t first, uint64_t count) {
    if (count == 0)
        return true;
    if (space.gap_count == space.gap_room) {
        size_t room = space.gap_room ? space.gap_room * 2 : 64;
        struct gap *gaps = realloc(space.gaps, room * sizeof *gaps);
        if (!gaps)
            return false;
        space.gaps = gaps;
        space.gap_room = room;
    }
    memmove(&space.gaps[at + 1], &space.gaps[at], (space.gap_count - at) * sizeof *space.gaps);
    space.gaps[at] = (struct gap){first, count};
    space.gap_count++;
    return true;
}

static void delete_gap(size_t at) {
    space.gap_count--;
    memmove(&space.gaps[at], &space.gaps[at + 1], (space.gap_count - at) * sizeof *space.gaps);
}

/* Cuts [first, first + count) out of gap i. */
static void cut(size_t i, uint64_t first, uint64_t count) {
    struct gap gap = space.gaps[i];

    delete_gap(i);
    insert_gap(i, first + count, gap.first + gap.count - first - count);
    insert_gap(i, gap.first, first - gap.first);
}

static uint64_t aligned(uint64_t page, uint64_t align) {
    uint64_t address = space.base + page * PAGE;

    return ((address + align - 1) / align * align - space.base) / PAGE;
}

CUdeviceptr pages_take(uint64_t size, uint64_t align) {
    uint64_t count = size / PAGE;

    if (align < PAGE)
        align = PAGE;
    for (size_t i = 0; i < space.gap_count; i++) {
        uint64_t first = aligned(space.gaps[i].first, align);
        if (first + count > space.gaps[i].first + space.gaps[i].count)
            continue;
        cut(i, first, count);
        return space.base + first * PAGE;
    }
    uint64_t first = aligned(space.unused, align);
    if (count > space.count || first > space.count - count)
        return 0;
    insert_gap(space.gap_count, space.unused, first - space.unused);
    space.unused = first + count;
    return space.base + first * PAGE;
}

bool pages_take_at(CUdeviceptr at, uint64_t size) {
    uint64_t first, count = size / PAGE;

    if (at % PAGE || !pages_hold(at) || !pages_hold(at + size - 1))
        return false;
    first = (at - space.base) / PAGE;
    if (first >= space.unused) {
        insert_gap(space.gap_count, space.unused, first - space.unused);
        space.unused = first + count;
        return true;
    }
    for (size_t i = 0; i < space.gap_count; i++)
        if (first >= space.gaps[i].first &&
            first + count <= space.gaps[i].first + space.gaps[i].count) {
            cut(i, first, count);
            return true;
        }
    return false;
}

void pages_return(CUdeviceptr base, uint64_t size) {
    uint64_t first = (base - space.base) / PAGE, count = size / PAGE;
    size_t low = 0, high = space.gap_count;

    while (low < high) {
        size_t middle = (low + high) / 2;
        if (space.gaps[middle].first < first)
            low = middle + 1;
        else
            high = middle;
    }
    if (low < space.gap_count && space.gaps[low].first == first + count) {
        count += space.gaps[low].count;
        delete_gap(low);
    }
    if (low > 0 && space.gaps[low - 1].first + space.gaps[low - 1].count == first) {
        first = space.gaps[low - 1].first;
        count += space.gaps[low - 1].count;
        delete_gap(--low);
    }
    if (first + count == space.unused)
        space.unused = first;
    else
        insert_gap(low, first, count);
}

bool pages_hold(CUdeviceptr address) {
    return space.pages && address >= space.base && address - space.base < space.count * PAGE;
}

struct page *page_of(CUdeviceptr address) {
    return pages_hold(address) ? &space.pages[(address - space.base) / PAGE] : NULL;
}
