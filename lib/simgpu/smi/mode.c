/* nvidia-smi -mig and --gpu-reset. What they say is what the MIG user guide and listings of users show. */
#define _GNU_SOURCE
#include "simgpu/machine/state.h"
#include "simgpu/smi/library.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static const char *const names[] = {"-i", "--id",       "-mig", "--multi-instance-gpu",
                                    "-r", "--gpu-reset"};
enum option { OPTION_ID = 0, OPTION_MIG = 2, OPTION_RESET = 4, OPTION_NONE = 6 };

/* What the arguments ask for. */
struct request {
    const char *gpus, *mode;
    bool reset;
};

/* The option that a word begins with, and its value after '=' or NULL. */
static enum option find_option(const char *word, const char **value) {
    const char *end = strchrnul(word, '=');
    size_t length = (size_t)(end - word);

    *value = *end ? end + 1 : NULL;
    for (unsigned i = 0; i < OPTION_NONE; i++) {
        if (strlen(names[i]) == length && strncmp(word, names[i], length) == 0) {
            return (enum option)(i & ~1u);
        }
    }
    return OPTION_NONE;
}

/* NULL, or the first word that belongs to none of these options. */
static const char *read_request(struct request *r, int argc, char **argv) {
    for (int i = 0; i < argc; i++) {
        const char *value;
        enum option o = find_option(argv[i], &value);

        if (o == OPTION_NONE || (o == OPTION_RESET && value)) {
            return argv[i];
        }
        if (o == OPTION_RESET) {
            r->reset = true;
            continue;
        }
        value = value || i + 1 == argc ? value : argv[++i];
        *(o == OPTION_ID ? &r->gpus : &r->mode) = value ? value : "";
    }
    return NULL;
}

/* 0 or 1, -1 for another word. */
static int mode_of(const char *word) {
    bool on = strcmp(word, "1") == 0 || strcmp(word, "ENABLED") == 0;

    return on || strcmp(word, "0") == 0 || strcmp(word, "DISABLED") == 0 ? on : -1;
}

/* Sets the mode of one GPU, and says what became of it. */
static enum smi_status set_mode(const struct smi_library *nvml, const struct smi_gpu *gpu,
                                bool on) {
    const char *verb = on ? "enable" : "disable", *bus = gpu->bus;
    nvmlReturn_t status = NVML_SUCCESS, result = nvml->set_mode(gpu->device, on, &status);

    if (result != NVML_SUCCESS) {
        bool warning = result == NVML_ERROR_NOT_SUPPORTED;
        printf("Unable to %s MIG Mode for GPU %s: %s\n%s\n", verb, bus, smi_text(result),
               warning ? "Treating as warning and moving on."
                       : "Terminating early due to previous errors.");
        return warning ? SMI_DONE : (enum smi_status)result;
    }
    if (status == NVML_SUCCESS) {
        printf("%sd MIG Mode for GPU %s\n", on ? "Enable" : "Disable", bus);
        return SMI_DONE;
    }
    bool used = status == NVML_ERROR_IN_USE;
    printf("Warning: MIG mode is in pending %s state for GPU %s:%s\n", verb, bus,
           used ? smi_text(status) : "Not Supported");
    if (used) {
        printf("%s is currently being used by one or more other processes (e.g. CUDA application "
               "or a monitoring application such as another instance of nvidia-smi). Please first "
               "kill all processes using the device and retry the command or reboot the system to "
               "make MIG mode effective.\n",
               bus);
    } else {
        printf("Reboot the system or try nvidia-smi --gpu-reset to make MIG mode effective on GPU "
               "%s\n",
               bus);
    }
    return SMI_DONE;
}

static enum smi_status set_modes(const char *gpus, bool on) {
    const struct smi_library *nvml = smi_open();
    struct smi_gpu gpu;
    bool any = false;

    if (!nvml) {
        return SMI_NO_DRIVER;
    }
    for (unsigned int i = 0; smi_gpu_at(nvml, i, &gpu); i++) {
        if (!smi_means(gpus, &gpu)) {
            continue;
        }
        any = true;
        enum smi_status status = set_mode(nvml, &gpu, on);
        if (status != SMI_DONE) {
            return status;
        }
    }
    puts(any ? "All done." : "No devices were found");
    return any ? SMI_DONE : SMI_NOT_FOUND;
}

/* Resets one GPU by the machine itself: NVML has no call for it. */
static int reset_one(struct sg_instance *in, uint32_t gpu) {
    if (!sg_is_owner(in)) {
        return -EPERM;
    }
    sg_state_lock(in);
    int result = sg_reset_by_driver(in, gpu);
    sg_state_unlock(in);
    sg_mig_files(in, gpu);
    return result;
}

static enum smi_status say_reset(int result, const char *bus) {
    switch (result) {
    case 0:
        printf("GPU %s was successfully reset.\n", bus);
        return SMI_DONE;
    case -EOPNOTSUPP:
        printf("Resetting GPU %s is not supported.\n", bus);
        return SMI_UNSUPPORTED;
    case -EPERM:
        printf("Unable to reset GPU %s: Insufficient Permissions\n", bus);
        return SMI_NO_PERMISSION;
    default:
        printf("The following GPUs could not be reset:\n  GPU %s: In use by another client\n\n"
               "1 device is currently being used by one or more other processes (e.g., Fabric "
               "Manager, CUDA application, graphics application such as an X server, or a "
               "monitoring application such as another instance of nvidia-smi). Please first kill "
               "all processes using this device and all compute applications running in the "
               "system.\n",
               bus);
        return SMI_UNKNOWN;
    }
}

/* The GPUs that are meant are found by NVML, which is closed before: who has it open keeps a GPU from its reset. */
static enum smi_status reset(const char *gpus) {
    const struct smi_library *nvml = smi_open();
    struct smi_gpu found[SG_GPUS_MAX];
    unsigned int n = 0;
    struct sg_instance in;

    for (unsigned int i = 0; nvml && n < SG_GPUS_MAX && smi_gpu_at(nvml, i, &found[n]); i++) {
        n += smi_means(gpus, &found[n]);
    }
    if (!nvml || nvml->shutdown() != NVML_SUCCESS || !smi_machine(&in)) {
        return SMI_NO_DRIVER;
    }
    enum smi_status status = n ? SMI_DONE : SMI_NOT_FOUND;
    for (unsigned int i = 0; i < n && status == SMI_DONE; i++) {
        status = say_reset(reset_one(&in, found[i].index), found[i].bus);
    }
    sg_close(&in);
    puts(n == 0 ? "No devices were found" : status == SMI_DONE ? "All done." : "");
    return status;
}

bool smi_is_mode(int argc, char **argv) {
    const char *value;

    for (int i = 0; i < argc; i++) {
        enum option o = find_option(argv[i], &value);
        if (o == OPTION_MIG || o == OPTION_RESET) {
            return true;
        }
    }
    return false;
}

enum smi_status smi_mode(int argc, char **argv) {
    struct request r = {.gpus = NULL};
    const char *unknown = read_request(&r, argc, argv);

    bool one = r.reset ? !r.mode : r.mode != NULL; /* of the two at a time */

    if (unknown || !one) {
        printf("Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.\n\n");
        return SMI_UNKNOWN;
    }
    if (r.reset) {
        return reset(r.gpus);
    }
    int on = mode_of(r.mode);

    if (on < 0) {
        printf("Invalid Multi-Instance GPU mode specified: %s\n", r.mode);
        return SMI_INVALID_ARGUMENT;
    }
    return set_modes(r.gpus, on);
}
