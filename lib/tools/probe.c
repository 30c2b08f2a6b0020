/* divvy-probe --library CUDA: loads a library as a program does that asks for it by that name, and prints by which path it was
 * found:
 *
 *     {"path": "/usr/lib/x86_64-linux-gnu/libcuda.so.1"}
 *
 * divvy-probe --order CUDA: lists the GPUs that CUDA shows to a process like this one, in CUDA's
 * order, as one JSON object,
 *
 *     {"uuids": ["GPU-6e5f0d1c-3b5e-4a8e-9f7a-2d1c0b9a8f7e"]}
 *
 * with an empty list where CUDA shows none.
 *
 * divvy-probe --managed CUDA: lists in the same way those on which a program and the GPU can use managed memory at the same
 * time, so that the driver brings what a kernel touches (CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS).
 *
 * divvy-probe CUDA NVML UUID: measures what the first context of a process takes on a GPU.
 *
 * CUDA and NVML are the driver's libraries, by path, UUID is as NVML prints it: that of a GPU, or of
 * a MIG instance, of which CUDA is made to show it. Prints one JSON object,
 *
 *     {"context_bytes": 434110464, "method": "process"}
 *
 * where method is "process" for the driver's figure of this process, or "device" for the growth of
 * the whole GPU's use where the driver hides the figures of processes, as in some sandboxes; that
 * is right only if nobody else allocated meanwhile.
 *
 * Exit status: 0 measured or listed, 1 the driver refused (standard error says why), 2 wrong usage,
 * 3 CUDA does not show the GPU to this process, 4 the library says that it is not this machine's
 * driver (standard error says why).
 * It is a program of its own because a process that has used CUDA keeps some memory until it ends.
 */
#define _GNU_SOURCE /* dlinfo */
#include <dlfcn.h>
#include <link.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "abi/cuda/types.h"
#include "abi/nvml/types.h"

#define UUID_BYTES 48u     /* "GPU-", 32 digits, 4 dashes and a zero, and more */
#define PROCESSES_MAX 512u /* on one GPU; more than any GPU runs */

/* What is used of the driver, under names that all drivers since 450 have. */
static struct {
    CUresult (*init)(unsigned);
    CUresult (*count)(int *);
    CUresult (*uuid)(CUuuid *, CUdevice);
    CUresult (*instance)(CUuuid *,
                         CUdevice); /* a MIG instance's own, else the GPU's; may be NULL */
    CUresult (*retain)(CUcontext *, CUdevice);
    CUresult (*attribute)(int *, CUdevice_attribute, CUdevice); /* may be NULL */
} cuda;
static struct {
    nvmlReturn_t (*init)(void);
    nvmlReturn_t (*find)(const char *, nvmlDevice_t *);
    nvmlReturn_t (*memory)(nvmlDevice_t, nvmlMemory_t *);
    nvmlReturn_t (*processes)(nvmlDevice_t, unsigned *, nvmlProcessInfo_t *);
} nvml;

__attribute__((noreturn)) static void give_up(const char *what, int result) {
    fprintf(stderr, "divvy-probe: %s: result %d\n", what, result);
    exit(1);
}

/* What a library says of itself that is not this machine's driver, NULL for any other result. */
static const char *foreign(CUresult result) {
    switch (result) {
    case CUDA_ERROR_STUB_LIBRARY:
        return "a stub, with which programs are linked (CUDA_ERROR_STUB_LIBRARY)";
    case CUDA_ERROR_SYSTEM_DRIVER_MISMATCH:
        return "of another release than the kernel module (CUDA_ERROR_SYSTEM_DRIVER_MISMATCH)";
    case CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE:
        return "for other GPUs than this machine has (CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE)";
    default:
        return NULL;
    }
}

/* Initialises CUDA; ends the program where it is another machine's. */
static CUresult start_cuda(const char *path) {
    CUresult result = cuda.init(0);
    const char *what = foreign(result);
    if (what != NULL) {
        fprintf(stderr, "%s says that it is %s\n", path, what);
        exit(4);
    }
    return result;
}

static void *load(const char *path) {
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        fprintf(stderr, "divvy-probe: %s\n", dlerror());
        exit(1);
    }
    return library;
}

/* Dlsym's object pointers as function pointers, which POSIX allows and ISO C has no cast for. */
static bool symbol(void *from, const char *name, void *function) {
    *(void **)function = dlsym(from, name);
    return *(void **)function != NULL;
}

static void require(void *from, const char *name, void *function) {
    if (!symbol(from, name, function)) {
        fprintf(stderr, "divvy-probe: the driver has no %s\n", name);
        exit(1);
    }
}

static void load_nvml(const char *path) {
    void *from = load(path);
    require(from, "nvmlInit_v2", &nvml.init);
    require(from, "nvmlDeviceGetHandleByUUID", &nvml.find);
    require(from, "nvmlDeviceGetMemoryInfo", &nvml.memory);
    if (!symbol(from, "nvmlDeviceGetComputeRunningProcesses_v3", &nvml.processes)) {
        (void)symbol(from, "nvmlDeviceGetComputeRunningProcesses_v2", &nvml.processes);
    }
}

static void load_cuda(const char *path) {
    void *from = load(path);
    require(from, "cuInit", &cuda.init);
    require(from, "cuDeviceGetCount", &cuda.count);
    require(from, "cuDeviceGetUuid", &cuda.uuid);
    require(from, "cuDevicePrimaryCtxRetain", &cuda.retain);
    (void)symbol(from, "cuDeviceGetUuid_v2", &cuda.instance);
    (void)symbol(from, "cuDeviceGetAttribute", &cuda.attribute);
}

static bool is_instance(const char *uuid) {
    return strncmp(uuid, "MIG-", 4) == 0;
}

/* A device's UUID as NVML prints it, its GPU's or a MIG instance's. */
static CUresult name_device(CUdevice device, bool instance, char text[UUID_BYTES]) {
    CUuuid uuid;
    CUresult result = instance ? cuda.instance(&uuid, device) : cuda.uuid(&uuid, device);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    size_t length = (size_t)snprintf(text, UUID_BYTES, instance ? "MIG-" : "GPU-");
    for (unsigned i = 0; i < sizeof uuid.bytes; i++) {
        const char *dash = i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "";
        length += (size_t)snprintf(text + length, UUID_BYTES - length, "%s%02x", dash,
                                   (unsigned char)uuid.bytes[i]);
    }
    return CUDA_SUCCESS;
}

/* CUDA numbers GPUs in another order than NVML, and shows them by the same UUIDs. */
static CUdevice find_device(const char *wanted) {
    int count = 0;
    bool instance = is_instance(wanted);
    CUresult result =
        instance && cuda.instance == NULL ? CUDA_ERROR_NOT_SUPPORTED : cuda.count(&count);
    for (CUdevice device = 0; result == CUDA_SUCCESS && device < count; device++) {
        char text[UUID_BYTES];
        result = name_device(device, instance, text);
        if (result == CUDA_SUCCESS && strcmp(text, wanted) == 0) {
            return device;
        }
    }
    if (result == CUDA_SUCCESS) {
        fprintf(stderr, "divvy-probe: CUDA does not show the GPU to this process\n");
        exit(3);
    }
    give_up("find the GPU in CUDA", (int)result);
}

static bool brings_managed(CUdevice device) {
    int value = 0;
    if (cuda.attribute == NULL) {
        give_up("find cuDeviceGetAttribute in CUDA", CUDA_ERROR_NOT_FOUND);
    }
    CUresult result = cuda.attribute(&value, CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, device);
    if (result != CUDA_SUCCESS) {
        give_up("read an attribute of a GPU", (int)result);
    }
    return value != 0;
}

static int list_devices(const char *cuda_path, bool managed) {
    int count = 0;
    const char *between = "";
    load_cuda(cuda_path);
    CUresult result = start_cuda(cuda_path);
    if (result == CUDA_SUCCESS) {
        result = cuda.count(&count);
    }
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_NO_DEVICE) {
        give_up("initialise CUDA", (int)result);
    }
    printf("{\"uuids\": [");
    for (CUdevice device = 0; device < count; device++) {
        char text[UUID_BYTES];
        if (managed && !brings_managed(device)) {
            continue;
        }
        if ((result = name_device(device, false, text)) != CUDA_SUCCESS) {
            give_up("name a GPU", (int)result);
        }
        printf("%s\"%s\"", between, text);
        between = ", ";
    }
    printf("]}\n");
    return 0;
}

static uint64_t used_of_device(nvmlDevice_t gpu) {
    nvmlMemory_t memory;
    nvmlReturn_t result = nvml.memory(gpu, &memory);
    if (result != NVML_SUCCESS) {
        give_up("read the GPU's memory", (int)result);
    }
    return memory.used;
}

/* This process's memory, 0 where the driver does not tell. */
static uint64_t used_of_process(nvmlDevice_t gpu) {
    nvmlProcessInfo_t list[PROCESSES_MAX];
    unsigned count = PROCESSES_MAX;
    if (nvml.processes == NULL || nvml.processes(gpu, &count, list) != NVML_SUCCESS) {
        return 0;
    }
    for (unsigned i = 0; i < count; i++) {
        if (list[i].pid == (unsigned)getpid() && list[i].usedGpuMemory != UINT64_MAX) {
            return list[i].usedGpuMemory;
        }
    }
    return 0;
}

static int print_path(const char *name) {
    struct link_map *map = NULL;
    if (dlinfo(load(name), RTLD_DI_LINKMAP, &map) != 0) {
        fprintf(stderr, "divvy-probe: %s\n", dlerror());
        return 1;
    }
    printf("{\"path\": \"");
    for (const char *c = map->l_name; *c != '\0'; c++) {
        if ((unsigned char)*c < ' ' || *c == '"' || *c == '\\') {
            printf("\\u%04x", (unsigned char)*c);
        } else {
            putchar(*c);
        }
    }
    printf("\"}\n");
    return 0;
}

int main(int argc, char **argv) {
    if (argc == 3 && strcmp(argv[1], "--library") == 0) {
        return print_path(argv[2]);
    }
    if (argc == 3 && strcmp(argv[1], "--order") == 0) {
        return list_devices(argv[2], false);
    }
    if (argc == 3 && strcmp(argv[1], "--managed") == 0) {
        return list_devices(argv[2], true);
    }
    if (argc != 4 || argv[1][0] == '-') {
        fprintf(stderr, "usage: divvy-probe CUDA-LIBRARY NVML-LIBRARY GPU-UUID\n"
                        "       divvy-probe --order CUDA-LIBRARY\n"
                        "       divvy-probe --managed CUDA-LIBRARY\n"
                        "       divvy-probe --library CUDA-LIBRARY\n");
        return 2;
    }
    nvmlDevice_t gpu;
    CUcontext context;
    if (is_instance(argv[3]) && setenv("CUDA_VISIBLE_DEVICES", argv[3], 1) != 0) {
        give_up("name the MIG instance to CUDA", 1);
    }
    load_nvml(argv[2]);
    load_cuda(argv[1]);
    nvmlReturn_t found = nvml.init();
    if (found != NVML_SUCCESS || (found = nvml.find(argv[3], &gpu)) != NVML_SUCCESS) {
        give_up("find the GPU in NVML", (int)found);
    }
    CUresult result = start_cuda(argv[1]);
    if (result != CUDA_SUCCESS) {
        give_up("initialise CUDA", (int)result);
    }
    CUdevice device = find_device(argv[3]);
    uint64_t before = used_of_device(gpu);
    if ((result = cuda.retain(&context, device)) != CUDA_SUCCESS) {
        give_up("make a context", (int)result);
    }
    uint64_t after = used_of_device(gpu), own = used_of_process(gpu);
    uint64_t growth = after > before ? after - before : 0;
    printf("{\"context_bytes\": %llu, \"method\": \"%s\"}\n",
           (unsigned long long)(own > 0 ? own : growth), own > 0 ? "process" : "device");
    return own > 0 || growth > 0 ? 0 : 1;
}
