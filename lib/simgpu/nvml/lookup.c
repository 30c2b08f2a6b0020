/* NVML: which devices there are, and finding one. */
#define _GNU_SOURCE
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "simgpu/nvml/call.h"

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *count) {
    NVML_SYSTEM(call)
    NVML_REQUIRE(count);
    *count = call.machine->gpu_count;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCount(unsigned int *count) {
    return nvmlDeviceGetCount_v2(count);
}

/* The handle of a GPU. The driver initialises the GPU for it, so a silent one is waited for. */
static nvmlReturn_t reach(struct nvml_call *call, uint32_t index, nvmlDevice_t *device) {
    nvmlReturn_t result = nvml_await(call, index, SG_SILENT_DEVICE);

    if (result == NVML_SUCCESS) {
        *device = nvml_handle(index);
    }
    return result;
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device) {
    NVML_SYSTEM(call)
    NVML_REQUIRE(device && index < call.machine->gpu_count);
    return reach(&call, index, device);
}

nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned int index, nvmlDevice_t *device) {
    return nvmlDeviceGetHandleByIndex_v2(index, device);
}

/* "GPU-" and the 32 hexadecimal digits in groups. */
static void uuid_text(const uint8_t uuid[16], char text[41]) {
    char *end = text + snprintf(text, 5, "GPU-");

    for (int i = 0; i < 16; i++) {
        bool group = i == 4 || i == 6 || i == 8 || i == 10;
        end += snprintf(end, 4, group ? "-%02x" : "%02x", uuid[i]);
    }
}

nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device) {
    char text[41];

    NVML_SYSTEM(call)
    NVML_REQUIRE(uuid && device);
    for (uint32_t i = 0; i < call.machine->gpu_count; i++) {
        nvmlDevice_t searched; /* the driver reaches every GPU on its way */
        nvmlReturn_t result = reach(&call, i, &searched);
        if (result != NVML_SUCCESS) {
            return result;
        }
        uuid_text(call.machine->gpus[i].uuid, text);
        if (strcasecmp(uuid, text) == 0) {
            *device = searched;
            return NVML_SUCCESS;
        }
    }
    return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t nvmlDeviceGetHandleByUUIDV(const nvmlUUID_t *uuid, nvmlDevice_t *device) {
    char text[41];

    NVML_REQUIRE(uuid && device);
    if (uuid->version != NVML_STRUCT_VERSION(nvmlUUID_t, 1)) {
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    }
    switch (uuid->type) {
    case NVML_UUID_TYPE_ASCII:
        snprintf(text, sizeof text, "%.40s", uuid->value.str);
        break;
    case NVML_UUID_TYPE_BINARY:
        uuid_text(uuid->value.bytes, text);
        break;
    default:
        return NVML_ERROR_INVALID_ARGUMENT;
    }
    return nvmlDeviceGetHandleByUUID(text, device);
}

nvmlReturn_t nvmlDeviceGetHandleBySerial(const char *serial, nvmlDevice_t *device) {
    NVML_SYSTEM(call)
    NVML_REQUIRE(serial && device);
    for (uint32_t i = 0; i < call.machine->gpu_count; i++) {
        nvmlDevice_t searched;
        nvmlReturn_t result = reach(&call, i, &searched);
        if (result != NVML_SUCCESS) {
            return result;
        }
        if (strcmp(serial, call.machine->gpus[i].serial) == 0) {
            *device = searched;
            return NVML_SUCCESS;
        }
    }
    return NVML_ERROR_NOT_FOUND;
}

/* Reads [domain:]bus:device[.function] in hexadecimal. */
static bool parse_pci(const char *text, unsigned at[4]) {
    int end = 0;

    at[3] = 0;
    if (sscanf(text, "%8x:%2x:%2x%n", &at[0], &at[1], &at[2], &end) != 3) {
        at[0] = 0;
        if (sscanf(text, "%2x:%2x%n", &at[1], &at[2], &end) != 2) {
            return false;
        }
    }
    text += end;
    if (*text == '.') {
        end = 0;
        if (sscanf(text, ".%1x%n", &at[3], &end) != 1) {
            return false;
        }
        text += end;
    }
    return *text == '\0';
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *address, nvmlDevice_t *device) {
    unsigned at[4];

    NVML_SYSTEM(call)
    NVML_REQUIRE(address && device && parse_pci(address, at));
    for (uint32_t i = 0; i < call.machine->gpu_count; i++) {
        const sim_pci *pci = &call.machine->gpus[i].pci;
        if (pci->domain == at[0] && pci->bus == at[1] && pci->device == at[2] &&
            pci->function == at[3]) {
            return reach(&call, i, device);
        }
    }
    return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char *address, nvmlDevice_t *device) {
    return nvmlDeviceGetHandleByPciBusId_v2(address, device);
}

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned int length) {
    char text[41];

    NVML_DEVICE(call, device)
    uuid_text(call.gpu->uuid, text);
    return nvml_text(uuid, length, text);
}

NVML_GETTER(nvmlDeviceGetIndex, unsigned int, call.index)
NVML_GETTER(nvmlDeviceGetMinorNumber, unsigned int, call.gpu->minor)

/* No GPU has instances, in MIG mode or not: no handle is one of an instance. */
NVML_GETTER(nvmlDeviceIsMigDeviceHandle, unsigned int, 0)

nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int *current,
                                  unsigned int *pending) {
    NVML_DEVICE(call, device)
    NVML_REQUIRE(current && pending);
    if (!call.gpu->mig) {
        return NVML_ERROR_NOT_SUPPORTED;
    }
    *current = *pending =
        call.gpu->mig == SIM_MIG_ON ? NVML_DEVICE_MIG_ENABLE : NVML_DEVICE_MIG_DISABLE;
    return NVML_SUCCESS;
}

/* Seven instances on every model that has MIG; the NVML API has 0 for others. */
NVML_GETTER(nvmlDeviceGetMaxMigDeviceCount, unsigned int, call.gpu->mig ? 7 : 0)

nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned int index,
                                                 nvmlDevice_t *instance) {
    NVML_DEVICE(call, device)
    NVML_REQUIRE(instance && index < 7);
    return call.gpu->mig ? NVML_ERROR_NOT_FOUND : NVML_ERROR_NOT_SUPPORTED;
}
