#define _GNU_SOURCE
#include "remote/client/reserve.h"

#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

bool remote_reserve(uint64_t start, uint64_t size) {
    void *want = (void *)(uintptr_t)start;
    void *at = mmap(want, size, PROT_NONE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);

    if (at == MAP_FAILED) {
        return false;
    }
    /* Kernels before 4.17 do not know the flag, and take the address as a wish. */
    if (at != want) {
        munmap(at, size);
        return false;
    }
    return true;
}

void remote_unreserve(uint64_t start, uint64_t size) {
    munmap((void *)(uintptr_t)start, size);
}

bool remote_is_free(uint64_t address) {
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    unsigned char resident;

    return mincore((void *)(uintptr_t)(address / page * page), page, &resident) != 0 &&
           errno == ENOMEM;
}
