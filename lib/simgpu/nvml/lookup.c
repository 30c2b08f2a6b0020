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

void nvml_uuid_text(const char *kind, const uint8_t uuid[16], char text[41]) {
    char *end = text + snprintf(text, 5, "%.4s", kind);

    for (int i = 0; i < 16; i++) {
        bool group = i == 4 || i == 6 || i == 8 || i == 10;
        end += snprintf(end, 4, group ? "-%02x" : "%02x", uuid[i]);
    }
}

void nvml_uuid_of(const struct nvml_call *call, uint32_t gpu, uint32_t place, char text[41]) {
    uint8_t uuid[16];

    if (place == 0) {
        nvml_uuid_text("GPU-", call->machine->gpus[gpu].uuid, text);
        return;
    }
    sg_mig_uuid(call->in, place, uuid);
    nvml_uuid_text("MIG-", uuid, text);
}

/* The GPU or MIG device on a GPU that has the UUID; NULL when none has. */
static nvmlDevice_t find_on(struct nvml_call *call, uint32_t gpu, const char *uuid) {
    char text[41];

    nvml_uuid_of(call, gpu, 0, text);
    if (strcasecmp(uuid, text) == 0) {
        return nvml_handle(gpu);
    }
    for (uint32_t place = 0; (place = sg_mig_next(call->in, gpu, place)) != 0; place++) {
        nvml_uuid_of(call, gpu, place, text);
        if (strcasecmp(uuid, text) == 0) {
            return nvml_mig_handle(place);
        }
    }
    return NULL;
}

nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device) {
    NVML_SYSTEM(call)
    NVML_REQUIRE(uuid && device);
    for (uint32_t i = 0; i < call.machine->gpu_count; i++) {
        nvmlDevice_t searched; /* the driver reaches every GPU on its way */
        nvmlReturn_t result = reach(&call, i, &searched);
        if (result != NVML_SUCCESS) {
            return result;
        }
        searched = find_on(&call, i, uuid);
        if (searched) {
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
        nvml_uuid_text("GPU-", uuid->value.bytes, text);
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

    NVML_ANY_DEVICE(call, device)
    nvml_uuid_of(&call, call.index, call.place, text);
    return nvml_text(uuid, length, text);
}

/* A MIG device's number among those of its GPU. */
static unsigned int mig_index(const struct nvml_call *call) {
    unsigned int index = 0;

    for (uint32_t place = 0; (place = sg_mig_next(call->in, call->index, place)) < call->place;
         place++) {
        index++;
    }
    return index;
}

nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int *index) {
    NVML_ANY_DEVICE(call, device)
    NVML_REQUIRE(index);
    *index = call.place ? mig_index(&call) : call.index;
    return NVML_SUCCESS;
}

NVML_GETTER(nvmlDeviceGetMinorNumber, unsigned int, call.gpu->minor)
