/* Device addresses, in pages of 2 MiB: one range for the process, and one below 4 GiB for the
 * interfaces of before CUDA 3.2, whose addresses have 32 bits.
 *
 * The ranges are taken from the host's address space without access rights, so that no host pointer
 * is ever a device pointer too and touching one from the CPU faults, as on a discrete GPU. */
#define _GNU_SOURCE
#include "simgpu/cuda/driver.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define PAGE SG_BLOCK_BYTES

/* Free addresses between others that are in use, sorted. */
struct gap {
    uint64_t first, count; /* pages */
};

static struct space {
    CUdeviceptr base;
    uint64_t count;  /* pages */
    uint64_t unused; /* from here on nothing was ever taken */
    struct page *pages;
    struct gap *gaps;
    size_t gap_count, gap_room;
} wide, narrow;

static bool start(struct space *s, void *wish, uint64_t size, int flags) {
    void *base =
        mmap(wish, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | flags, -1, 0);

    if (base == MAP_FAILED) {
        return false;
    }
    s->count = size / PAGE - 1;
    s->pages = mmap(NULL, s->count * sizeof(struct page), PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (s->pages == MAP_FAILED) {
        s->pages = NULL;
        munmap(base, size);
        return false;
    }
    s->base = ((uintptr_t)base + PAGE - 1) / PAGE * PAGE;
    madvise(base, size, MADV_DONTDUMP);
    return true;
}

bool pages_start(void) {
    for (uint64_t size = UINT64_C(8) << 40; !wide.pages && size >= UINT64_C(32) << 30; size /= 2) {
        start(&wide, NULL, size, 0);
    }
    return wide.pages != NULL;
}

static bool insert_gap(struct space *s, size_t at, uint64_t first, uint64_t count) {
    if (count == 0) {
        return true;
    }
    if (s->gap_count == s->gap_room) {
        size_t room = s->gap_room ? s->gap_room * 2 : 64;
        struct gap *gaps = realloc(s->gaps, room * sizeof *gaps);
        if (!gaps) {
            return false;
        }
        s->gaps = gaps;
        s->gap_room = room;
    }
    memmove(&s->gaps[at + 1], &s->gaps[at], (s->gap_count - at) * sizeof *s->gaps);
    s->gaps[at] = (struct gap){first, count};
    s->gap_count++;
    return true;
}

static void delete_gap(struct space *s, size_t at) {
    s->gap_count--;
    memmove(&s->gaps[at], &s->gaps[at + 1], (s->gap_count - at) * sizeof *s->gaps);
}

/* Cuts [first, first + count) out of gap i. */
static void cut(struct space *s, size_t i, uint64_t first, uint64_t count) {
    struct gap gap = s->gaps[i];

    delete_gap(s, i);
    insert_gap(s, i, first + count, gap.first + gap.count - first - count);
    insert_gap(s, i, gap.first, first - gap.first);
}

static uint64_t aligned(const struct space *s, uint64_t page, uint64_t align) {
    uint64_t address = s->base + page * PAGE;

    return ((address + align - 1) / align * align - s->base) / PAGE;
}

static CUdeviceptr take(struct space *s, uint64_t size, uint64_t align) {
    uint64_t count = size / PAGE;

    if (align < PAGE) {
        align = PAGE;
    }
    for (size_t i = 0; i < s->gap_count; i++) {
        uint64_t first = aligned(s, s->gaps[i].first, align);
        if (first + count > s->gaps[i].first + s->gaps[i].count) {
            continue;
        }
        cut(s, i, first, count);
        return s->base + first * PAGE;
    }
    uint64_t first = aligned(s, s->unused, align);
    if (count > s->count || first > s->count - count) {
        return 0;
    }
    insert_gap(s, s->gap_count, s->unused, first - s->unused);
    s->unused = first + count;
    return s->base + first * PAGE;
}

CUdeviceptr pages_take(uint64_t size, uint64_t align) {
    return take(&wide, size, align);
}

/* Programs are loaded high and leave these 1.5 GiB free; taken at the first request. */
CUdeviceptr pages_take_narrow(uint64_t size) {
    if (!narrow.pages &&
        !start(&narrow, (void *)0x10000000ul, UINT64_C(0x60000000), MAP_FIXED_NOREPLACE)) {
        return 0;
    }
    return take(&narrow, size, PAGE);
}

static struct space *space_of(CUdeviceptr address) {
    if (wide.pages && address >= wide.base && address - wide.base < wide.count * PAGE) {
        return &wide;
    }
    if (narrow.pages && address >= narrow.base && address - narrow.base < narrow.count * PAGE) {
        return &narrow;
    }
    return NULL;
}

bool pages_take_at(CUdeviceptr at, uint64_t size) {
    struct space *s = space_of(at);
    uint64_t first, count = size / PAGE;

    if (at % PAGE || s != &wide || space_of(at + size - 1) != s) {
        return false;
    }
    first = (at - s->base) / PAGE;
    if (first >= s->unused) {
        insert_gap(s, s->gap_count, s->unused, first - s->unused);
        s->unused = first + count;
        return true;
    }
    for (size_t i = 0; i < s->gap_count; i++) {
        if (first >= s->gaps[i].first && first + count <= s->gaps[i].first + s->gaps[i].count) {
            cut(s, i, first, count);
            return true;
        }
    }
    return false;
}

void pages_return(CUdeviceptr base, uint64_t size) {
    struct space *s = space_of(base);
    uint64_t first = (base - s->base) / PAGE, count = size / PAGE;
    size_t low = 0, high = s->gap_count;

    while (low < high) {
        size_t middle = (low + high) / 2;
        if (s->gaps[middle].first < first) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    if (low < s->gap_count && s->gaps[low].first == first + count) {
        count += s->gaps[low].count;
        delete_gap(s, low);
    }
    if (low > 0 && s->gaps[low - 1].first + s->gaps[low - 1].count == first) {
        first = s->gaps[low - 1].first;
        count += s->gaps[low - 1].count;
        delete_gap(s, --low);
    }
    if (first + count == s->unused) {
        s->unused = first;
    } else {
        insert_gap(s, low, first, count);
    }
}

bool pages_hold(CUdeviceptr address) {
    return space_of(address) != NULL;
}

struct page *page_of(CUdeviceptr address) {
    const struct space *s = space_of(address);

    return s ? &s->pages[(address - s->base) / PAGE] : NULL;
}

static void visit_page(struct page *page, CUdeviceptr address, blocks_visit *visit) {
    struct range *range = page->range;

    if (page->block) {
        uint32_t number = page->block - 1;
        visit(page->gpu, 1, &number);
        __atomic_store_n(&page->block, number + 1, __ATOMIC_RELEASE);
    }
    if (range && range->base == address && range->count && range->object < 0) {
        visit(range->device->gpu, range->count, range->blocks);
    }
}

static void visit_space(struct space *s, blocks_visit *visit) {
    for (uint64_t i = 0; s->pages && i < s->unused; i++) {
        visit_page(&s->pages[i], s->base + i * PAGE, visit);
    }
}

void pages_visit(blocks_visit *visit) {
    visit_space(&wide, visit);
    visit_space(&narrow, visit);
}

static void move_space(struct space *s, const uint32_t gpus[SG_GPUS_MAX]) {
    for (uint64_t i = 0; s->pages && i < s->unused; i++) {
        if (s->pages[i].range) {
            s->pages[i].gpu = (uint16_t)gpus[s->pages[i].gpu];
        }
    }
}

void pages_move(const uint32_t gpus[SG_GPUS_MAX]) {
    move_space(&wide, gpus);
    move_space(&narrow, gpus);
}
