/* The contents of managed memory: a file without a name, mapped for the program and once more for the driver. What the driver
 * does through its own mapping leaves no trace in the program's, so the pages that the kernel has mapped there since somebody
 * looked last are those that the program used. */
#define _GNU_SOURCE
#include "simgpu/cuda/touch.h"

#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

#include "libc/kernel.h"

/* The kernel's ioctl of /proc/<pid>/pagemap that lists pages of a kind, since Linux 6.7; its documentation is
 * admin-guide/mm/pagemap.rst. */
struct scanned {
    uint64_t start, end, categories;
};
struct scan {
    uint64_t size, flags, start, end, walk_end, list, list_length, most;
    uint64_t inverted, all_of, any_of, returned;
};
#define SCAN _IOWR('f', 16, struct scan)
#define PRESENT (UINT64_C(1) << 3)

/* The same in the words of the file, one for each page. */
#define WORD_PRESENT (UINT64_C(1) << 63)
#define PAGE 4096u

/* Chunks begin where the kernel's tables of pages do: reading a page maps its neighbours too, but none of another table. */
static void *reserve(uint64_t size) {
    char *at = mmap(NULL, size + SG_BLOCK_BYTES, PROT_NONE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (at == MAP_FAILED) {
        return NULL;
    }
    uint64_t before = -(uintptr_t)at % SG_BLOCK_BYTES;
    if (before) {
        munmap(at, before);
    }
    munmap(at + before + size, SG_BLOCK_BYTES - before);
    return at + before;
}

/* A child of fork has none of it, as with the real driver. */
static bool map(uint64_t size, int file, void *at) {
    return mmap(at, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE, file,
                0) != MAP_FAILED &&
           madvise(at, size, MADV_DONTFORK) == 0;
}

bool managed_map(struct host_range *host) {
    void *at = reserve(host->size), *alias = reserve(host->size);
    int file = kernel_memfd_create("simgpu-managed", MFD_CLOEXEC);
    bool mapped = at && alias && file >= 0 && ftruncate(file, (off_t)host->size) == 0 &&
                  map(host->size, file, at) && map(host->size, file, alias);

    if (mapped) {
        madvise(alias, host->size, MADV_DONTDUMP);
    } else {
        if (at) {
            munmap(at, host->size);
        }
        if (alias) {
            munmap(alias, host->size);
        }
    }
    if (file >= 0) {
        close(file);
    }
    host->base = (uintptr_t)at;
    host->contents = alias;
    return mapped;
}

void managed_unmap(struct host_range *host) {
    munmap((void *)host->base, host->size);
    munmap(host->contents, host->size);
}

/* ---- what the program used ---- */

/* Notes the chunks of an area of pages, and has the kernel forget them. */
static void note(struct host_range *host, uint64_t from, uint64_t to,
                 void (*used)(uint32_t chunk)) {
    uint64_t first = (from - host->base) / SG_BLOCK_BYTES,
             last = (to - 1 - host->base) / SG_BLOCK_BYTES;

    for (uint64_t i = first; i <= last; i++) {
        uint64_t at = i * SG_BLOCK_BYTES, left = host->size - at;
        madvise((void *)(host->base + at), left < SG_BLOCK_BYTES ? left : SG_BLOCK_BYTES,
                MADV_DONTNEED);
        used(host->first + (uint32_t)i);
    }
}

static uint64_t chunk_after(const struct host_range *host, uint64_t address) {
    uint64_t end = host->base + host->size,
             next = (address - 1) / SG_BLOCK_BYTES * SG_BLOCK_BYTES + SG_BLOCK_BYTES;

    return next < end ? next : end;
}

/* False where the kernel has no such list. */
static bool scan(struct host_range *host, int file, uint64_t from, uint64_t to,
                 void (*used)(uint32_t chunk)) {
    while (from < to) {
        struct scanned found;
        struct scan what = {.size = sizeof what,
                            .start = from,
                            .end = to,
                            .list = (uintptr_t)&found,
                            .list_length = 1,
                            .all_of = PRESENT,
                            .returned = PRESENT};
        int count = ioctl(file, SCAN, &what);
        if (count < 0) {
            return false;
        }
        if (count == 0) {
            return true;
        }
        note(host, found.start, found.end, used);
        from = chunk_after(host, found.end);
    }
    return true;
}

static void read_words(struct host_range *host, int file, uint64_t from, uint64_t to,
                       void (*used)(uint32_t chunk)) {
    uint64_t words[SG_BLOCK_BYTES / PAGE];

    for (uint64_t at = from; at < to; at += SG_BLOCK_BYTES) {
        uint64_t end = to - at < SG_BLOCK_BYTES ? to : at + SG_BLOCK_BYTES;
        ssize_t got = pread(file, words, (end - at) / PAGE * sizeof *words,
                            (off_t)(at / PAGE * sizeof *words));
        for (ssize_t i = 0; i < got / (ssize_t)sizeof *words; i++) {
            if (words[i] & WORD_PRESENT) {
                note(host, at, at + 1, used);
                break;
            }
        }
    }
}

void managed_look(struct host_range *host, uint32_t first, uint32_t count,
                  void (*used)(uint32_t chunk)) {
    uint64_t from = host->base + first * SG_BLOCK_BYTES, to = from + count * SG_BLOCK_BYTES;
    int file = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);

    to = to < host->base + host->size ? to : host->base + host->size;
    if (file >= 0) {
        if (!scan(host, file, from, to, used)) {
            read_words(host, file, from, to, used);
        }
        close(file);
    }
}
