/* nvidia-smi -L, and what `nvidia-smi mig` lists. Words, widths and exit statuses are those of nvidia-smi 550.163.01: its
 * tables, and listings of theirs that users published. Instances are made and ended by NVML alone here. */
#include "simgpu/smi/library.h"

#include <stdio.h>
#include <string.h>

#define INSTANCES 8u /* of one profile */

enum smi_status smi_list(void) {
    const struct smi_library *nvml = smi_open();
    struct smi_gpu gpu;

    if (!nvml) {
        return SMI_NO_DRIVER;
    }
    for (unsigned int i = 0; smi_gpu_at(nvml, i, &gpu); i++) {
        unsigned int most = 0, shown = 0;
        printf("GPU %u: %s (UUID: %s)\n", i, gpu.name, gpu.uuid);
        if (gpu.mig) {
            nvml->most(gpu.device, &most);
        }
        for (unsigned int number = 0; number < most; number++) {
            nvmlDevice_t device;
            char name[96], uuid[96];
            if (nvml->mig(gpu.device, number, &device) != NVML_SUCCESS ||
                nvml->name(device, name, sizeof name) != NVML_SUCCESS ||
                nvml->uuid(device, uuid, sizeof uuid) != NVML_SUCCESS) {
                continue;
            }
            const char *part = strstr(name, "MIG ");
            printf("  %-15s Device %2u: (UUID: %s)\n", part ? part : name, shown++, uuid);
        }
    }
    return SMI_DONE;
}

/* A table as it is printed: the head with the first row, a line after each. */
struct table {
    const char *head, *line;
    unsigned int rows;
};

static void begin_row(struct table *table) {
    if (table->rows++ == 0) {
        fputs(table->head, stdout);
    }
}

/* One listing of a GPU in MIG mode. */
typedef nvmlReturn_t lister(const struct smi_library *nvml, const struct smi_gpu *gpu,
                            struct table *table);

static nvmlReturn_t list_profiles(const struct smi_library *nvml, const struct smi_gpu *gpu,
                                  struct table *table) {
    nvmlGpuInstanceProfileInfo_v2_t profiles[SMI_PROFILES];
    unsigned int n = smi_profiles(nvml, gpu, profiles), left;
    char counts[16], memory[16];

    for (unsigned int i = 0; i < n; i++) {
        const nvmlGpuInstanceProfileInfo_v2_t *p = &profiles[i];
        nvmlReturn_t result = nvml->remaining(gpu->device, p->id, &left);
        if (result != NVML_SUCCESS) {
            return result;
        }
        begin_row(table);
        snprintf(counts, sizeof counts, "%u/%u", left, p->instanceCount);
        snprintf(memory, sizeof memory, "%.2f", (double)p->memorySizeMB / 1024);
        printf("| %3u  %-17s%3u     %-11s%-11sNo     %-7u%-6u%-4u|\n", gpu->index, p->name, p->id,
               counts, memory, p->multiprocessorCount, p->decoderCount, p->encoderCount);
        printf("|%61s%-6u%-6u%-4u|\n%s", "", p->copyEngineCount, p->jpegCount, p->ofaCount,
               table->line);
    }
    return NVML_SUCCESS;
}

/* The instances of a GPU, by profile and number. */
static nvmlReturn_t find_instances(const struct smi_library *nvml, const struct smi_gpu *gpu,
                                   const nvmlGpuInstanceProfileInfo_v2_t *profile,
                                   nvmlGpuInstance_t found[INSTANCES],
                                   nvmlGpuInstanceInfo_t info[INSTANCES], unsigned int *n) {
    *n = INSTANCES;
    nvmlReturn_t result = nvml->instances(gpu->device, profile->id, found, n);

    for (unsigned int i = 0; result == NVML_SUCCESS && i < *n; i++) {
        result = nvml->instance(found[i], &info[i]);
    }
    return result;
}

static nvmlReturn_t list_instances(const struct smi_library *nvml, const struct smi_gpu *gpu,
                                   struct table *table) {
    nvmlGpuInstanceProfileInfo_v2_t profiles[SMI_PROFILES];
    nvmlGpuInstance_t found[INSTANCES];
    nvmlGpuInstanceInfo_t info[INSTANCES];
    unsigned int n = smi_profiles(nvml, gpu, profiles), count;

    for (unsigned int p = 0; p < n; p++) {
        nvmlReturn_t result = find_instances(nvml, gpu, &profiles[p], found, info, &count);
        if (result != NVML_SUCCESS) {
            return result;
        }
        for (unsigned int i = 0; i < count; i++) {
            begin_row(table);
            printf("| %3u  %-19s%3u%9u%11u:%u     |\n%s", gpu->index, profiles[p].name,
                   info[i].profileId, info[i].id, info[i].placement.start, info[i].placement.size,
                   table->line);
        }
    }
    return NVML_SUCCESS;
}

/* The compute instances of one GPU instance. */
static nvmlReturn_t list_parts(const struct smi_library *nvml, const struct smi_gpu *gpu,
                               nvmlGpuInstance_t instance, unsigned int id, struct table *table) {
    for (unsigned int kind = 0; kind < NVML_COMPUTE_INSTANCE_PROFILE_COUNT; kind++) {
        nvmlComputeInstanceProfileInfo_v2_t profile = {
            .version = NVML_STRUCT_VERSION(nvmlComputeInstanceProfileInfo_v2_t, 2)};
        nvmlComputeInstance_t found[INSTANCES];
        nvmlComputeInstanceInfo_t info;
        unsigned int count = INSTANCES;
        if (nvml->part(instance, kind, NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED, &profile) !=
            NVML_SUCCESS) {
            continue;
        }
        nvmlReturn_t result = nvml->computes(instance, profile.id, found, &count);
        for (unsigned int i = 0; result == NVML_SUCCESS && i < count; i++) {
            result = nvml->compute(found[i], &info);
            if (result == NVML_SUCCESS) {
                begin_row(table);
                printf("| %3u%7u       %-19s%3u%10u%11u:%u     |\n%s", gpu->index, id, profile.name,
                       profile.id, info.id, info.placement.start, info.placement.size, table->line);
            }
        }
        if (result != NVML_SUCCESS) {
            return result;
        }
    }
    return NVML_SUCCESS;
}

static nvmlReturn_t list_computes(const struct smi_library *nvml, const struct smi_gpu *gpu,
                                  struct table *table) {
    nvmlGpuInstanceProfileInfo_v2_t profiles[SMI_PROFILES];
    nvmlGpuInstance_t found[INSTANCES];
    nvmlGpuInstanceInfo_t info[INSTANCES];
    unsigned int n = smi_profiles(nvml, gpu, profiles), count;
    nvmlReturn_t result = NVML_SUCCESS;

    for (unsigned int p = 0; result == NVML_SUCCESS && p < n; p++) {
        result = find_instances(nvml, gpu, &profiles[p], found, info, &count);
        for (unsigned int i = 0; result == NVML_SUCCESS && i < count; i++) {
            result = list_parts(nvml, gpu, found[i], info[i].id, table);
        }
    }
    return result;
}

#define INSTANCE_LINE "+-------------------------------------------------------+\n"
#define COMPUTE_LINE "+--------------------------------------------------------------------+\n"
#define PROFILE_LINE                                                                               \
    "+-----------------------------------------------------------------------------+\n"

/* What can be listed. */
static const struct {
    const char *brief, *name, *what, *head, *line;
    lister *list;
} listings[] = {
    {"-lgip", "--list-gpu-instance-profiles", "GPU instance profiles",
     PROFILE_LINE
     "| GPU instance profiles:                                                      |\n"
     "| GPU   Name             ID    Instances   Memory     P2P    SM    DEC   ENC  |\n"
     "|                              Free/Total   GiB              CE    JPEG  OFA  |\n"
     "|=============================================================================|\n",
     PROFILE_LINE, list_profiles},
    {"-lgi", "--list-gpu-instances", "GPU instances",
     INSTANCE_LINE "| GPU instances:                                        |\n"
                   "| GPU   Name             Profile  Instance   Placement  |\n"
                   "|                          ID       ID       Start:Size |\n"
                   "|=======================================================|\n",
     INSTANCE_LINE, list_instances},
    {"-lci", "--list-compute-instances", "compute instances",
     COMPUTE_LINE "| Compute instances:                                                 |\n"
                  "| GPU     GPU       Name             Profile   Instance   Placement  |\n"
                  "|       Instance                       ID        ID       Start:Size |\n"
                  "|         ID                                                         |\n"
                  "|====================================================================|\n",
     COMPUTE_LINE, list_computes},
};

static enum smi_status print(unsigned int number, const char *gpus) {
    const struct smi_library *nvml = smi_open();
    struct table table = {listings[number].head, listings[number].line, 0};
    unsigned int divided = 0;
    struct smi_gpu gpu;

    if (!nvml) {
        return SMI_NO_DRIVER;
    }
    for (unsigned int i = 0; smi_gpu_at(nvml, i, &gpu); i++) {
        if (!gpu.mig || !smi_means(gpus, &gpu)) {
            continue;
        }
        divided++;
        nvmlReturn_t result = listings[number].list(nvml, &gpu, &table);
        if (result != NVML_SUCCESS) {
            printf("Failed to display %s: %s\n", listings[number].what, smi_text(result));
            return (enum smi_status)result;
        }
    }
    if (divided == 0) {
        puts("No MIG-enabled devices found.");
        return SMI_NOT_FOUND;
    }
    if (table.rows == 0) {
        printf("No %s found: %s\n", listings[number].what, smi_text(NVML_ERROR_NOT_FOUND));
        return SMI_NOT_FOUND;
    }
    return SMI_DONE;
}

enum smi_status smi_mig(int argc, char **argv) {
    const unsigned int all = sizeof listings / sizeof listings[0];
    unsigned int number = all;
    const char *gpus = NULL;

    for (int i = 0; i < argc; i++) {
        unsigned int n = 0;
        while (n < all && strcmp(argv[i], listings[n].brief) != 0 &&
               strcmp(argv[i], listings[n].name) != 0) {
            n++;
        }
        if (n < all) {
            number = n;
        } else if ((strcmp(argv[i], "-i") == 0 || strcmp(argv[i], "--id") == 0) && i + 1 < argc) {
            gpus = argv[++i];
        } else {
            printf("Option \"%s\" is not recognized.\n", argv[i]);
            return SMI_INVALID_ARGUMENT;
        }
    }
    if (number == all) {
        fputs("simgpu's nvidia-smi mig lists alone: -lgip, -lgi or -lci, and -i GPU\n", stderr);
        return SMI_INVALID_ARGUMENT;
    }
    return print(number, gpus);
}
