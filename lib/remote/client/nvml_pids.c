/* Processes in NVML. What the GPU's host knows is the worker; the program is told of itself in its place, by its own number,
 * and asks for itself by that number too. Of other workers of this host their command lines tell the client, of those of
 * another host the relay. */
#include "remote/client/nvml.h"
#include "remote/generated/nvml_stubs.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The worker's process, asked once of each connection; 0 if it is not known. */
static unsigned worker(void) {
    static const struct remote_link *asked;
    static unsigned process;
    const struct remote_link *now = remote_session_link();
    struct remote_call call;
    struct remote_reply reply;
    uint64_t number = 0;

    if (now && __atomic_load_n(&asked, __ATOMIC_ACQUIRE) == now) {
        return __atomic_load_n(&process, __ATOMIC_RELAXED);
    }
    remote_begin(&call, (enum remote_number)REMOTE_PROCESS, 0);
    remote_given(&call, 0, &number);
    if (remote_ask(&call, &reply)) {
        remote_get(&call, &reply, 0, &number, sizeof number, false);
    }
    if (remote_end(&call, &reply)) {
        return 0;
    }
    __atomic_store_n(&process, (unsigned)number, __ATOMIC_RELAXED);
    __atomic_store_n(&asked, now, __ATOMIC_RELEASE);
    return (unsigned)number;
}

/* Reads the process's command line as the words of it, each with its end. */
static bool words_of(unsigned process, char *line, size_t size) {
    char path[32];

    snprintf(path, sizeof path, "/proc/%u/cmdline", process);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = file < 0 ? -1 : read(file, line, size - 1);
    if (file >= 0) {
        close(file);
    }
    if (got > 0) {
        memset(line + got, 0, size - (size_t)got);
    }
    return got > 0;
}

/* The client of another worker (lib/remote/worker/listen.c), 0 for any other process. */
static unsigned client_of(unsigned process) {
    static const char *const words[] = {"divvy-worker", "--socket", NULL, "--client"};
    struct remote_link *link = remote_session_link();
    char line[128];
    const char *at = line;
    size_t area;

    if (!link || !remote_link_area(link, &area)) {
        return link ? remote_socket_client(process) : 0;
    }
    if (!words_of(process, line, sizeof line)) {
        return 0;
    }
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (words[i] && strcmp(at, words[i]) != 0) {
            return 0;
        }
        at += strlen(at) + (at + strlen(at) < line + sizeof line - 1);
    }
    return (unsigned)strtoul(at, NULL, 10);
}

unsigned nvml_shown(unsigned process) {
    unsigned ours = worker();
    unsigned client = ours && process == ours ? (unsigned)getpid() : client_of(process);

    return client ? client : process;
}

unsigned nvml_meant(unsigned process) {
    unsigned ours = worker();

    return ours && process == (unsigned)getpid() ? ours : process;
}

/* How many elements there are for sure: a count may say more than there is room for. */
static unsigned filled(nvmlReturn_t result, const void *list, unsigned room, unsigned count) {
    return result != NVML_SUCCESS || !list ? 0 : room < count ? room : count;
}

#define LIST(fn, type, field)                                                                      \
    nvmlReturn_t fn(nvmlDevice_t device, unsigned int *count, type *list) {                        \
        unsigned room = count ? *count : 0;                                                        \
        nvmlReturn_t result = remote_call_##fn(device, count, list);                               \
        for (unsigned i = 0; i < filled(result, list, room, count ? *count : 0); i++) {            \
            list[i] field = nvml_shown(list[i] field);                                             \
        }                                                                                          \
        return result;                                                                             \
    }

LIST(nvmlDeviceGetComputeRunningProcesses, nvmlProcessInfo_v1_t, .pid)
LIST(nvmlDeviceGetComputeRunningProcesses_v2, nvmlProcessInfo_v2_t, .pid)
LIST(nvmlDeviceGetComputeRunningProcesses_v3, nvmlProcessInfo_t, .pid)
LIST(nvmlDeviceGetGraphicsRunningProcesses, nvmlProcessInfo_v1_t, .pid)
LIST(nvmlDeviceGetGraphicsRunningProcesses_v2, nvmlProcessInfo_v2_t, .pid)
LIST(nvmlDeviceGetGraphicsRunningProcesses_v3, nvmlProcessInfo_t, .pid)
LIST(nvmlDeviceGetMPSComputeRunningProcesses, nvmlProcessInfo_v1_t, .pid)
LIST(nvmlDeviceGetMPSComputeRunningProcesses_v2, nvmlProcessInfo_v2_t, .pid)
LIST(nvmlDeviceGetMPSComputeRunningProcesses_v3, nvmlProcessInfo_t, .pid)
LIST(nvmlDeviceGetEncoderSessions, nvmlEncoderSessionInfo_t, .pid)
LIST(nvmlDeviceGetFBCSessions, nvmlFBCSessionInfo_t, .pid)
LIST(nvmlDeviceGetAccountingPids, unsigned int, )

nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device,
                                             nvmlProcessUtilizationSample_t *samples,
                                             unsigned int *count, unsigned long long since) {
    unsigned room = count ? *count : 0;
    nvmlReturn_t result =
        remote_call_nvmlDeviceGetProcessUtilization(device, samples, count, since);

    for (unsigned i = 0; i < filled(result, samples, room, count ? *count : 0); i++) {
        samples[i].pid = nvml_shown(samples[i].pid);
    }
    return result;
}

nvmlReturn_t nvmlDeviceGetAccountingStats(nvmlDevice_t device, unsigned int process,
                                          nvmlAccountingStats_t *stats) {
    return remote_call_nvmlDeviceGetAccountingStats(device, nvml_meant(process), stats);
}

nvmlReturn_t nvmlDeviceGetAccountingStats_v2(nvmlDevice_t device, nvmlAccountingStats_v2_t *stats) {
    unsigned process = stats ? stats->pid : 0;

    if (stats) {
        stats->pid = nvml_meant(process);
    }
    nvmlReturn_t result = remote_call_nvmlDeviceGetAccountingStats_v2(device, stats);
    if (stats) {
        stats->pid = process;
    }
    return result;
}

/* A process of this machine is called by what it was started as, up to its arguments. */
static nvmlReturn_t name_here(unsigned process, char *name, unsigned length) {
    char line[1024];

    if (!words_of(process, line, sizeof line)) {
        return NVML_ERROR_NOT_FOUND;
    }
    line[sizeof line - 1] = '\0';
    snprintf(name, length, "%s", line);
    return NVML_SUCCESS;
}

/* On another host the number would be somebody else's process, so of other processes than the share's there is no name. */
nvmlReturn_t nvmlSystemGetProcessName(unsigned int process, char *name, unsigned int length) {
    struct remote_link *link = remote_session_link();
    bool own = process == (unsigned)getpid();
    size_t area;

    if (!link || !name || !length || remote_gate(REMOTE_nvmlSystemGetProcessName)) {
        return remote_call_nvmlSystemGetProcessName(process, name, length);
    }
    if (own) {
        return name_here(process, name, length);
    }
    if (remote_link_area(link, &area)) {
        return remote_call_nvmlSystemGetProcessName(process, name, length);
    }
    return remote_socket_shares(process) ? name_here(process, name, length) : NVML_ERROR_NOT_FOUND;
}
