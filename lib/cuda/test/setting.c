#define _GNU_SOURCE
#include "cuda/test/setting.h"

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Set by the build. */
#ifndef LIBRARY_UNDER_TEST
#error "LIBRARY_UNDER_TEST names our library, TEST_DRIVER the fake driver"
#endif

#define RUNPATH "/divvy-runpath-"

/* The driver's handles stand in memory of ours, which the leak sanitizer does not search. */
__attribute__((visibility("default"))) const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void) {
    return "leak:libcuda-real.so.1";
}

static struct setting *made[4];
static unsigned made_count;

static void clean_up(void) {
    for (unsigned i = 0; i < made_count; i++) {
        DIR *files = made[i]->tenant.owner == getpid() ? opendir(made[i]->tenant.directory) : NULL;
        for (struct dirent *e; files != NULL && (e = readdir(files)) != NULL;) {
            unlinkat(dirfd(files), e->d_name, 0);
        }
        if (files != NULL) {
            closedir(files);
            rmdir(made[i]->tenant.directory);
        }
    }
}

const char *setting_path(const struct setting *setting, const char *file) {
    return tenant_path(&setting->tenant, file);
}

/* Copies the library with the directory in the place that the build left for it. */
void setting_install(const struct setting *setting, const char *from, const char *name) {
    struct stat status;
    int in = open(from, O_RDONLY | O_CLOEXEC);
    CHECK(in >= 0 && fstat(in, &status) == 0);
    size_t size = (size_t)status.st_size;
    char *bytes = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE, in, 0);
    CHECK(bytes != MAP_FAILED);
    char *place = memmem(bytes, size, RUNPATH, strlen(RUNPATH));
    CHECK(place != NULL);
    strcpy(place, setting->tenant.directory);
    int out = open(setting_path(setting, name), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0700);
    CHECK(out >= 0);
    CHECK_EQUAL(write(out, bytes, size), size);
    CHECK(close(out) == 0 && close(in) == 0 && munmap(bytes, size) == 0);
}

void setting_write(struct setting *setting, unsigned device, size_t field, const void *bytes,
                   size_t size) {
    size_t at = offsetof(dv_page_config, device) + device * sizeof(dv_page_device) + field;
    tenant_write(&setting->tenant, "config", at, bytes, size);
}

void setting_uuid(struct setting *setting, unsigned device, const uint8_t uuid[16]) {
    setting_write(setting, device, offsetof(dv_page_device, uuid), uuid, 16);
}

void setting_make(struct setting *setting, unsigned gpus, uint64_t limit, const char *driver) {
    uint64_t context = BLOCK;
    memset(setting, 0, sizeof *setting);
    tenant_make(&setting->tenant, gpus, limit);
    for (unsigned i = 0; i < gpus; i++) {
        setting_write(setting, i, offsetof(dv_page_device, context_bytes), &context,
                      sizeof context);
    }
    if (made_count == 0) {
        atexit(clean_up);
    }
    made[made_count++] = setting;
    setting_install(setting, LIBRARY_UNDER_TEST, "libcuda.so.1");
    CHECK(symlink(driver != NULL ? driver : TEST_DRIVER,
                  setting_path(setting, "libcuda-real.so.1")) == 0);
}

void setting_open(struct setting *setting) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    /* A sanitizer's dlopen ignores where the library that calls it says that others lie. */
    dlopen(setting_path(setting, "libnvidia-ml.so.1"), RTLD_NOW | RTLD_LOCAL);
#endif
    setting->library = dlopen(setting_path(setting, "libcuda.so.1"), RTLD_NOW | RTLD_LOCAL);
    if (setting->library == NULL) {
        fprintf(stderr, "%s\n", dlerror());
    }
    CHECK(setting->library != NULL);
    setting->driver = setting_real(setting, "fake_driver");
    dv_share_open(setting->tenant.directory, &setting->share, NULL);
}

void *setting_function(const struct setting *setting, const char *name) {
    void *function = dlsym(setting->library, name);
    CHECK(function != NULL);
    return function;
}

void *setting_real(const struct setting *setting, const char *name) {
    (void)setting;
    void *real = dlopen("libcuda-real.so.1", RTLD_NOW | RTLD_NOLOAD);
    CHECK(real != NULL);
    return dlsym(real, name);
}

uint64_t setting_used(const struct setting *setting) {
    return used_bytes(setting->share, 0);
}

uint64_t setting_overhead(const struct setting *setting) {
    dv_usage_t usage;
    CHECK(dv_usage(setting->share, 0, &usage));
    return usage.overhead;
}

CUcontext setting_context(struct setting *setting) {
    CUcontext context;
    CHECK_EQUAL(CUDA(setting, cuInit)(0), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(setting, cuCtxCreate_v2)(&context, 0, 0), CUDA_SUCCESS);
    return context;
}
