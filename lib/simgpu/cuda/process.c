/* Start, end and fork of the driver in a process. */
#define _GNU_SOURCE
#include "simgpu/cuda/checkpoint.h"

#include <stdlib.h>

static pthread_mutex_t starting = PTHREAD_MUTEX_INITIALIZER;

/* The child has neither the parent's identity nor its memory; every call says "not initialised". */
static void fork_child(void) {
    if (sg_driver.state != DRIVER_UP) {
        return;
    }
    sg_driver.state = DRIVER_FORKED;
    pthread_mutex_init(&sg_driver.memory, NULL);
    pthread_mutex_init(&sg_driver.work, NULL);
    queue_fork_child();
    gate_fork_child();
    sg_abandon(&sg_driver.instance);
}

__attribute__((constructor)) static void loaded(void) {
    pthread_atfork(NULL, NULL, fork_child);
}

/* Runs after the program's own exit handlers; later calls from destructors get DEINITIALIZED. */
__attribute__((destructor)) static void unloaded(void) {
    int up = DRIVER_UP;

    __atomic_compare_exchange_n(&sg_driver.state, &up, DRIVER_ENDED, false, __ATOMIC_ACQ_REL,
                                __ATOMIC_RELAXED);
}

static CUresult start_device(uint32_t gpu, const sim_gpu *model) {
    struct device *device = &sg_driver.devices[sg_driver.device_count];

    *device = (struct device){.gpu = gpu,
                              .ordinal = sg_driver.device_count,
                              .model = model,
                              .usable = model->multiprocessors};
    sg_driver.device_count++;
    return pools_start(device);
}

static CUresult start_devices(const char *dir) {
    uint32_t gpus[SG_GPUS_MAX];
    struct sg_sight sight = {.visible = getenv("CUDA_VISIBLE_DEVICES"),
                             .order = getenv("CUDA_DEVICE_ORDER"),
                             .denied = sg_denied(sg_driver.machine, dir),
                             .hidden = sg_hidden(&sg_driver.instance, sg_driver.machine, dir)};
    /* MIG user guide, CUDA MPS: a server's GPU may be an instance, which is then its clients'. */
    const sim_gpu *part =
        mps_is_client() && !mps_place() ? NULL : instance_enter(&sight, dir, mps_place(), &gpus[0]);

    sight.hidden |= mps_hidden();
    unsigned n = part ? 1 : sg_visible(sg_driver.machine, &sight, gpus);
    sg_driver.device_count = 0;
    for (unsigned i = 0; i < n; i++) {
        SG_TRY(start_device(gpus[i], part ? part : &sg_driver.machine->gpus[gpus[i]]));
    }
    mps_limit();
    for (unsigned i = 0; i < n; i++) {
        const struct device *device = &sg_driver.devices[i];
        sg_channel_start(&sg_driver.instance, device->gpu, device->model->multiprocessors,
                         device->usable);
    }
    return n ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE;
}

static CUresult start(void) {
    char dir[SG_PATH_BYTES], tag[SG_TAG_BYTES];
    size_t bytes;

    if (sg_find(&sg_driver, dir, tag) != 0 || sg_open(&sg_driver.instance, dir, tag, true) != 0) {
        return CUDA_ERROR_NO_DEVICE;
    }
    sg_driver.machine = sg_state_machine(&sg_driver.instance, &bytes);
    CUresult result = CUDA_ERROR_SYSTEM_DRIVER_MISMATCH;
    if (bytes == sizeof *sg_driver.machine && sg_driver.machine->magic == SIM_MAGIC &&
        sg_driver.machine->version == SIM_VERSION &&
        sg_driver.machine->gpu_count == sg_driver.instance.state->gpu_count) {
        result = pages_start() ? mps_join() : CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (result == CUDA_SUCCESS) {
        result = start_devices(dir);
    }
    if (result == CUDA_SUCCESS) {
        result = checkpoint_start();
    }
    if (result != CUDA_SUCCESS) {
        sg_close(&sg_driver.instance);
    }
    return result;
}

CUresult cuInit(unsigned int flags) {
    CUresult result = sg_ready();

    if (flags) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (result == CUDA_SUCCESS || sg_driver.state != DRIVER_DOWN) {
        return result;
    }
    pthread_mutex_lock(&starting);
    if (sg_driver.state == DRIVER_DOWN) {
        result = start();
        if (result == CUDA_SUCCESS) {
            __atomic_store_n(&sg_driver.state, DRIVER_UP, __ATOMIC_RELEASE);
        }
    } else {
        result = sg_ready();
    }
    pthread_mutex_unlock(&starting);
    return result;
}

/* Unlike every other call this one is allowed before cuInit. */
CUresult cuDriverGetVersion(int *version) {
    char dir[SG_PATH_BYTES], tag[SG_TAG_BYTES];
    struct sg_instance visit;
    size_t bytes;

    SG_REQUIRE(version, CUDA_ERROR_INVALID_VALUE);
    if (sg_ready() == CUDA_SUCCESS) {
        *version = (int)sg_driver.machine->cuda_version;
        return CUDA_SUCCESS;
    }
    if (sg_find(&sg_driver, dir, tag) != 0 || sg_open(&visit, dir, tag, false) != 0) {
        return CUDA_ERROR_NO_DEVICE;
    }
    const sim_machine *machine = sg_state_machine(&visit, &bytes);
    bool known = bytes == sizeof *machine && machine->magic == SIM_MAGIC;
    if (known) {
        *version = (int)machine->cuda_version;
    }
    sg_close(&visit);
    return known ? CUDA_SUCCESS : CUDA_ERROR_SYSTEM_DRIVER_MISMATCH;
}

CUresult sg_claimed_version(int *version) {
    static int claimed; /* atomic */

    *version = __atomic_load_n(&claimed, __ATOMIC_RELAXED);
    if (*version == 0) {
        SG_TRY(cuDriverGetVersion(version));
        __atomic_store_n(&claimed, *version, __ATOMIC_RELAXED);
    }
    return CUDA_SUCCESS;
}
