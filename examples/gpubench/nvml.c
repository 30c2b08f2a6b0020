/* The command that asks NVML, which programs such as nvidia-smi show to people. */
#include "abi/nvml/types.h"
#include "options.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#define UUID_LENGTH 96

/* The few functions that it takes, resolved as the driver's are. */
struct nvml {
    int (*init)(void);
    int (*count)(unsigned *);
    int (*handle)(unsigned, void **);
    int (*uuid)(void *, char *, unsigned);
    int (*memory)(void *, nvmlMemory_t *);
};

static int open_nvml(struct nvml *nvml) {
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        fprintf(stderr, "gpubench: open NVML: %s\n", dlerror());
        return 0;
    }
    const struct {
        const char *name;
        void *into;
    } table[] = {
        {"nvmlInit_v2", &nvml->init},
        {"nvmlDeviceGetCount_v2", &nvml->count},
        {"nvmlDeviceGetHandleByIndex_v2", &nvml->handle},
        {"nvmlDeviceGetUUID", &nvml->uuid},
        {"nvmlDeviceGetMemoryInfo", &nvml->memory},
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        void *symbol = dlsym(library, table[i].name);
        if (symbol == NULL) {
            fprintf(stderr, "gpubench: NVML has no %s\n", table[i].name);
            return 0;
        }
        memcpy(table[i].into, &symbol, sizeof symbol);
    }
    return 1;
}

static int show(const struct nvml *nvml, unsigned index) {
    void *device = NULL;
    char uuid[UUID_LENGTH] = "";
    nvmlMemory_t memory = {0};
    int result = nvml->handle(index, &device);
    if (result == 0) {
        result = nvml->uuid(device, uuid, sizeof uuid);
    }
    if (result == 0) {
        result = nvml->memory(device, &memory);
    }
    printf("%s{\"uuid\":\"%s\",\"total_bytes\":%llu,\"used_bytes\":%llu,\"free_bytes\":%llu}",
           index ? "," : "", uuid, memory.total, memory.used, memory.free);
    return result;
}

int command_nvml(const struct options *options) {
    (void)options;
    struct nvml nvml;
    if (!open_nvml(&nvml)) {
        return 3;
    }
    unsigned count = 0;
    int result = nvml.init();
    if (result == 0) {
        result = nvml.count(&count);
    }
    fputs("{\"command\":\"nvml\",\"devices\":[", stdout);
    for (unsigned i = 0; i < count && result == 0; i++) {
        result = show(&nvml, i);
    }
    printf("],\"code\":%d}\n", result);
    return result == 0 ? 0 : 1;
}
