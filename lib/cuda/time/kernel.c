#include "cuda/time/kernel.h"

#include <string.h>

#include "cuda/fork.h"
#include "cuda/memory/code.h"
#include "cuda/memory/local.h"
#include "cuda/table.h"
#include "cuda/time/capture.h"
#include "cuda/time/cost.h"

/* Flags of an entry. */
#define CONTEXTLESS 1u /* the handle is a CUkernel */
#define GONE 2u        /* the code is being unloaded, or was */

static table kernels; /* by handle; the amount is a digest of the name, the owner its code */
static table codes;   /* by the handle of a module or library; the owner is a number of its own */
static uint32_t last_code;

/* The number of a module or library; 0 if there is no memory for one. */
static uint32_t code_of(const void *handle) {
    struct entry entry;
    uint64_t key = (uint64_t)(uintptr_t)handle;
    struct shard *shard = table_shard(&codes, key);
    bool had;
    lock_take(&shard->lock);
    struct entry *place = shard_make(shard, key, &had);
    if (place != NULL && !had) {
        place->owner = __atomic_add_fetch(&last_code, 1, __ATOMIC_RELAXED);
    }
    entry = place != NULL ? *place : (struct entry){0};
    lock_give(&shard->lock);
    return entry.owner;
}

static uint32_t digest_name(const char *name) {
    uint64_t digest = 0xcbf29ce484222325u;
    for (; *name != '\0'; name++) {
        digest = (digest ^ (unsigned char)*name) * 0x100000001b3u;
    }
    return (uint32_t)(digest ^ digest >> 32);
}

static void note(const void *handle, uint32_t amount, uint32_t code, uint16_t flags) {
    struct entry entry = {.amount = amount, .owner = code, .flags = flags};
    if (handle != NULL) {
        table_put(&kernels, (uint64_t)(uintptr_t)handle, entry, NULL, NULL);
        local_met(handle, flags & CONTEXTLESS);
    }
}

CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
    CUresult result = DV_CALL(cuModuleGetFunction, function, module, name);
    if (result == CUDA_SUCCESS && !DV_INNER()) {
        note(*function, digest_name(name), code_of(module), 0);
    }
    return result;
}

CUresult cuLibraryGetKernel(CUkernel *kernel, CUlibrary library, const char *name) {
    CUresult result = DV_CALL(cuLibraryGetKernel, kernel, library, name);
    if (result == CUDA_SUCCESS && !DV_INNER()) {
        note(*kernel, digest_name(name), code_of(library), CONTEXTLESS);
    }
    return result;
}

CUresult cuKernelGetFunction(CUfunction *function, CUkernel kernel) {
    struct entry entry;
    CUresult result = DV_CALL(cuKernelGetFunction, function, kernel);
    /* Both names may stand for one handle. */
    if (result == CUDA_SUCCESS && !DV_INNER() && (uintptr_t)*function != (uintptr_t)kernel &&
        table_get(&kernels, (uint64_t)(uintptr_t)kernel, &entry)) {
        note(*function, entry.amount, entry.owner, 0);
    }
    return result;
}

/* Without their names, which would cost a call for each. */
CUresult cuModuleEnumerateFunctions(CUfunction *functions, unsigned count, CUmodule module) {
    CUresult result = DV_CALL(cuModuleEnumerateFunctions, functions, count, module);
    for (unsigned i = 0; i < count && result == CUDA_SUCCESS && !DV_INNER(); i++) {
        local_met(functions[i], false);
    }
    return result;
}

CUresult cuLibraryEnumerateKernels(CUkernel *kernels_of, unsigned count, CUlibrary library) {
    CUresult result = DV_CALL(cuLibraryEnumerateKernels, kernels_of, count, library);
    for (unsigned i = 0; i < count && result == CUDA_SUCCESS && !DV_INNER(); i++) {
        local_met(kernels_of[i], true);
    }
    return result;
}

/* What the compiler made of the kernel. Kernels of one name can differ in it. */
static uint64_t digest(uint32_t name, CUfunction function) {
    static const CUfunction_attribute attributes[] = {
        CU_FUNC_ATTRIBUTE_NUM_REGS, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES,
        CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES};
    uint64_t sum = name;
    for (unsigned i = 0; i < sizeof attributes / sizeof attributes[0]; i++) {
        int value = 0;
        DV_CALL(cuFuncGetAttribute, &value, attributes[i], function);
        sum = cost_digest(sum, cost_shape((unsigned)value, i, 0));
    }
    return sum;
}

struct kernel kernel_load(const void *function) {
    struct kernel kernel = {0};
    struct entry entry;
    if (!table_get(&kernels, (uint64_t)(uintptr_t)function, &entry)) {
        return kernel;
    }
    union {
        const void *handle;
        CUfunction function;
        CUkernel kernel;
    } as = {.handle = function};
    CUfunction here = as.function;
    CUresult found = CUDA_SUCCESS;
    CUstreamCaptureMode mode = capture_relax();
    if (entry.flags & CONTEXTLESS) {
        found = DV_CALL(cuKernelGetFunction, &here, as.kernel);
    }
    if (found == CUDA_SUCCESS) {
        kernel.loaded = DV_CALL(cuFuncLoad, here) == CUDA_SUCCESS;
        kernel.digest = digest(entry.amount, here);
    }
    capture_restore(mode);
    return kernel;
}

bool kernel_is_contextless(const void *function) {
    struct entry entry;
    return table_get(&kernels, (uint64_t)(uintptr_t)function, &entry) &&
           (entry.flags & CONTEXTLESS);
}

bool kernel_gone(const void *function) {
    struct entry entry;
    return table_get(&kernels, (uint64_t)(uintptr_t)function, &entry) && (entry.flags & GONE);
}

static bool mark_gone(uint64_t key, struct entry *kernel, void *code) {
    (void)key;
    if (kernel->owner == *(const uint32_t *)code) {
        kernel->flags |= GONE;
    }
    return false;
}

static bool mark_here(uint64_t key, struct entry *kernel, void *code) {
    (void)key;
    if (kernel->owner == *(const uint32_t *)code) {
        kernel->flags &= (uint16_t)~GONE;
    }
    return false;
}

/* Before the driver unloads it, so that no launch that stops waiting meanwhile uses it. Functions
 * that a later module gets under the same handles are noted anew. */
static void kernels_ending(const void *handle) {
    struct entry code;
    if (table_get(&codes, (uint64_t)(uintptr_t)handle, &code)) {
        table_sweep(&kernels, mark_gone, &code.owner);
    }
}
ON(code_ending, kernels_ending);

static void kernels_spared(const void *handle) {
    struct entry code;
    if (table_get(&codes, (uint64_t)(uintptr_t)handle, &code)) {
        table_sweep(&kernels, mark_here, &code.owner);
    }
}
ON(code_spared, kernels_spared);

static void kernels_forked(void) {
    table_forget(&codes);
    table_forget(&kernels);
}
ON(forked, kernels_forked);
