/* simgpuctl: what it refuses to make an instance of, and what it reports. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "abi/generated/nvml_functions.h"
#include "simgpu/ctl/ctl.h"
#include "simgpu/machine/test/setting.h"

#define MUTATIONS 150
#define NOTHING_MOVED                                                                              \
    "\"managed\": 0, \"bytesIn\": 0, \"bytesOut\": 0, \"faults\": 0, \"stalledNs\": 0"

/* Runs ctl_create with these bytes on standard input; what it says of bad ones is not shown. */
static int quietly_create(const char *directory, const void *bytes, size_t size) {
    FILE *input = fmemopen((void *)(uintptr_t)bytes, size, "r");
    FILE *nowhere = fopen("/dev/null", "w");
    FILE *old_stdin = stdin, *old_stderr = stderr;

    CHECK(input && nowhere);
    stdin = input;
    stderr = nowhere;
    int status = ctl_create(directory);
    stdin = old_stdin;
    stderr = old_stderr;
    fclose(input);
    fclose(nowhere);
    return status;
}

/* Asks NVML for everything that it looks up in the description. */
static void ask_everything(const char *directory) {
    nvmlDevice_t device;
    nvmlUtilization_t rates;
    nvmlFieldValue_t field = {.fieldId = NVML_FI_DEV_NVLINK_LINK_COUNT};
    nvmlPciInfo_t pci;
    unsigned long mask[4];
    unsigned int value;
    char text[128];

    CHECK_EQUAL(setenv("DIVVY_SIMGPU", directory, 1), 0);
    CHECK_EQUAL(nvmlInit_v2(), NVML_SUCCESS);
    for (unsigned int i = 0; nvmlDeviceGetHandleByIndex_v2(i, &device) == NVML_SUCCESS; i++) {
        CHECK_EQUAL(nvmlDeviceGetName(device, text, sizeof text), NVML_SUCCESS);
        CHECK_EQUAL(nvmlDeviceGetSerial(device, text, sizeof text), NVML_SUCCESS);
        CHECK_EQUAL(nvmlDeviceGetPciInfo_v3(device, &pci), NVML_SUCCESS);
        CHECK_EQUAL(nvmlDeviceGetPcieSpeed(device, &value), NVML_SUCCESS);
        CHECK_EQUAL(nvmlDeviceGetUtilizationRates(device, &rates), NVML_SUCCESS);
        CHECK_EQUAL(nvmlDeviceGetCpuAffinity(device, 4, mask), NVML_SUCCESS);
        CHECK_EQUAL(nvmlDeviceGetFieldValues(device, 1, &field), NVML_SUCCESS);
        for (unsigned int link = 0; link < NVML_NVLINK_MAX_LINKS; link++) {
            (void)nvmlDeviceGetNvLinkRemotePciInfo_v2(device, link, &pci);
        }
    }
    CHECK_EQUAL(nvmlShutdown(), NVML_SUCCESS);
}

/* Makes an instance of these bytes, uses it and removes it; returns ctl_create's status. */
static int create(const void *bytes, size_t size) {
    char directory[] = "/tmp/divvy-simgpu-ctl-XXXXXX";

    CHECK(mkdtemp(directory));
    int status = quietly_create(directory, bytes, size);
    if (status == 0) {
        ask_everything(directory);
    }
    setting_remove(directory);
    return status;
}

static void check_refusals(void) {
    sim_machine good, bad;

    setting_describe(&good);
    CHECK_EQUAL(create(&good, sizeof good), 0);
    CHECK_EQUAL(create(&good, sizeof good - 1), 1);
#define REFUSED(change)                                                                            \
    do {                                                                                           \
        bad = good;                                                                                \
        change;                                                                                    \
        CHECK_EQUAL(create(&bad, sizeof bad), 1);                                                  \
    } while (0)
    REFUSED(bad.magic++);
    REFUSED(bad.version++);
    REFUSED(bad.size--);
    REFUSED(bad.gpu_count = 0);
    REFUSED(bad.gpu_count = SIM_GPUS_MAX + 1);
    REFUSED(bad.node_count = SIM_NODES_MAX + 1);
    REFUSED(bad.gpus[0].pci.numa_node = 2);
    REFUSED(bad.gpus[0].link_count = SIM_LINKS_MAX + 1);
    REFUSED(bad.gpus[0].links[0].remote_place = GPU_COUNT);
    REFUSED(bad.gpus[0].reserved_bytes = bad.gpus[0].memory_bytes);
    REFUSED(bad.gpus[0].pcie_generation = 35);
    REFUSED(memset(bad.gpus[0].name, 'x', sizeof bad.gpus[0].name));
    REFUSED(memset(bad.driver_version, 'x', sizeof bad.driver_version));
}

/* Any byte may be any other: the instance is refused or works. */
static void check_mutations(void) {
    sim_machine good, bad;
    unsigned int made = 0, random = 1;

    setting_describe(&good);
    for (int i = 0; i < MUTATIONS; i++) {
        bad = good;
        for (int k = 0; k < 3; k++) {
            random = random * 1103515245u + 12345u;
            /* Only figures in use: the tables' other entries change nothing. */
            size_t at = (random >> 8) % (offsetof(sim_machine, gpus) + GPU_COUNT * sizeof(sim_gpu));
            ((unsigned char *)&bad)[at] = (unsigned char)(random >> 24);
        }
        if (bad.gpus[0].memory_bytes > (1ull << 32) || bad.gpus[1].memory_bytes > (1ull << 32) ||
            bad.gpus[2].memory_bytes > (1ull << 32) || bad.gpus[3].memory_bytes > (1ull << 32)) {
            continue; /* large tables take time, and are made in the same way */
        }
        made += create(&bad, sizeof bad) == 0;
    }
    CHECK(made > MUTATIONS / 10);
}

/* Keeps what a function prints. */
static char *printed(int (*command)(const char *), const char *directory) {
    char *text = NULL;
    size_t size = 0;
    FILE *old = stdout;

    stdout = open_memstream(&text, &size);
    CHECK(stdout);
    CHECK_EQUAL(command(directory), 0);
    fclose(stdout);
    stdout = old;
    return text;
}

static bool is_said(const char *directory, const char *words) {
    char *text = printed(ctl_report, directory);
    bool found = strstr(text, words) != NULL;

    free(text);
    return found;
}

#define CHECK_SAID(directory, words)                                                               \
    do {                                                                                           \
        if (!is_said(directory, words)) {                                                          \
            char *text_ = printed(ctl_report, directory);                                          \
            fprintf(stderr, "not said: %s\nin: %s\n", words, text_);                               \
            free(text_);                                                                           \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static void check_report(void) {
    sim_machine machine;
    char expected[128];

    setting_describe(&machine);
    const char *directory = setting_make(&machine);
    CHECK_SAID(directory, "\"processes\": []");
    pid_t five = setting_process("te\"nant\\\n\xff", 1, 5, 0);
    pid_t busy = setting_process("other", 1, 2, 50000000);
    CHECK_SAID(directory, "{\"index\": 1, \"uuid\": \"GPU-a1a1a1a1-a1a1-a1a1-a1a1-a1a1a1a1a1a1\"");
    CHECK_SAID(directory, "\"used\": 14680064, \"peak\": 14680064, \"free\": 236978176");
    snprintf(expected, sizeof expected,
             "{\"pid\": %d, \"tenant\": \"te\\\"nant\\\\\\u000a\\ufffd\"", (int)five);
    CHECK_SAID(directory, expected);
    CHECK_SAID(
        directory,
        "{\"index\": 1, \"contexts\": 1, \"used\": 10485760, \"context\": 0, \"linear\": 10485760");
    CHECK_SAID(directory, "{\"index\": 1, \"used\": 10485760, \"peak\": 10485760, \"imported\": 0, "
                          "\"abroad\": 0, \"gpuNs\": 0, \"smNs\": 0, " NOTHING_MOVED "}");
    EVENTUALLY(is_said(directory, "\"busyNs\": 50000000"));
    CHECK_SAID(directory, "\"used\": 4194304, \"peak\": 4194304, \"imported\": 0, \"abroad\": 0, "
                          "\"gpuNs\": 50000000");
    setting_kill(five);
    setting_kill(busy);
    /* The dead leave their peak and their time, not their memory. */
    CHECK_SAID(directory, "\"used\": 0, \"peak\": 14680064");
    CHECK_SAID(
        directory,
        "{\"tenant\": \"other\", \"gpus\": [{\"index\": 0, \"used\": 0, "
        "\"peak\": 0, \"imported\": 0, \"abroad\": 0, \"gpuNs\": 0, \"smNs\": 0, " NOTHING_MOVED
        "}, "
        "{\"index\": 1, \"used\": 0, \"peak\": 4194304, \"imported\": 0, "
        "\"abroad\": 0, \"gpuNs\": 50000000, \"smNs\": 5000000, " NOTHING_MOVED "}");
    CHECK_SAID(directory, "\"visitors\": 0");
    CHECK_EQUAL(nvmlInit_v2(), NVML_SUCCESS);
    CHECK_SAID(directory, "\"visitors\": 1");
    CHECK_EQUAL(nvmlShutdown(), NVML_SUCCESS);
}

int main(void) {
    CHECK_EQUAL(ctl_report("/nowhere"), 1);
    check_refusals();
    check_mutations();
    check_report();
    return 0;
}
