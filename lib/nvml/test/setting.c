#define _GNU_SOURCE
#include "nvml/test/setting.h"

#include "abi/generated/page_layout.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Set by the build: the products under test. */
#ifndef LIBRARY_UNDER_TEST
#error "LIBRARY_UNDER_TEST names our library, TEST_DRIVER the driver"
#endif

static const char *const files[] = {"config", "state", "libnvidia-ml.so.1",
                                    "libnvidia-ml-real.so.1"};

static void path_of(const struct setting *setting, const char *file, char path[128]) {
    snprintf(path, 128, "%s/%s", setting->directory, file);
}

static void write_file(const struct setting *setting, const char *file, const void *bytes,
                       size_t size) {
    char path[128];
    path_of(setting, file, path);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0700);
    CHECK(fd >= 0);
    const char *at = bytes;
    while (size > 0) {
        ssize_t written = write(fd, at, size);
        CHECK(written > 0);
        at += written;
        size -= (size_t)written;
    }
    CHECK(close(fd) == 0);
}

static void *read_file(const char *path, size_t *size) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    CHECK(fd >= 0);
    struct stat status;
    CHECK(fstat(fd, &status) == 0);
    *size = (size_t)status.st_size;
    char *bytes = malloc(*size);
    CHECK(bytes != NULL);
    size_t done = 0;
    while (done < *size) {
        ssize_t got = read(fd, bytes + done, *size - done);
        CHECK(got > 0);
        done += (size_t)got;
    }
    close(fd);
    return bytes;
}

static void write_config(const struct setting *setting) {
    static const unsigned int gpus[SHARE_GPUS] = {2, 1};
    static const uint64_t limits[SHARE_GPUS] = {LIMIT_GPU_2, LIMIT_GPU_1};
    static dv_page_config config;
    memset(&config, 0, sizeof config);
    config.header = (dv_page_header){
        .magic = DV_PAGE_CONFIG_MAGIC, .version = DV_PAGE_VERSION, .size = sizeof config};
    config.device_count = SHARE_GPUS;
    memcpy(config.id, "test", sizeof "test");
    memcpy(config.name, "test", sizeof "test");
    for (unsigned int at = 0; at < SHARE_GPUS; at++) {
        dv_page_device *device = &config.device[at];
        fake_uuid(gpus[at], device->uuid);
        device->limit = limits[at];
        device->total = FAKE_TOTAL;
        device->context_bytes = 2 * MIB;
        device->pool_chunk = 32 * MIB;
        device->weight = 1;
    }
    write_file(setting, "config", &config, sizeof config);
}

static void write_state(const struct setting *setting) {
    size_t size = sizeof(dv_page_state) + SHARE_GPUS * sizeof(dv_page_gpu);
    dv_page_state *state = aligned_alloc(_Alignof(dv_page_state), size);
    CHECK(state != NULL);
    memset(state, 0, size);
    state->header = (dv_page_header){
        .magic = DV_PAGE_STATE_MAGIC, .version = DV_PAGE_VERSION, .size = (uint32_t)size};
    state->device_count = SHARE_GPUS;
    write_file(setting, "state", state, size);
    free(state);
}

/* Copies our library as the agent does: its RUNPATH becomes the tenant's directory. */
static void write_library(const struct setting *setting) {
    static const char mark[] = "/divvy-runpath-";
    size_t size;
    char *bytes = read_file(LIBRARY_UNDER_TEST, &size);
    char *runpath = memmem(bytes, size, mark, sizeof mark - 1);
    CHECK(runpath != NULL);
    CHECK(strlen(runpath) >= strlen(setting->directory));
    memcpy(runpath, setting->directory, strlen(setting->directory) + 1);
    write_file(setting, "libnvidia-ml.so.1", bytes, size);
    free(bytes);
}

static struct setting present;

static void remove_directory(void) {
    for (size_t at = 0; at < sizeof files / sizeof files[0]; at++) {
        char path[128];
        path_of(&present, files[at], path);
        unlink(path);
    }
    rmdir(present.directory);
}

void setting_make_pages(struct setting *setting) {
    char link[128];
    *setting = (struct setting){.directory = "/tmp/divvy-nvml-test-XXXXXX"};
    CHECK(mkdtemp(setting->directory) != NULL);
    present = *setting;
    CHECK(atexit(remove_directory) == 0);
    write_config(setting);
    write_state(setting);
    write_library(setting);
    path_of(setting, "libnvidia-ml-real.so.1", link);
    CHECK(symlink(TEST_DRIVER, link) == 0);
}

void setting_open(struct setting *setting) {
    char path[128];
    path_of(setting, "libnvidia-ml.so.1", path);
    setting->library = dlopen(path, RTLD_NOW);
    if (setting->library == NULL) {
        fprintf(stderr, "%s\n", dlerror());
    }
    CHECK(setting->library != NULL);
    /* Names of the test driver that ours does not have are found through ours. */
    struct fake_driver *(*state)(void) =
        (struct fake_driver * (*)(void))(uintptr_t)setting_function(setting, "fake_driver");
    nvmlDevice_t (*handle)(unsigned int) =
        (nvmlDevice_t (*)(unsigned int))(uintptr_t)setting_function(setting, "fake_handle");
    setting->driver = state();
    for (unsigned int index = 0; index <= FAKE_MIG; index++) {
        setting->gpu[index] = handle(index);
    }
}

void setting_make(struct setting *setting) {
    setting_make_pages(setting);
    setting_open(setting);
}

void *setting_function(const struct setting *setting, const char *name) {
    void *function = dlsym(setting->library, name);
    if (function == NULL) {
        fprintf(stderr, "%s\n", dlerror());
    }
    CHECK(function != NULL);
    return function;
}
