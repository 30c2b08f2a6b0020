/* NVML as nvidia-smi finds it: by name, so that in a share it is what stands in front of the driver's. */
#ifndef SIMGPU_SMI_LIBRARY_H
#define SIMGPU_SMI_LIBRARY_H

#include "abi/generated/nvml_functions.h"
#include "simgpu/smi/smi.h"

#include <stdbool.h>

#define SMI_PROFILES 16u

/* A GPU with what is listed of it. */
struct smi_gpu {
    nvmlDevice_t device;
    unsigned int index;
    bool mig; /* in MIG mode */
    char bus[NVML_DEVICE_PCI_BUS_ID_BUFFER_SIZE], name[96], uuid[96];
};

/* What the listings use. */
struct smi_library {
    nvmlReturn_t (*init)(void);
    nvmlReturn_t (*shutdown)(void);
    nvmlReturn_t (*count)(unsigned int *);
    nvmlReturn_t (*by_index)(unsigned int, nvmlDevice_t *);
    nvmlReturn_t (*name)(nvmlDevice_t, char *, unsigned int);
    nvmlReturn_t (*uuid)(nvmlDevice_t, char *, unsigned int);
    nvmlReturn_t (*pci)(nvmlDevice_t, nvmlPciInfo_t *);
    nvmlReturn_t (*memory)(nvmlDevice_t, nvmlMemory_t *);
    nvmlReturn_t (*busy)(nvmlDevice_t, nvmlUtilization_t *);
    nvmlReturn_t (*celsius)(nvmlDevice_t, nvmlTemperatureSensors_t, unsigned int *);
    nvmlReturn_t (*milliwatts)(nvmlDevice_t, unsigned int *);
    nvmlReturn_t (*driver)(char *, unsigned int);
    nvmlReturn_t (*cuda)(int *);
    nvmlReturn_t (*mode)(nvmlDevice_t, unsigned int *, unsigned int *);
    nvmlReturn_t (*set_mode)(nvmlDevice_t, unsigned int, nvmlReturn_t *);
    nvmlReturn_t (*most)(nvmlDevice_t, unsigned int *);
    nvmlReturn_t (*mig)(nvmlDevice_t, unsigned int, nvmlDevice_t *);
    nvmlReturn_t (*profile)(nvmlDevice_t, unsigned int, nvmlGpuInstanceProfileInfo_v2_t *);
    nvmlReturn_t (*remaining)(nvmlDevice_t, unsigned int, unsigned int *);
    nvmlReturn_t (*instances)(nvmlDevice_t, unsigned int, nvmlGpuInstance_t *, unsigned int *);
    nvmlReturn_t (*instance)(nvmlGpuInstance_t, nvmlGpuInstanceInfo_t *);
    nvmlReturn_t (*part)(nvmlGpuInstance_t, unsigned int, unsigned int,
                         nvmlComputeInstanceProfileInfo_v2_t *);
    nvmlReturn_t (*computes)(nvmlGpuInstance_t, unsigned int, nvmlComputeInstance_t *,
                             unsigned int *);
    nvmlReturn_t (*compute)(nvmlComputeInstance_t, nvmlComputeInstanceInfo_t *);
};

/* Opens it, once; NULL where there is no driver, which is told then. */
const struct smi_library *smi_open(void);
/* The GPU of an index; false past the last one. */
bool smi_gpu_at(const struct smi_library *nvml, unsigned int index, struct smi_gpu *gpu);
/* Whether -i's list of indexes and UUIDs means the GPU; NULL means all. */
bool smi_means(const char *list, const struct smi_gpu *gpu);
/* The profiles of GPU instances that a GPU has, the smallest first; returns their number. */
unsigned int smi_profiles(const struct smi_library *nvml, const struct smi_gpu *gpu,
                          nvmlGpuInstanceProfileInfo_v2_t profiles[SMI_PROFILES]);
/* What nvidia-smi calls a result. */
const char *smi_text(nvmlReturn_t result);

#endif
