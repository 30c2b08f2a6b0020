/* The contents of device memory, through the pages that map it. */
#define _GNU_SOURCE
#include "simgpu/cuda/driver.h"

#include <string.h>
#include <sys/mman.h>

static struct {
    pthread_mutex_t mapping;
    char *contents[SG_GPUS_MAX]; /* D/memory-<i> as a whole; only what is touched costs anything */
} memory = {.mapping = PTHREAD_MUTEX_INITIALIZER};

static char *contents_of(uint32_t gpu) {
    char *at = __atomic_load_n(&memory.contents[gpu], __ATOMIC_ACQUIRE);

    if (at) {
        return at;
    }
    pthread_mutex_lock(&memory.mapping);
    if (!(at = memory.contents[gpu])) {
        struct sg_instance *in = &sg_driver.instance;
        sg_state_lock(in);
        int fd = sg_memory_fd(in, gpu);
        sg_state_unlock(in);
        if (fd >= 0) {
            at = mmap(NULL, in->state->gpus[gpu].total_bytes, PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_NORESERVE, fd, 0);
            if (at == MAP_FAILED) {
                at = NULL;
            } else {
                madvise(at, in->state->gpus[gpu].total_bytes, MADV_DONTDUMP);
            }
            __atomic_store_n(&memory.contents[gpu], at, __ATOMIC_RELEASE);
        }
    }
    pthread_mutex_unlock(&memory.mapping);
    return at;
}

static void note_written(uint32_t gpu, uint32_t block) {
    sg_block *b = &sg_blocks(&sg_driver.instance, gpu)[block];

    if (!(__atomic_load_n(b, __ATOMIC_RELAXED) & SG_BLOCK_DIRTY)) {
        __atomic_fetch_or(b, SG_BLOCK_DIRTY, __ATOMIC_RELAXED);
    }
}

void *sg_block_host(uint32_t gpu, uint32_t block, bool write) {
    char *contents = contents_of(gpu);

    if (!contents) {
        return NULL;
    }
    if (write) {
        note_written(gpu, block);
    }
    return contents + block * SG_BLOCK_BYTES;
}

/* Block number + 1 of a mapped page; 0 when the GPU would fault. Whoever maps a page writes the block last, so nothing else of
 * it is read before. */
static uint32_t mapped_block(const struct page *page) {
    uint32_t block = __atomic_load_n(&page->block, __ATOMIC_ACQUIRE);
    return block && page->readers ? block : 0;
}

static void *device_host(struct page *page, CUdeviceptr address, uint64_t wanted, bool write,
                         uint64_t *room) {
    uint64_t offset = address % SG_BLOCK_BYTES;
    uint32_t block = mapped_block(page);
    uint16_t gpu = page->gpu;
    char *host = block ? sg_block_host(gpu, block - 1, write) : NULL;

    if (!host) {
        return NULL;
    }
    *room = SG_BLOCK_BYTES - offset;
    while (*room < wanted) {
        address += SG_BLOCK_BYTES;
        page = page_of(address);
        if (!page || mapped_block(page) != block + 1 || page->gpu != gpu) {
            break;
        }
        if (write) {
            note_written(gpu, block);
        }
        block++;
        *room += SG_BLOCK_BYTES;
    }
    return host + offset;
}

void *sg_host(CUdeviceptr address, uint64_t wanted, bool write, uint64_t *room) {
    struct page *page = page_of(address);

    if (page) {
        return device_host(page, address, wanted, write, room);
    }
    sg_memory_lock();
    struct host_range *host = host_of(address);
    void *at = (void *)(uintptr_t)address;
    if (host) {
        *room = host->base + host->size - address;
        at = host->managed ? host->contents + (address - host->base) : at;
    }
    sg_memory_unlock();
    return host ? at : NULL;
}

/* The memory lock. Where the allocation that holds the address ends: nothing may go beyond it,
 * though a neighbour's memory may be mapped there. */
static CUdeviceptr allocation_end(CUdeviceptr address) {
    const struct range *range = range_of(address);
    CUdeviceptr base;
    uint64_t bytes;

    if (!range) {
        return 0;
    }
    if (!range->region) {
        return range->base + range->size;
    }
    if (!heap_find(range->region, address, &base, &bytes)) {
        return 0;
    }
    return base + (bytes + SG_GRANULE - 1) / SG_GRANULE * SG_GRANULE;
}

static bool device_mapped(CUdeviceptr address, uint64_t bytes) {
    for (CUdeviceptr at = address / SG_BLOCK_BYTES * SG_BLOCK_BYTES; at < address + bytes;
         at += SG_BLOCK_BYTES) {
        struct page *page = page_of(at);
        if (!page || !mapped_block(page)) {
            return false;
        }
    }
    sg_memory_lock();
    CUdeviceptr end = allocation_end(address);
    sg_memory_unlock();
    return address + bytes <= end;
}

bool sg_mapped(CUdeviceptr address, uint64_t bytes) {
    if (bytes == 0) {
        return true;
    }
    if (address + bytes < address) {
        return false;
    }
    if (pages_hold(address)) {
        return device_mapped(address, bytes);
    }
    sg_memory_lock();
    struct host_range *host = host_of(address);
    bool inside = host && address + bytes <= host->base + host->size;
    sg_memory_unlock();
    return inside;
}

void sg_copy_in(CUdeviceptr to, const void *from, uint64_t bytes) {
    const char *source = from;

    while (bytes) {
        uint64_t room;
        void *host = sg_host(to, bytes, true, &room);
        if (!host) {
            return;
        }
        if (room > bytes) {
            room = bytes;
        }
        memmove(host, source, room);
        to += room;
        source += room;
        bytes -= room;
    }
}

void sg_copy_out(void *to, CUdeviceptr from, uint64_t bytes) {
    char *target = to;

    while (bytes) {
        uint64_t room;
        const void *host = sg_host(from, bytes, false, &room);
        if (!host) {
            return;
        }
        if (room > bytes) {
            room = bytes;
        }
        memmove(target, host, room);
        from += room;
        target += room;
        bytes -= room;
    }
}

void sg_copy_within(CUdeviceptr to, CUdeviceptr from, uint64_t bytes) {
    while (bytes) {
        uint64_t source_room, room;
        const void *source = sg_host(from, bytes, false, &source_room);
        void *target = sg_host(to, bytes, true, &room);
        if (!source || !target) {
            return;
        }
        if (room > source_room) {
            room = source_room;
        }
        if (room > bytes) {
            room = bytes;
        }
        memmove(target, source, room);
        to += room;
        from += room;
        bytes -= room;
    }
}

static void fill_host(char *to, const void *pattern, uint32_t width, uint64_t count) {
    if (width == 1) {
        memset(to, *(const unsigned char *)pattern, count);
        return;
    }
    for (uint64_t i = 0; i < count; i++) {
        memcpy(to + i * width, pattern, width);
    }
}

/* How far from the address on memory is zero because nothing was ever written there; 0 when it may
 * not be. Filling such memory with zeroes would only make the host provide it. */
static uint64_t untouched(CUdeviceptr address) {
    const struct page *page = page_of(address);
    uint32_t block = page ? mapped_block(page) : 0;

    if (!block ||
        (__atomic_load_n(&sg_blocks(&sg_driver.instance, page->gpu)[block - 1], __ATOMIC_RELAXED) &
         SG_BLOCK_DIRTY)) {
        return 0;
    }
    return SG_BLOCK_BYTES - address % SG_BLOCK_BYTES;
}

static bool is_zero(const void *pattern, uint32_t width) {
    static const char zeroes[8];

    return memcmp(pattern, zeroes, width) == 0;
}

/* Elements are aligned to their width, so none lies across two pages. */
void sg_fill(CUdeviceptr to, const void *pattern, uint32_t width, uint64_t count) {
    bool zero = is_zero(pattern, width);

    while (count) {
        uint64_t room = zero ? untouched(to) : 0;
        char *host = room ? NULL : sg_host(to, count * width, true, &room);
        if (room == 0) {
            return;
        }
        uint64_t n = room / width < count ? room / width : count;
        if (host) {
            fill_host(host, pattern, width, n);
        }
        to += n * width;
        count -= n;
    }
}
