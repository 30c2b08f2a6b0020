#include "cuda/test/driver.h"

#include "abi/generated/cuda_functions.h"
#include "cuda/test/heap.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

EXPORT struct fake_driver fake_driver;

struct CUctx_st {
    CUdevice device;
};

static _Thread_local CUcontext current __attribute__((tls_model("initial-exec")));
static int shown[FAKE_GPUS], shown_count;
static bool initialised;
static struct CUctx_st primaries[FAKE_GPUS];
static int primary_users[FAKE_GPUS];

static void uuid_text(int gpu, char text[48]) {
    char pair[3];
    snprintf(pair, sizeof pair, "%02x", gpu + 1);
    strcpy(text, "GPU-");
    for (int i = 0; i < 16; i++) {
        if (i == 4 || i == 6 || i == 8 || i == 10) {
            strcat(text, "-");
        }
        strcat(text, pair);
    }
}

static void read_mps(void) {
    static const char *const names[FAKE_MPS] = {
        "CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE",
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT",
        "CUDA_MPS_ENABLE_PER_CTX_DEVICE_MULTIPROCESSOR_PARTITIONING"};
    for (int i = 0; i < FAKE_MPS; i++) {
        const char *value = getenv(names[i]);
        snprintf(fake_driver.mps[i], sizeof fake_driver.mps[i], "%s", value ? value : "(none)");
    }
}

CUresult cuInit(unsigned flags) {
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    (void)flags;
    snprintf(fake_driver.visible, sizeof fake_driver.visible, "%s", visible ? visible : "(none)");
    fake_driver.inits++;
    if (fake_driver.during_init != NULL) {
        fake_driver.during_init();
    }
    read_mps();
    shown_count = 0;
    char list[2048];
    snprintf(list, sizeof list, "%s", visible ? visible : "");
    for (char *rest = list, *entry; (entry = strtok_r(rest, ",", &rest)) != NULL;) {
        for (int gpu = 0; gpu < FAKE_GPUS; gpu++) {
            char text[48];
            uuid_text(gpu, text);
            if (strcmp(entry, text) == 0) {
                shown[shown_count++] = gpu;
            }
        }
    }
    if (visible == NULL || fake_driver.ignore_visible) {
        for (shown_count = 0; shown_count < FAKE_GPUS; shown_count++) {
            shown[shown_count] = shown_count;
        }
    }
    initialised = shown_count > 0;
    return initialised ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE;
}

CUresult cuDeviceGetCount(int *count) {
    *count = shown_count;
    return initialised ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
}

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device) {
    (void)device;
    *value = attribute == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT ? FAKE_SMS : 0;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal) {
    if (!initialised || ordinal < 0 || ordinal >= shown_count) {
        return initialised ? CUDA_ERROR_INVALID_DEVICE : CUDA_ERROR_NOT_INITIALIZED;
    }
    *device = ordinal;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device) {
    memset(uuid, shown[device] + 1, sizeof *uuid);
    return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device) {
    (void)device;
    *bytes = FAKE_TOTAL;
    return CUDA_SUCCESS;
}

static void make_context(void) {
    if (fake_driver.during_context != NULL) {
        fake_driver.during_context();
    }
    read_mps();
    __atomic_fetch_add(&fake_driver.contexts, 1, __ATOMIC_RELAXED);
}

CUresult cuCtxCreate_v2(CUcontext *context, unsigned flags, CUdevice device) {
    (void)flags;
    make_context();
    *context = calloc(1, sizeof **context);
    (*context)->device = device;
    current = *context;
    return CUDA_SUCCESS;
}

CUresult cuCtxCreate(CUcontext *context, unsigned flags, CUdevice device) {
    return cuCtxCreate_v2(context, flags, device);
}

CUresult cuCtxCreate_v3(CUcontext *context, CUexecAffinityParam *affinity, int affinities,
                        unsigned flags, CUdevice device) {
    fake_driver.affinity = affinities > 0 && affinity != NULL ? affinity->param.smCount.val : 0;
    if (affinities > 0 && affinity == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return cuCtxCreate_v2(context, flags, device);
}

CUresult cuCtxCreate_v4(CUcontext *context, CUctxCreateParams *params, unsigned flags,
                        CUdevice device) {
    return cuCtxCreate_v3(context, params != NULL ? params->execAffinityParams : NULL,
                          params != NULL ? params->numExecAffinityParams : 0, flags, device);
}

CUresult cuCtxDestroy_v2(CUcontext context) {
    if (context == NULL) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    current = current == context ? NULL : current;
    free(context);
    __atomic_fetch_sub(&fake_driver.contexts, 1, __ATOMIC_RELAXED);
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
    make_context();
    primaries[device].device = device;
    primary_users[device]++;
    *context = &primaries[device];
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
    if (primary_users[device] == 0) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    primary_users[device]--;
    __atomic_fetch_sub(&fake_driver.contexts, 1, __ATOMIC_RELAXED);
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active) {
    *flags = 0;
    *active = primary_users[device] > 0;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext *context) {
    *context = current;
    return initialised ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
}

CUresult cuCtxSetCurrent(CUcontext context) {
    current = context;
    return CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent_v2(CUcontext context) {
    current = context;
    return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent_v2(CUcontext *context) {
    *context = current;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice *device) {
    *device = current ? current->device : 0;
    return current ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t bytes) {
    if (fake_driver.during_alloc != NULL) {
        fake_driver.during_alloc();
    }
    if (fake_driver.alloc_result != CUDA_SUCCESS) {
        return fake_driver.alloc_result;
    }
    if (current == NULL || address == NULL || bytes == 0) {
        return current ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_CONTEXT;
    }
    CUdeviceptr got = heap_take(bytes);
    *address = got;
    return got != 0 ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* Calls a public function, which the dynamic linker may take to whoever stands in front. */
CUresult cuMemAllocPitch_v2(CUdeviceptr *address, size_t *pitch, size_t width, size_t height,
                            unsigned element) {
    (void)element;
    if (fake_driver.during_pitch != NULL) {
        fake_driver.during_pitch();
    }
    *pitch = (width + 511) & ~(size_t)511;
    return cuMemAlloc_v2(address, *pitch * height);
}

CUresult cuMemFree_v2(CUdeviceptr address) {
    if (fake_driver.free_result != CUDA_SUCCESS) {
        return fake_driver.free_result;
    }
    if (address == 0) {
        return CUDA_SUCCESS;
    }
    return heap_give(address);
}

/* Work is done at once. */
CUresult cuLaunchKernel(CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                        unsigned by, unsigned bz, unsigned shared, CUstream stream,
                        void **parameters, void **extra) {
    (void)gx, (void)gy, (void)gz, (void)bx, (void)by, (void)bz, (void)shared;
    (void)stream, (void)parameters, (void)extra;
    return function != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuStreamGetCtx(CUstream stream, CUcontext *context) {
    (void)stream;
    *context = current;
    return CUDA_SUCCESS;
}

CUresult cuEventCreate(CUevent *event, unsigned flags) {
    (void)flags;
    *event = calloc(1, 8);
    return CUDA_SUCCESS;
}

CUresult cuEventDestroy_v2(CUevent event) {
    free(event);
    return CUDA_SUCCESS;
}

CUresult cuEventRecord(CUevent event, CUstream stream) {
    static uint64_t count;
    (void)stream;
    *(uint64_t *)(void *)event = ++count;
    return CUDA_SUCCESS;
}

CUresult cuEventQuery(CUevent event) {
    return event != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

/* From one record to the next passes a microsecond. */
CUresult cuEventElapsedTime(float *ms, CUevent from, CUevent to) {
    uint64_t begin = *(uint64_t *)(void *)from, end = *(uint64_t *)(void *)to;
    *ms = (float)(int64_t)(end - begin) / 1000;
    return CUDA_SUCCESS;
}

CUresult cuModuleLoadData(CUmodule *module, const void *image) {
    (void)image;
    *module = NULL;
    return CUDA_SUCCESS;
}

CUresult cuMemGetInfo_v2(size_t *available, size_t *total) {
    *total = FAKE_TOTAL;
    *available = FAKE_TOTAL - fake_driver.blocks * HEAP_BLOCK;
    return CUDA_SUCCESS;
}

/* Functions that are only looked up. Each answers differently, so that none is folded. */
#define LOOKED_UP(name, parameters, result)                                                        \
    CUresult name parameters {                                                                     \
        return (CUresult)(result);                                                                 \
    }
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"
LOOKED_UP(cuDevicePrimaryCtxSetFlags, (CUdevice d, unsigned f), 901)
LOOKED_UP(cuDevicePrimaryCtxSetFlags_v2, (CUdevice d, unsigned f), 902)
LOOKED_UP(cuMemFreeAsync, (CUdeviceptr a, CUstream s), 903)
LOOKED_UP(cuMemFreeAsync_ptsz, (CUdeviceptr a, CUstream s), 904)
LOOKED_UP(cuLaunchKernel_ptsz,
          (CUfunction f, unsigned a, unsigned b, unsigned c, unsigned d, unsigned e, unsigned g,
           unsigned h, CUstream s, void **p, void **x),
          905)
EXPORT CUresult cuMemAlloc_v9(CUdeviceptr *address, size_t bytes);
LOOKED_UP(cuMemAlloc_v9, (CUdeviceptr * a, size_t n), 906)
#pragma GCC diagnostic pop

/* One function under two names. */
CUresult cuStreamSynchronize(CUstream stream) {
    if (fake_driver.during_sync != NULL) {
        fake_driver.during_sync();
    }
    return stream == NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}
EXPORT CUresult cuStreamQuery(CUstream) __attribute__((alias("cuStreamSynchronize")));

/* A function that the driver exports under no name. */
static CUresult free_inside(CUdeviceptr address) {
    return address == 1 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

/* The driver's own function, also where the dynamic linker finds another of that name first. */
#define OWN(fn) extern __typeof__(fn) own_##fn __attribute__((alias(#fn), visibility("hidden")));
OWN(cuMemAlloc_v2)
OWN(cuMemAlloc_v9)
OWN(cuDevicePrimaryCtxSetFlags)
OWN(cuDevicePrimaryCtxSetFlags_v2)
OWN(cuMemFreeAsync)
OWN(cuMemFreeAsync_ptsz)
OWN(cuLaunchKernel_ptsz)
OWN(cuCtxCreate)
OWN(cuCtxCreate_v2)
OWN(cuCtxCreate_v3)
OWN(cuStreamSynchronize)
OWN(cuGetProcAddress)
OWN(cuGetProcAddress_v2)

struct answer {
    const char *base;
    int since, until;
    cuuint64_t flags;
    void *function;
};

static void *answer(const char *base, int version, cuuint64_t flags) {
    __extension__ const struct answer answers[] = {
        {"cuMemAlloc", 3020, 14000, 0, (void *)own_cuMemAlloc_v2},
        {"cuMemAlloc", 14000, 99000, 0, (void *)own_cuMemAlloc_v9},
        {"cuMemFree", 3020, 99000, 0, (void *)free_inside},
        {"cuDevicePrimaryCtxSetFlags", 7000, 11000, 0, (void *)own_cuDevicePrimaryCtxSetFlags},
        {"cuDevicePrimaryCtxSetFlags", 11000, 99000, 0, (void *)own_cuDevicePrimaryCtxSetFlags_v2},
        {"cuMemFreeAsync", 11020, 99000, 0, (void *)own_cuMemFreeAsync},
        {"cuMemFreeAsync", 11020, 99000, 2, (void *)own_cuMemFreeAsync_ptsz},
        {"cuLaunchKernel", 7000, 99000, 2, (void *)own_cuLaunchKernel_ptsz},
        {"cuCtxCreate", 2000, 3020, 0, (void *)own_cuCtxCreate},
        {"cuCtxCreate", 3020, 11040, 0, (void *)own_cuCtxCreate_v2},
        {"cuCtxCreate", 11040, 99000, 0, (void *)own_cuCtxCreate_v3},
        {"cuStreamSynchronize", 2000, 99000, 0, (void *)own_cuStreamSynchronize},
        {"cuStreamQuery", 2000, 99000, 0, (void *)own_cuStreamSynchronize},
        {"cuGetProcAddress", 11030, 12000, 0, (void *)own_cuGetProcAddress},
        {"cuGetProcAddress", 12000, 99000, 0, (void *)own_cuGetProcAddress_v2},
    };
    for (size_t i = 0; i < sizeof answers / sizeof answers[0]; i++) {
        const struct answer *a = &answers[i];
        if (strcmp(a->base, base) == 0 && version >= a->since && version < a->until &&
            flags == a->flags) {
            return a->function;
        }
    }
    return NULL;
}

CUresult cuGetProcAddress_v2(const char *base, void **function, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult *status) {
    *function = answer(base, version, flags);
    if (status != NULL) {
        *status = *function ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    }
    return *function ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

CUresult cuGetProcAddress(const char *base, void **function, int version, cuuint64_t flags) {
    *function = answer(base, version, flags);
    return *function ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
