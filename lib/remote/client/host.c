/* Host memory that the device may use. What the client allocates is memory of both sides where they are on one host, at the
 * address that the worker has it at: then a copy copies nothing beside, and kernels may use the address that the program has.
 * Memory of the program's own cannot be shared afterwards, and is copied like any other. */
#define _GNU_SOURCE
#include "remote/client/host.h"

#include "libc/kernel.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#define PAGE 4096u
/* How often the worker is asked for another address before the program gets the memory at one of its own. */
#define TRIES 8
#define ALLOC_FLAGS                                                                                \
    (CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED)
#define REGISTER_FLAGS                                                                             \
    (CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP | CU_MEMHOSTREGISTER_IOMEMORY |    \
     CU_MEMHOSTREGISTER_READ_ONLY)

static CUresult ask(enum remote_region_call what, uint64_t number, uint64_t size,
                    CUdeviceptr *device) {
    struct remote_call call;
    struct remote_reply reply;

    remote_begin(&call, (enum remote_number)REMOTE_REGION, REMOTE_REGION_WORDS);
    call.words[0] = what;
    call.words[1] = number;
    call.words[2] = size;
    remote_given(&call, 0, device);
    remote_ask(&call, &reply);
    if (device) {
        remote_get(&call, &reply, 0, device, sizeof *device, false);
    }
    /* A late error would leave it open whether there is a region. */
    CUresult result = (CUresult)remote_end(&call, &reply);
    return result != CUDA_SUCCESS && !call.fault && !reply.garbled ? (CUresult)reply.head.result
                                                                   : result;
}

/* Memory that nobody can make smaller, all of whose pages are there. The worker takes no more than half of what the host has:
 * this process is not ended for want of memory over what would be refused. */
static int make(size_t size) {
    struct sysinfo info;

    if (sysinfo(&info) != 0 || size / info.mem_unit > info.totalram / 2) {
        return -1;
    }
    int file = kernel_memfd_create("divvy-pinned", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    if (file >= 0 &&
        (ftruncate(file, (off_t)size) != 0 || fallocate(file, 0, 0, (off_t)size) != 0 ||
         fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)) {
        close(file);
        return -1;
    }
    return file;
}

static void *map_at(CUdeviceptr wish, size_t size, int file) {
    int fixed = wish ? MAP_FIXED_NOREPLACE : 0;
    void *want = (void *)(uintptr_t)wish;
    void *at = mmap(want, size, PROT_READ | PROT_WRITE, MAP_SHARED | fixed, file, 0);

    /* Kernels before 4.17 do not know the flag, and take the address as a wish. */
    if (at != MAP_FAILED && wish && at != want) {
        munmap(at, size);
        return MAP_FAILED;
    }
    return at;
}

/* An address at which this process has room for so many bytes now, 0 for none. It is drawn from the middle of the address
 * space: kernels place libraries, stacks and what has no wish at the top and programs elsewhere, in both processes, and drivers
 * reserve terabytes below the top. */
static uint64_t free_address(size_t size) {
    static uint64_t drawn;
    uintptr_t top = (uintptr_t)&size, low = top / 8, span = top / 4;

    for (int i = 0; i < TRIES && size < span; i++) {
        uint64_t draw = __atomic_add_fetch(&drawn, UINT64_C(0x9e3779b97f4a7c15), __ATOMIC_RELAXED) ^
                        (uint64_t)getpid() << 32;
        void *want = (void *)((low + draw % (span - size)) & ~(uintptr_t)0xffff); /* whole pages */
        void *at = mmap(want, size, PROT_NONE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);

        if (at != MAP_FAILED) {
            munmap(at, size);
        }
        if (at == want) {
            return (uintptr_t)want;
        }
    }
    return 0;
}

/* Maps it where the worker has it, if that can be. What is near an address that is taken is taken too, mostly: so the worker
 * is told where there is room. */
static CUresult map(struct remote_host *host, int file) {
    void *at = map_at(host->device, host->size, file);

    for (int i = 0; at == MAP_FAILED && i < TRIES; i++) {
        CUresult result =
            ask(REMOTE_REGION_MOVE, host->region, free_address(host->size), &host->device);
        if (result != CUDA_SUCCESS) {
            return result;
        }
        at = map_at(host->device, host->size, file);
    }
    if (at == MAP_FAILED) {
        at = map_at(0, host->size, file);
    }
    host->at = at == MAP_FAILED ? NULL : at;
    return host->at ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult share(struct remote_host *host) {
    int file = make(host->size);

    if (file < 0) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    host->region = remote_host_number_new();
    CUresult result =
        host->region
            ? (remote_give_descriptor(host->region, file) ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED)
            : CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS) {
        result = ask(REMOTE_REGION_ADD, host->region, host->size, &host->device);
        if (result == CUDA_SUCCESS && (result = map(host, file)) != CUDA_SUCCESS) {
            ask(REMOTE_REGION_END, host->region, 0, NULL);
        }
    }
    close(file);
    if (result != CUDA_SUCCESS && host->region) {
        remote_host_number_end(host->region);
        host->region = 0;
    }
    return result;
}

/* Where both sides share no memory it is the program's alone. */
static CUresult keep(struct remote_host *host) {
    void *at = mmap(NULL, host->size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    host->at = at == MAP_FAILED ? NULL : at;
    return host->at ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static void drop(const struct remote_host *host) {
    struct remote_range range;

    remote_range_remove(host->device ? host->device : (uintptr_t)host->at, &range);
    remote_landings_drop(host->at, host->size);
    if (host->region) {
        ask(REMOTE_REGION_END, host->region, 0, NULL);
        remote_host_number_end(host->region);
    }
    if (!host->registered) {
        munmap(host->at, host->size);
    }
}

/* Host memory ends with the context in which it was made. */
static void context_ended(uint64_t context) {
    struct remote_host host;

    while (remote_host_take_of(context, &host)) {
        drop(&host);
    }
}

static CUresult note(struct remote_host *host) {
    remote_context_watch(context_ended);
    host->context = remote_current();
    CUresult result = remote_host_add(host);
    const struct remote_range range = {.start = host->device ? host->device : (uintptr_t)host->at,
                                       .size = host->size,
                                       .context = host->context,
                                       .host = host->at,
                                       .flags = host->flags};

    if (result == CUDA_SUCCESS && !remote_range_add(&range)) {
        remote_host_take(host->at, host->registered, host);
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    return result;
}

static bool shares(void) {
    struct remote_link *link = remote_session_link();
    size_t size;

    return link && remote_link_area(link, &size);
}

static CUresult allocate(enum remote_number call, void **to, size_t bytes, unsigned flags) {
    struct remote_host host = {.size = (bytes + PAGE - 1) / PAGE * PAGE, .flags = flags};
    int32_t gate = remote_gate(call);
    CUresult result = gate ? (CUresult)gate : remote_current_result();

    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (!to || !bytes || flags & ~(unsigned)ALLOC_FLAGS || host.size < bytes) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (host.size > SIZE_MAX / 2) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (!shares() && flags & CU_MEMHOSTALLOC_DEVICEMAP) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    int saved = errno;
    result = shares() ? share(&host) : keep(&host);
    if (result == CUDA_SUCCESS && (result = note(&host)) != CUDA_SUCCESS) {
        drop(&host);
    }
    errno = saved;
    if (result == CUDA_SUCCESS) {
        *to = host.at;
    }
    return result;
}

CUresult REMOTE_STUB(cuMemHostAlloc)(void **to, size_t bytes, unsigned int flags) {
    return allocate(REMOTE_cuMemHostAlloc, to, bytes, flags);
}

CUresult REMOTE_STUB(cuMemAllocHost_v2)(void **to, size_t bytes) {
    return allocate(REMOTE_cuMemAllocHost_v2, to, bytes, 0);
}

static CUresult end(enum remote_number call, void *at, bool registered, CUresult unknown) {
    int32_t gate = remote_gate(call);
    CUresult result = gate ? (CUresult)gate : remote_current_result();
    struct remote_host host;

    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (!at) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!remote_host_take(at, registered, &host)) {
        return unknown;
    }
    /* What is the program's own stays, and may still be looked at. */
    if (registered) {
        remote_landings_wait_for(host.at, host.size);
    }
    drop(&host);
    return CUDA_SUCCESS;
}

CUresult REMOTE_STUB(cuMemFreeHost)(void *at) {
    return end(REMOTE_cuMemFreeHost, at, false, CUDA_ERROR_INVALID_VALUE);
}

CUresult REMOTE_STUB(cuMemHostUnregister)(void *at) {
    return end(REMOTE_cuMemHostUnregister, at, true, CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
}

CUresult REMOTE_STUB(cuMemHostRegister_v2)(void *at, size_t bytes, unsigned int flags) {
    int32_t gate = remote_gate(REMOTE_cuMemHostRegister_v2);
    CUresult result = gate ? (CUresult)gate : remote_current_result();
    struct remote_host host = {.at = at, .size = bytes, .flags = flags, .registered = true};
    struct remote_range range;

    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (!at || !bytes || flags & ~(unsigned)REGISTER_FLAGS || bytes > UINTPTR_MAX - (uintptr_t)at ||
        (remote_range_find((uintptr_t)at, &range) && !range.host)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return flags & (CU_MEMHOSTREGISTER_DEVICEMAP | CU_MEMHOSTREGISTER_IOMEMORY)
               ? CUDA_ERROR_NOT_SUPPORTED
               : note(&host);
}

CUresult REMOTE_STUB(cuMemHostRegister)(void *at, size_t bytes, unsigned int flags) {
    return REMOTE_STUB(cuMemHostRegister_v2)(at, bytes, flags);
}

CUresult REMOTE_STUB(cuMemHostGetDevicePointer_v2)(CUdeviceptr *to, void *at, unsigned int flags) {
    int32_t gate = remote_gate(REMOTE_cuMemHostGetDevicePointer_v2);
    CUresult result = gate ? (CUresult)gate : remote_current_result();
    struct remote_host host;

    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (!to || flags || !remote_host_find(at, &host)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!host.region) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    *to = host.device + (uint64_t)((unsigned char *)at - host.at);
    return CUDA_SUCCESS;
}

CUresult REMOTE_STUB(cuMemHostGetFlags)(unsigned int *flags, void *at) {
    int32_t gate = remote_gate(REMOTE_cuMemHostGetFlags);
    CUresult result = gate ? (CUresult)gate : remote_current_result();
    struct remote_host host;

    if (!gate && !flags) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (!remote_host_find(at, &host) || host.registered) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *flags = host.flags | (host.region ? CU_MEMHOSTALLOC_DEVICEMAP : 0);
    return CUDA_SUCCESS;
}
