/* Loads modules at an even pace through our library, in front of the fake driver, and prints how
 * often the fake NVML was asked about a GPU: loads MODULES SECONDS. No agent measures. Not a test. */
#define _GNU_SOURCE
#include "cuda/test/nvml.h"
#include "cuda/test/setting.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

#ifndef TEST_NVML
#error "TEST_NVML names the fake NVML"
#endif

static struct setting s;

int main(int count, char **arguments) {
    unsigned modules = count > 2 ? (unsigned)atoi(arguments[1]) : 0;
    double seconds = count > 2 ? atof(arguments[2]) : 0;
    CUmodule module;

    if (modules == 0 || seconds <= 0) {
        fprintf(stderr, "usage: loads MODULES SECONDS\n");
        return 2;
    }
    setting_make(&s, 1, 64 * MIB, NULL);
    CHECK(symlink(TEST_NVML, setting_path(&s, "libnvidia-ml.so.1")) == 0);
    setting_open(&s);
    struct fake_nvml *nvml =
        dlsym(dlopen(setting_path(&s, "libnvidia-ml.so.1"), RTLD_NOW), "fake_nvml");
    CHECK(nvml != NULL);
    nvml->held = 10 * MIB;
    setting_context(&s);
    uint64_t begun = os_now_ns();
    nvml->questions = 0;
    for (unsigned i = 0; i < modules; i++) {
        uint64_t due = begun + (uint64_t)(seconds * 1e9 * i / modules), now = os_now_ns();
        usleep(now < due ? (unsigned)((due - now) / 1000) : 0);
        CHECK_EQUAL(CUDA(&s, cuModuleLoadData)(&module, ""), CUDA_SUCCESS);
    }
    printf("{\"questions\": %d, \"seconds\": %.3f}\n", nvml->questions,
           (double)(os_now_ns() - begun) / 1e9);
    return 0;
}
