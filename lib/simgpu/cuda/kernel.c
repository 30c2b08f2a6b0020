/* The kernels that are carried out, known by their names:
 *   divvy_busy_ns(u64 ns)                                 takes that much GPU time
 *   divvy_await(u32 *p, u32 value)                        runs until *p is the value
 *   divvy_vecadd(float *a, float *b, float *c, u32 n)     c = a + b
 *   divvy_fill(u32 *p, u32 value, u64 n)                  n words of value
 *   divvy_fault()                                         reads an unmapped address
 * and the same with an underscore and a number behind the name. Any other kernel only costs what the
 * machine's description says. */
#include "simgpu/cuda/driver.h"

#include <string.h>

static const struct {
    const char *name;
    enum known_kernel known;
    size_t count;
    size_t sizes[4];
} kernels[] = {
    {"divvy_busy_ns", KERNEL_BUSY, 1, {8}},
    {"divvy_await", KERNEL_AWAIT, 2, {8, 4}},
    {"divvy_vecadd", KERNEL_VECADD, 4, {8, 8, 8, 4}},
    {"divvy_fill", KERNEL_FILL, 3, {8, 4, 8}},
    {"divvy_fault", KERNEL_FAULT, 0, {0}},
};
#define KERNELS (sizeof kernels / sizeof *kernels)

static bool is_numbered(const char *rest) {
    return rest[0] == '_' && rest[1] && strspn(rest + 1, "0123456789") == strlen(rest + 1);
}

enum known_kernel kernel_known(const char *name) {
    for (size_t i = 0; i < KERNELS; i++) {
        size_t length = strlen(kernels[i].name);
        if (strncmp(kernels[i].name, name, length) == 0 &&
            (name[length] == '\0' || is_numbered(name + length))) {
            return kernels[i].known;
        }
    }
    return KERNEL_OTHER;
}

size_t kernel_param_count(enum known_kernel known, const size_t **sizes) {
    for (size_t i = 0; i < KERNELS; i++) {
        if (kernels[i].known == known) {
            *sizes = kernels[i].sizes;
            return kernels[i].count;
        }
    }
    *sizes = NULL;
    return 0;
}

/* Reads parameter i; in a packed buffer each is aligned to its size. */
static uint64_t param(const struct launch *launch, size_t i) {
    const size_t *sizes;
    size_t at = 0, count = kernel_param_count(launch->function->known, &sizes);
    uint64_t value = 0;

    if (i >= count) {
        return 0;
    }
    if (!launch->buffer) {
        if (launch->params) {
            memcpy(&value, launch->params[i], sizes[i]);
        }
        return value;
    }
    for (size_t k = 0; k <= i; k++) {
        at = (at + sizes[k] - 1) / sizes[k] * sizes[k];
        if (k < i) {
            at += sizes[k];
        }
    }
    if (at + sizes[i] <= launch->buffer_bytes) {
        memcpy(&value, (const char *)launch->buffer + at, sizes[i]);
    }
    return value;
}

/* An access to an unmapped address makes the context unusable, as on a GPU. */
static bool reaches(CUdeviceptr address, uint64_t bytes, struct device *device) {
    if (!sg_mapped(address, bytes)) {
        return false;
    }
    if (!pages_hold(address)) {
        sg_memory_lock();
        managed_touch(device, address, bytes);
        sg_memory_unlock();
    }
    return true;
}

static uint64_t fault(const struct launch *launch) {
    CUcontext ctx = launch->function->ctx;

    if (handle_is(ctx, HANDLE_CONTEXT)) {
        __atomic_store_n(&ctx->fault, CUDA_ERROR_ILLEGAL_ADDRESS, __ATOMIC_RELAXED);
        mps_fault(ctx->device->gpu, CUDA_ERROR_ILLEGAL_ADDRESS);
    }
    return 0;
}

#define PIECE 4096u /* floats at a time */

static uint64_t vecadd(const struct launch *launch, struct device *device) {
    CUdeviceptr a = param(launch, 0), b = param(launch, 1), c = param(launch, 2);
    uint64_t n = param(launch, 3);
    float x[PIECE], y[PIECE];

    if (!reaches(a, n * 4, device) || !reaches(b, n * 4, device) || !reaches(c, n * 4, device)) {
        return fault(launch);
    }
    for (uint64_t done = 0; done < n;) {
        uint64_t piece = n - done < PIECE ? n - done : PIECE;
        sg_copy_out(x, a + done * 4, piece * 4);
        sg_copy_out(y, b + done * 4, piece * 4);
        for (uint64_t i = 0; i < piece; i++) {
            x[i] += y[i];
        }
        sg_copy_in(c + done * 4, x, piece * 4);
        done += piece;
    }
    return sg_driver.machine->kernel_ns;
}

static uint64_t fill(const struct launch *launch, struct device *device) {
    CUdeviceptr to = param(launch, 0);
    uint32_t value = (uint32_t)param(launch, 1);
    uint64_t n = param(launch, 2);

    if (to % 4 || n > UINT64_MAX / 4 || !reaches(to, n * 4, device)) {
        return fault(launch);
    }
    sg_fill(to, &value, 4, n);
    return sg_driver.machine->kernel_ns;
}

bool kernel_awaits(const struct launch *launch) {
    uint32_t word = 0;

    if (launch->function->known != KERNEL_AWAIT) {
        return false;
    }
    CUdeviceptr from = param(launch, 0);
    if (!sg_mapped(from, sizeof word)) {
        return false;
    }
    sg_copy_out(&word, from, sizeof word);
    return word != (uint32_t)param(launch, 1);
}

static uint64_t await(const struct launch *launch, struct device *device) {
    return reaches(param(launch, 0), 4, device) ? sg_driver.machine->kernel_ns : fault(launch);
}

uint64_t kernel_run(const struct launch *launch, struct device *device) {
    switch (launch->function->known) {
    case KERNEL_BUSY:
        return param(launch, 0);
    case KERNEL_VECADD:
        return vecadd(launch, device);
    case KERNEL_FILL:
        return fill(launch, device);
    case KERNEL_AWAIT:
        return await(launch, device);
    case KERNEL_FAULT:
        return fault(launch);
    case KERNEL_OTHER:
        break;
    }
    return sg_driver.machine->kernel_ns;
}
