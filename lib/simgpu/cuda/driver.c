/* The driver's state in a process, its locks and its devices. */
#define _GNU_SOURCE
#include "simgpu/cuda/process.h"

#include <time.h>

struct driver sg_driver = {
    .memory = PTHREAD_MUTEX_INITIALIZER,
    .work = PTHREAD_MUTEX_INITIALIZER,
    .contexts = {&sg_driver.contexts, &sg_driver.contexts},
};

unsigned long long sg_new_id(void) {
    return __atomic_add_fetch(&sg_driver.next_id, 1, __ATOMIC_RELAXED);
}

void sg_memory_lock(void) {
    pthread_mutex_lock(&sg_driver.memory);
}

void sg_memory_unlock(void) {
    pthread_mutex_unlock(&sg_driver.memory);
}

void sg_work_lock(void) {
    pthread_mutex_lock(&sg_driver.work);
}

void sg_work_unlock(void) {
    pthread_mutex_unlock(&sg_driver.work);
}

CUresult sg_ready(void) {
    switch (__atomic_load_n(&sg_driver.state, __ATOMIC_ACQUIRE)) {
    case DRIVER_UP:
        return CUDA_SUCCESS;
    case DRIVER_ENDED:
        return CUDA_ERROR_DEINITIALIZED;
    default: /* also after fork: the driver does not survive it */
        return CUDA_ERROR_NOT_INITIALIZED;
    }
}

struct device *sg_device(CUdevice ordinal) {
    return ordinal >= 0 && ordinal < sg_driver.device_count ? &sg_driver.devices[ordinal] : NULL;
}

struct device *sg_device_of_gpu(uint32_t gpu) {
    for (int i = 0; i < sg_driver.device_count; i++) {
        if (sg_driver.devices[i].gpu == gpu) {
            return &sg_driver.devices[i];
        }
    }
    return NULL;
}

void sg_burn(uint64_t ns) {
    struct timespec now;
    uint64_t end = 0, at;

    if (ns == 0) {
        return;
    }
    do {
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
        at = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
        if (!end) {
            end = at + ns;
        }
    } while (at < end);
}
