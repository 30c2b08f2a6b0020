/* nvidia-smi without arguments, and --query-gpu: what NVML tells of each GPU. In the table, columns that simgpu has nothing
 * for say N/A. */
#include "simgpu/smi/library.h"

#include <stdio.h>
#include <string.h>

#define MIB (1024ull * 1024)
#define LINE                                                                                       \
    "+-----------------------------------------+------------------------+----------------------+"  \
    "\n"

/* What one GPU's rows and fields tell. */
struct figures {
    struct smi_gpu gpu;
    nvmlMemory_t memory;
    nvmlUtilization_t busy;
    unsigned int celsius, milliwatts;
    bool has_memory, has_busy, has_celsius, has_milliwatts;
    char driver[NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE];
};

static bool figures_of(const struct smi_library *nvml, unsigned int index, struct figures *f) {
    *f = (struct figures){.has_memory = false};
    if (!smi_gpu_at(nvml, index, &f->gpu)) {
        return false;
    }
    nvmlDevice_t device = f->gpu.device;
    f->has_memory = nvml->memory(device, &f->memory) == NVML_SUCCESS;
    f->has_busy = nvml->busy(device, &f->busy) == NVML_SUCCESS;
    f->has_celsius = nvml->celsius(device, NVML_TEMPERATURE_GPU, &f->celsius) == NVML_SUCCESS;
    f->has_milliwatts = nvml->milliwatts(device, &f->milliwatts) == NVML_SUCCESS;
    if (nvml->driver(f->driver, sizeof f->driver) != NVML_SUCCESS) {
        snprintf(f->driver, sizeof f->driver, "N/A");
    }
    return true;
}

static void print_head(const struct smi_library *nvml, const char *driver) {
    char cuda[16] = "N/A";
    int version;

    if (nvml->cuda(&version) == NVML_SUCCESS) {
        snprintf(cuda, sizeof cuda, "%d.%d", version / 1000, version % 1000 / 10);
    }
    printf("+--------------------------------------------------------------------------------------"
           "---+\n"
           "| NVIDIA-SMI simgpu                 Driver Version: %-14s CUDA Version: %-9s|\n"
           "|-----------------------------------------+------------------------+-------------------"
           "---+\n"
           "| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. "
           "ECC |\n"
           "| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute "
           "M. |\n"
           "|                                         |                        |               MIG "
           "M. |\n"
           "|=========================================+========================+==================="
           "===|\n",
           driver, cuda);
}

static void print_rows(const struct figures *f) {
    char temperature[16] = "N/A", power[16] = "N/A", memory[48] = "N/A", busy[16] = "N/A";

    if (f->has_celsius) {
        snprintf(temperature, sizeof temperature, "%uC", f->celsius);
    }
    if (f->has_milliwatts) {
        snprintf(power, sizeof power, "%uW", f->milliwatts / 1000);
    }
    if (f->has_memory) {
        snprintf(memory, sizeof memory, "%lluMiB / %6lluMiB", f->memory.used / MIB,
                 f->memory.total / MIB);
    }
    if (f->has_busy) {
        snprintf(busy, sizeof busy, "%u%%", f->busy.gpu);
    }
    printf("| %3u  %-30.30s N/A | %20.20s N/A| %20s |\n", f->gpu.index, f->gpu.name, f->gpu.bus,
           "N/A");
    printf("| N/A  %5s   N/A   %13s /   N/A | %22s | %8s  %10s |\n", temperature, power, memory,
           busy, "N/A");
    printf("|%41s|%24s| %20s |\n" LINE, "", "", f->gpu.mig ? "Enabled" : "N/A");
}

enum smi_status smi_summary(void) {
    const struct smi_library *nvml = smi_open();
    struct figures f;

    if (!nvml) {
        return SMI_NO_DRIVER;
    }
    for (unsigned int i = 0; figures_of(nvml, i, &f); i++) {
        if (i == 0) {
            print_head(nvml, f.driver);
        }
        print_rows(&f);
    }
    return SMI_DONE;
}

/* The fields of --query-gpu. */
enum field { INDEX, NAME, UUID, BUS, DRIVER, TOTAL, USED, FREE, BUSY, FIELDS };

static const struct {
    const char *name, *other, *unit;
} fields[FIELDS] = {
    [INDEX] = {"index", "", ""},           [NAME] = {"name", "gpu_name", ""},
    [UUID] = {"uuid", "gpu_uuid", ""},     [BUS] = {"pci.bus_id", "gpu_bus_id", ""},
    [DRIVER] = {"driver_version", "", ""}, [TOTAL] = {"memory.total", "", "MiB"},
    [USED] = {"memory.used", "", "MiB"},   [FREE] = {"memory.free", "", "MiB"},
    [BUSY] = {"utilization.gpu", "", "%"},
};

#define MOST_FIELDS 32u /* in one question */

/* What the arguments ask for. */
struct query {
    enum field fields[MOST_FIELDS];
    unsigned int count;
    const char *gpus;
    bool bare, no_units; /* without the head; without units */
};

/* Whether a list separated by commas has the word. */
static bool has_word(const char *list, const char *word) {
    size_t length = strlen(word);

    for (const char *at = list; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
        if (strcspn(at, ",") == length && strncmp(at, word, length) == 0) {
            return true;
        }
    }
    return false;
}

static bool read_fields(struct query *q, const char *list) {
    char words[512], *rest = words;

    snprintf(words, sizeof words, "%s", list);
    for (char *word; (word = strsep(&rest, ",")); q->count++) {
        enum field f = 0;
        word += strspn(word, " ");
        while (f < FIELDS && strcmp(word, fields[f].name) != 0 &&
               (!*fields[f].other || strcmp(word, fields[f].other) != 0)) {
            f++;
        }
        if (f == FIELDS || q->count == MOST_FIELDS) {
            printf("Field \"%s\" is not a valid field to query.\n\n", word);
            return false;
        }
        q->fields[q->count] = f;
    }
    return true;
}

static enum smi_status read_query(struct query *q, int argc, char **argv) {
    const char *format = NULL;

    for (int i = 0; i < argc; i++) {
        const char *word = argv[i];
        if (strncmp(word, "--query-gpu=", 12) == 0) {
            if (!read_fields(q, word + 12)) {
                return SMI_INVALID_ARGUMENT;
            }
        } else if (strncmp(word, "--format=", 9) == 0) {
            format = word + 9;
        } else if (strncmp(word, "--id=", 5) == 0) {
            q->gpus = word + 5;
        } else if (strcmp(word, "-i") == 0 && i + 1 < argc) {
            q->gpus = argv[++i];
        } else {
            printf("ERROR: Option %s is not recognized. Please run 'nvidia-smi -h'.\n\n", word);
            return SMI_INVALID_ARGUMENT;
        }
    }
    if (!format || !has_word(format, "csv")) {
        puts("\"--format=\" switch is missing \"csv\"");
        return SMI_INVALID_ARGUMENT;
    }
    q->bare = has_word(format, "noheader");
    q->no_units = has_word(format, "nounits");
    return SMI_DONE;
}

static void print_field(const struct figures *f, enum field field, bool no_units) {
    const char *unit = no_units ? "" : fields[field].unit, *text = NULL;
    unsigned long long number = 0;
    bool known = true;

    switch (field) {
    case NAME:
        text = f->gpu.name;
        break;
    case UUID:
        text = f->gpu.uuid;
        break;
    case BUS:
        text = f->gpu.bus;
        break;
    case DRIVER:
        text = f->driver;
        break;
    case TOTAL:
    case USED:
    case FREE:
        number = field == TOTAL ? f->memory.total : field == USED ? f->memory.used : f->memory.free;
        number /= MIB;
        known = f->has_memory;
        break;
    case BUSY:
        number = f->busy.gpu;
        known = f->has_busy;
        break;
    case INDEX:
    case FIELDS:
        number = f->gpu.index;
        break;
    }
    if (text || !known) {
        fputs(known ? text : "[N/A]", stdout);
    } else {
        printf("%llu%s%s", number, *unit ? " " : "", unit);
    }
}

bool smi_is_query(int argc, char **argv) {
    for (int i = 0; i < argc; i++) {
        if (strncmp(argv[i], "--query-gpu=", 12) == 0) {
            return true;
        }
    }
    return false;
}

enum smi_status smi_query(int argc, char **argv) {
    const struct smi_library *nvml = smi_open();
    struct query q = {.count = 0};
    struct figures f;

    if (!nvml) {
        return SMI_NO_DRIVER;
    }
    enum smi_status status = read_query(&q, argc, argv);
    if (status != SMI_DONE) {
        return status;
    }
    for (unsigned int i = 0; i < q.count && !q.bare; i++) {
        const char *unit = q.no_units ? "" : fields[q.fields[i]].unit;
        printf("%s%s%s%s%s", i ? ", " : "", fields[q.fields[i]].name, *unit ? " [" : "", unit,
               *unit ? "]" : "");
    }
    fputs(q.bare ? "" : "\n", stdout);
    for (unsigned int index = 0; figures_of(nvml, index, &f); index++) {
        for (unsigned int i = 0; i < q.count && smi_means(q.gpus, &f.gpu); i++) {
            fputs(i ? ", " : "", stdout);
            print_field(&f, q.fields[i], q.no_units);
            fputs(i + 1 == q.count ? "\n" : "", stdout);
        }
    }
    return SMI_DONE;
}
