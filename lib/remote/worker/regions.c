/* Memory that both sides see. The client makes it, sealed against resizing, so that no access of the worker can fail; the
 * worker maps it and has the driver know it, so that copies from and to it copy nothing beside. */
#define _GNU_SOURCE
#include "remote/worker/regions.h"

#include "libc/kernel.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sysinfo.h>
#include <sys/vfs.h>

#define TMPFS 0x01021994
#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW)
#define FLAGS (CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP)

/* By number. The executor alone has them. */
static struct region {
    unsigned char *at; /* NULL for none */
    uint64_t size;
} regions[REMOTE_MOST_REGIONS + 1];
static uint64_t all; /* bytes */

bool remote_pin(const struct remote_cuda_driver *cuda, void *at, uint64_t size) {
    CUmemorytype type = 0;

    if (cuda->cuPointerGetAttribute &&
        cuda->cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                    (CUdeviceptr)(uintptr_t)at) == CUDA_SUCCESS) {
        return true;
    }
    return cuda->cuMemHostRegister_v2 &&
           cuda->cuMemHostRegister_v2(at, size, FLAGS) == CUDA_SUCCESS;
}

static struct region *find(uint64_t number) {
    return number && number <= REMOTE_MOST_REGIONS && regions[number].at ? &regions[number] : NULL;
}

bool remote_region_at(struct remote_worker *worker, uint64_t number, uint64_t offset, void **at,
                      uint64_t *room) {
    const struct region *region = find(number);

    if (!region || offset > region->size) {
        return false;
    }
    remote_pin(remote_worker_cuda(worker), region->at, region->size);
    *at = region->at + offset;
    *room = region->size - offset;
    return true;
}

/* Ordinary memory of this size, all of it there, which nobody can make smaller. */
static bool is_sound(int file, uint64_t size) {
    struct stat status;
    struct statfs system;
    int seals = fcntl(file, F_GET_SEALS);

    return seals >= 0 && (seals & SEALS) == SEALS && kernel_fstat(file, &status) == 0 &&
           S_ISREG(status.st_mode) && status.st_size >= 0 && (uint64_t)status.st_size == size &&
           fstatfs(file, &system) == 0 && system.f_type == TMPFS;
}

/* Pages that clients have the worker hold are the host's: half of it stays for others. */
static bool fits(uint64_t size) {
    struct sysinfo info;

    return sysinfo(&info) == 0 && size <= (uint64_t)info.totalram / 2 * info.mem_unit &&
           all <= (uint64_t)info.totalram / 2 * info.mem_unit - size;
}

/* Has the driver know a mapping, which belongs to the region then, or ends. */
static CUresult adopt(const struct remote_cuda_driver *cuda, struct region *region, void *at,
                      CUdeviceptr *device) {
    if (at == MAP_FAILED) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    CUresult result = cuda->cuMemHostRegister_v2
                          ? cuda->cuMemHostRegister_v2(at, region->size, FLAGS)
                          : CUDA_ERROR_NOT_SUPPORTED;
    if (result == CUDA_SUCCESS) {
        result = cuda->cuMemHostGetDevicePointer_v2(device, at, 0);
        if (result == CUDA_SUCCESS) {
            region->at = at;
            return CUDA_SUCCESS;
        }
        cuda->cuMemHostUnregister(at);
    }
    munmap(at, region->size);
    return result;
}

/* The descriptor is not kept: there may be more regions than a process may have files. */
CUresult remote_region_add(const struct remote_cuda_driver *cuda, int file, uint64_t number,
                           uint64_t size, CUdeviceptr *device) {
    CUresult result = CUDA_ERROR_INVALID_VALUE;

    if (file >= 0 && number && number <= REMOTE_MOST_REGIONS && !regions[number].at && size &&
        is_sound(file, size)) {
        regions[number].size = size;
        result = fits(size)
                     ? adopt(cuda, &regions[number],
                             mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0), device)
                     : CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (result == CUDA_SUCCESS) {
        all += size;
    }
    if (file >= 0) {
        close(file);
    }
    return result;
}

/* A second mapping of the same memory, which is what the kernel makes from a length of 0, mremap(2): where the client would
 * have it, if that is free, or anywhere. */
static void *map_again(void *at, uint64_t size, uint64_t wish) {
    void *want = (void *)(uintptr_t)wish;
    void *room =
        wish ? mmap(want, size, PROT_NONE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0)
             : MAP_FAILED;

    if (room == want) {
        return mremap(at, 0, size, MREMAP_MAYMOVE | MREMAP_FIXED, want);
    }
    if (room != MAP_FAILED) { /* kernels before 4.17 take the address as a wish */
        munmap(room, size);
    }
    return mremap(at, 0, size, MREMAP_MAYMOVE);
}

CUresult remote_region_move(const struct remote_cuda_driver *cuda, uint64_t number, uint64_t wish,
                            CUdeviceptr *device) {
    struct region *region = find(number);

    if (!region) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    void *before = region->at;
    CUresult result = adopt(cuda, region, map_again(before, region->size, wish), device);
    if (result == CUDA_SUCCESS) {
        cuda->cuMemHostUnregister(before);
        munmap(before, region->size);
    }
    return result;
}

bool remote_region_take(uint64_t number, struct remote_region_left *left) {
    struct region *region = find(number);

    if (!region) {
        return false;
    }
    *left = (struct remote_region_left){region->at, region->size};
    all -= region->size;
    *region = (struct region){0};
    return true;
}
