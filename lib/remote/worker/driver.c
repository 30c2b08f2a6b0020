/* The driver, found by its names as any program finds it: in a share it is our library that is found, and what that lets
 * through. */
#include "remote/worker/state.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

/* The first that tells where the parameters of a kernel lie (cuFuncGetParamInfo). */
#define OLDEST 12040

static void *library;

static void *find(const char *name) {
    return library ? dlsym(library, name) : NULL;
}

static CUresult refuse_init(unsigned flags) {
    (void)flags;
    return CUDA_ERROR_SYSTEM_DRIVER_MISMATCH;
}

/* An older driver serves nothing but its refusal, so that the program learns of it from its own call. */
static void judge_version(struct remote_cuda_driver *cuda, char why[REMOTE_WHY_BYTES]) {
    int version = 0;

    if (cuda->cuDriverGetVersion) {
        cuda->cuDriverGetVersion(&version);
    }
    if (version < OLDEST || !cuda->cuFuncGetParamInfo) {
        snprintf(why, REMOTE_WHY_BYTES,
                 "the driver here is of CUDA %d.%d, and programs of another machine need one of "
                 "%d.%d or later",
                 version / 1000, version % 1000 / 10, OLDEST / 1000, OLDEST % 1000 / 10);
        cuda->cuInit = refuse_init;
    }
}

bool remote_driver_load(struct remote_cuda_driver *cuda, struct remote_nvml_driver *nvml,
                        char why[REMOTE_WHY_BYTES]) {
    why[0] = 0;
    library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    remote_nvml_driver_find(nvml, find);
    library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        const char *said = dlerror();

        snprintf(why, REMOTE_WHY_BYTES, "cannot load the driver: %s",
                 said ? said : "nobody says why");
        return false;
    }
    remote_cuda_driver_find(cuda, find);
    judge_version(cuda, why);
    return true;
}
