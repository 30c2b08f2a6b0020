/* Threads that start, ask and end all at once: each gets the share's answers, whoever is first. */
#include "nvml/test/setting.h"

#include <pthread.h>

#define THREADS 8
#define ROUNDS 200

static struct setting setting;

static void *ask(void *unused) {
    (void)unused;
    CHECK_EQUAL(NVML(&setting, nvmlInit_v2)(), NVML_SUCCESS);
    for (int round = 0; round < ROUNDS; round++) {
        unsigned int count = 0;
        nvmlDevice_t device = NULL;
        nvmlMemory_t memory;
        CHECK_EQUAL(NVML(&setting, nvmlDeviceGetCount_v2)(&count), NVML_SUCCESS);
        CHECK_EQUAL(count, SHARE_GPUS);
        CHECK_EQUAL(NVML(&setting, nvmlDeviceGetHandleByIndex_v2)(0, &device), NVML_SUCCESS);
        CHECK(device == setting.gpu[1]);
        CHECK_EQUAL(NVML(&setting, nvmlDeviceGetMemoryInfo)(device, &memory), NVML_SUCCESS);
        CHECK_EQUAL(memory.total, LIMIT_GPU_1);
    }
    return NULL;
}

int main(void) {
    pthread_t threads[THREADS];
    setting_make(&setting);
    for (int at = 0; at < THREADS; at++) {
        CHECK(pthread_create(&threads[at], NULL, ask, NULL) == 0);
    }
    for (int at = 0; at < THREADS; at++) {
        CHECK(pthread_join(threads[at], NULL) == 0);
    }
    return 0;
}
