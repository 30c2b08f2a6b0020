/* The kernels that are carried out, known by their names:
 *   divvy_busy_ns(u64 ns)                                 takes that much GPU time
 *   divvy_await(u32 *p, u32 value)                        runs until *p is the value
 *   divvy_vecadd(float *a, float *b, float *c, u32 n)     c = a + b
 *   divvy_fill(u32 *p, u32 value, u64 n)                  n words of value
 *   divvy_fault()                                         reads an unmapped address
 *   divvy_sweep(void *p, u64 bytes, u32 reads, u32 writes, u32 order, u32 seed, u64 ns)
 *                                                         goes over memory so often, and takes that much GPU time
 *   divvy_scatter(the same)                               reads and writes at so many random places of it
 * and the same with an underscore and a number behind the name. Any other kernel only costs what the
 * machine's description says. */
#include "simgpu/cuda/driver.h"

#include <string.h>

static const struct {
    const char *name;
    enum known_kernel known;
    size_t count;
    size_t sizes[7];
} kernels[] = {
    {"divvy_busy_ns", KERNEL_BUSY, 1, {8}},
    {"divvy_await", KERNEL_AWAIT, 2, {8, 4}},
    {"divvy_vecadd", KERNEL_VECADD, 4, {8, 8, 8, 4}},
    {"divvy_fill", KERNEL_FILL, 3, {8, 4, 8}},
    {"divvy_fault", KERNEL_FAULT, 0, {0}},
    {"divvy_sweep", KERNEL_SWEEP, 7, {8, 8, 4, 4, 4, 4, 8}},
    {"divvy_scatter", KERNEL_SCATTER, 7, {8, 8, 4, 4, 4, 4, 8}},
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

/* In a packed buffer each is aligned to its size. */
uint64_t kernel_param(const struct launch *launch, size_t i) {
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

bool launch_param(const struct launch *launch, size_t i, uint64_t offset, void *value,
                  size_t bytes) {
    if (launch->buffer) {
        bool there = bytes <= launch->buffer_bytes && offset <= launch->buffer_bytes - bytes;
        if (there) {
            memcpy(value, (const char *)launch->buffer + offset, bytes);
        }
        return there;
    }
    if (launch->params) {
        memcpy(value, launch->params[i], bytes);
    }
    return launch->params != NULL;
}

/* An access to an unmapped address makes the context unusable, as on a GPU. */
static uint64_t fault(const struct launch *launch) {
    CUcontext ctx = launch->function->ctx;

    if (handle_is(ctx, HANDLE_CONTEXT)) {
        __atomic_store_n(&ctx->fault, CUDA_ERROR_ILLEGAL_ADDRESS, __ATOMIC_RELAXED);
        mps_fault(ctx->device->gpu, CUDA_ERROR_ILLEGAL_ADDRESS);
    }
    return 0;
}

#define PIECE 4096u /* floats at a time */

static uint64_t vecadd(const struct launch *launch) {
    CUdeviceptr a = kernel_param(launch, 0), b = kernel_param(launch, 1),
                c = kernel_param(launch, 2);
    uint64_t n = kernel_param(launch, 3);
    float x[PIECE], y[PIECE];

    if (!sg_mapped(a, n * 4) || !sg_mapped(b, n * 4) || !sg_mapped(c, n * 4)) {
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

static uint64_t fill(const struct launch *launch) {
    CUdeviceptr to = kernel_param(launch, 0);
    uint32_t value = (uint32_t)kernel_param(launch, 1);
    uint64_t n = kernel_param(launch, 2);

    if (to % 4 || n > UINT64_MAX / 4 || !sg_mapped(to, n * 4)) {
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
    CUdeviceptr from = kernel_param(launch, 0);
    if (!sg_mapped(from, sizeof word)) {
        return false;
    }
    sg_copy_out(&word, from, sizeof word);
    return word != (uint32_t)kernel_param(launch, 1);
}

static uint64_t await(const struct launch *launch) {
    return sg_mapped(kernel_param(launch, 0), 4) ? sg_driver.machine->kernel_ns : fault(launch);
}

/* Contents stay as they are. */
static uint64_t gone_through(const struct launch *launch) {
    return sg_mapped(kernel_param(launch, 0), kernel_param(launch, 1)) ? kernel_param(launch, 6)
                                                                       : fault(launch);
}

uint64_t kernel_run(const struct launch *launch) {
    switch (launch->function->known) {
    case KERNEL_BUSY:
        return kernel_param(launch, 0);
    case KERNEL_VECADD:
        return vecadd(launch);
    case KERNEL_FILL:
        return fill(launch);
    case KERNEL_AWAIT:
        return await(launch);
    case KERNEL_FAULT:
        return fault(launch);
    case KERNEL_SWEEP:
    case KERNEL_SCATTER:
        return gone_through(launch);
    case KERNEL_OTHER:
        break;
    }
    return sg_driver.machine->kernel_ns;
}
