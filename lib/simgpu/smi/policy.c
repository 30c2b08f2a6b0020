/* nvidia-smi compute-policy: the length of a GPU's time slices. */
#define _GNU_SOURCE
#include "abi/generated/machine_layout.h"
#include "simgpu/machine/state.h"
#include "simgpu/smi/smi.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char help[] = "\n"
                           "    Compute Policy -- Control and list compute policies.\n"
                           "\n"
                           "    Usage: nvidia-smi compute-policy [options]\n"
                           "\n"
                           "    Options include:\n"
                           "    [-i | --id]: GPU device ID's. Provide comma\n"
                           "                 separated values for more than one device\n"
                           "\n"
                           "    [-l | --list]: List all compute policies\n"
                           "\n"
                           "    [ | --set-timeslice]: Set timeslice config for a GPU:\n"
                           "                          0=DEFAULT, 1=SHORT, 2=MEDIUM, 3=LONG\n"
                           "\n"
                           "    [-h | --help]: Display help information\n"
                           "\n\n";

static const char *const levels[SG_SLICE_LEVELS] = {"Default", "Short", "Medium", "Long"};

enum option { OPTION_ID, OPTION_SET, OPTION_LIST, OPTION_HELP, OPTIONS };

static const struct {
    const char *brief, *name;
    bool has_value;
} options[OPTIONS] = {
    [OPTION_ID] = {"-i", "--id", true},
    [OPTION_SET] = {"--set-timeslice", "--set-timeslice", true},
    [OPTION_LIST] = {"-l", "--list", false},
    [OPTION_HELP] = {"-h", "--help", false},
};

/* What the arguments ask for. */
struct request {
    unsigned given[OPTIONS]; /* how often */
    const char *id;
    unsigned long level;
};

static enum smi_status unknown_option(const char *word) {
    printf("Option \"%s\" is not recognized.\n", word);
    return SMI_INVALID_ARGUMENT;
}

static enum option find_option(const char *word, size_t length) {
    enum option o = 0;

    while (o < OPTIONS &&
           !(strlen(options[o].brief) == length && strncmp(word, options[o].brief, length) == 0) &&
           !(strlen(options[o].name) == length && strncmp(word, options[o].name, length) == 0)) {
        o++;
    }
    return o;
}

static enum smi_status read_level(struct request *r, const char *word, const char *value) {
    char *end;

    r->level = strtoul(value, &end, 0);
    if (*end == '\0') {
        return SMI_DONE;
    }
    printf("Option \"%s\" is invalid for \"%s\".\n", value, word);
    return SMI_INVALID_ARGUMENT;
}

/* Options are read in order, and the first that is wrong is told. A value follows after '=', or is the next
 * argument unless that begins with a dash. */
static enum smi_status read_request(struct request *r, int argc, char **argv) {
    for (int i = 0; i < argc; i++) {
        const char *word = argv[i], *value = strchr(word, '=');
        enum option o = find_option(word, value ? (size_t)(value - word) : strlen(word));
        enum smi_status status = SMI_DONE;

        if (o == OPTIONS) {
            return unknown_option(word);
        }
        r->given[o]++;
        if (!options[o].has_value) {
            if (value) {
                return unknown_option(value + 1);
            }
            continue;
        }
        if (!value && (i + 1 == argc || argv[i + 1][0] == '-')) {
            printf("Option \"%s\" is missing its value.\n", word);
            return SMI_INVALID_ARGUMENT;
        }
        value = value ? value + 1 : argv[++i];
        if (o == OPTION_SET) {
            status = read_level(r, word, value);
        } else {
            r->id = value;
        }
        if (status != SMI_DONE) {
            return status;
        }
    }
    return SMI_DONE;
}

static void uuid_text(const uint8_t uuid[16], char text[41]) {
    char *end = text + snprintf(text, 41, "GPU-");

    for (unsigned i = 0; i < 16; i++) {
        bool group = i == 4 || i == 6 || i == 8 || i == 10;
        end += snprintf(end, 4, group ? "-%02x" : "%02x", uuid[i]);
    }
}

/* Whether a word of -i names the GPU: by its index or, as it is written, its UUID. */
static bool names(const char *word, const sim_machine *machine, uint32_t gpu) {
    char text[41], *end;
    unsigned long index = strtoul(word, &end, 10);

    if (end != word && *end == '\0') {
        return index == gpu;
    }
    uuid_text(machine->gpus[gpu].uuid, text);
    return strcmp(word, text) == 0;
}

/* The GPUs that are meant, as bits; words that name none are passed over. */
static enum smi_status choose(const char *id, const sim_machine *machine, uint32_t *gpus) {
    char list[PATH_MAX], *rest = list;

    *gpus = id ? 0 : (1u << machine->gpu_count) - 1;
    if (id && *id == '\0') {
        printf("Failed to parse device string on command line");
        return SMI_UNKNOWN;
    }
    snprintf(list, sizeof list, "%s", id ? id : "");
    for (char *word; (word = strsep(&rest, ", "));) {
        for (uint32_t i = 0; i < machine->gpu_count && *word; i++) {
            *gpus |= names(word, machine, i) ? 1u << i : 0;
        }
    }
    if (*gpus == 0) {
        puts("No devices were found");
        return SMI_NOT_FOUND;
    }
    return SMI_DONE;
}

static enum smi_status list(const struct sg_instance *in, uint32_t gpus) {
    puts("+-------------------------------------+\n"
         "| GPU compute policies:               |\n"
         "| GPU     Name           Value        |\n"
         "|=====================================|");
    for (uint32_t i = 0; i < in->state->gpu_count; i++) {
        if (gpus >> i & 1) {
            printf("| %3u   Timeslice       %-14s|\n+-------------------------------------+\n", i,
                   levels[sg_slice_level(in, i)]);
        }
    }
    return SMI_DONE;
}

/* The first GPU that refuses ends it. */
static enum smi_status set(struct sg_instance *in, uint32_t gpus, unsigned long level) {
    const char *name = level < SG_SLICE_LEVELS ? levels[level] : "Unknown";

    for (uint32_t i = 0; i < in->state->gpu_count; i++) {
        if (!(gpus >> i & 1)) {
            continue;
        }
        if (level >= SG_SLICE_LEVELS || !sg_is_owner(in)) {
            bool valid = level < SG_SLICE_LEVELS;
            const char *why = valid ? "Insufficient Permissions" : "Invalid Argument";
            printf("Failed to set timeslice policy with value %s for GPU %u : %s\n"
                   "Failed to set timeslice for requested devices : %s\n",
                   name, i, why, why);
            return valid ? SMI_NO_PERMISSION : SMI_INVALID_ARGUMENT;
        }
        sg_slice_level_set(in, i, (enum sg_slice_level)level);
        printf("Successfully set timeslice policy with value %s for GPU %u\n", name, i);
    }
    return SMI_DONE;
}

/* The machine whose directory the program lies in. */
static bool open_machine(struct sg_instance *in) {
    char dir[SG_PATH_BYTES], tag[SG_TAG_BYTES];
    size_t bytes;

    if (sg_find(help, dir, tag) != 0 || sg_open(in, dir, tag, false) != 0) {
        return false;
    }
    const sim_machine *machine = sg_state_machine(in, &bytes);
    if (bytes == sizeof *machine && machine->magic == SIM_MAGIC &&
        machine->version == SIM_VERSION) {
        return true;
    }
    sg_close(in);
    return false;
}

static enum smi_status answer(struct sg_instance *in, const sim_machine *machine,
                              const struct request *r) {
    unsigned commands = r->given[OPTION_SET] + r->given[OPTION_LIST];
    uint32_t gpus;

    if (r->given[OPTION_HELP] || commands == 0) {
        fputs(help, stdout);
        return SMI_DONE;
    }
    if (commands > 1 || r->given[OPTION_ID] > 1) {
        puts("One, and only one, compute-policy command allowed at a time");
        return SMI_INVALID_ARGUMENT;
    }
    enum smi_status status = choose(r->id, machine, &gpus);
    if (status != SMI_DONE) {
        return status;
    }
    return r->given[OPTION_LIST] ? list(in, gpus) : set(in, gpus, r->level);
}

bool smi_machine(struct sg_instance *in) {
    if (open_machine(in)) {
        return true;
    }
    puts("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make "
         "sure that the latest NVIDIA driver is installed and running.\n");
    return false;
}

/* A driver that is not there is told before anything is read. */
enum smi_status smi_compute_policy(int argc, char **argv) {
    struct request r = {.id = NULL};
    struct sg_instance in;
    size_t bytes;

    if (!smi_machine(&in)) {
        return SMI_NO_DRIVER;
    }
    enum smi_status status = read_request(&r, argc, argv);
    if (status == SMI_DONE) {
        status = answer(&in, sg_state_machine(&in, &bytes), &r);
    }
    sg_close(&in);
    return status;
}
