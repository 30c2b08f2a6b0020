/* A program that shows itself the second of its two GPUs, and has used NVML before, which numbers
 * them otherwise: the GPU that it uses is the one that is charged and limited. */
#define _GNU_SOURCE
#include "cuda/test/sim.h"

#include <dlfcn.h>
#include <stdlib.h>

#define LIMIT (64 * MIB)

static struct setting s;

int main(void) {
    CUcontext context;
    CUdeviceptr address;
    CUuuid uuid;
    size_t available, total;
    int count;
    uint64_t first = 512 * MIB;
    sim_make_closed(&s, 2, LIMIT);
    setting_write(&s, 0, offsetof(dv_page_device, limit), &first, sizeof first);
    setenv("CUDA_VISIBLE_DEVICES", "1", 1);

    void *nvml = dlopen(setting_path(&s, "libnvidia-ml.so.1"), RTLD_NOW);
    CHECK(nvml != NULL);
    __extension__ int (*init)(void) = (int (*)(void))dlsym(nvml, "nvmlInit_v2");
    CHECK(init != NULL && init() == 0);

    setting_open(&s);
    CHECK_EQUAL(CUDA(&s, cuInit)(0), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuDeviceGetCount)(&count), CUDA_SUCCESS);
    CHECK_EQUAL(count, 1);
    CHECK_EQUAL(CUDA(&s, cuDeviceGetUuid)(&uuid, 0), CUDA_SUCCESS);
    CHECK_EQUAL(uuid.bytes[0], 2);
    CHECK_EQUAL(CUDA(&s, cuCtxCreate_v2)(&context, 0, 0), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuMemGetInfo_v2)(&available, &total), CUDA_SUCCESS);
    CHECK_EQUAL(total, LIMIT);
    CHECK_EQUAL(available, LIMIT - SIM_CONTEXT);
    while (CUDA(&s, cuMemAlloc_v2)(&address, 8 * MIB) == CUDA_SUCCESS) {
    }
    CHECK_EQUAL(CUDA(&s, cuMemAlloc_v2)(&address, 4 * MIB), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuMemGetInfo_v2)(&available, &total), CUDA_SUCCESS);
    CHECK_EQUAL(available, 0);
    CHECK_EQUAL(used_bytes(s.share, 0), 0);
    CHECK_EQUAL(used_bytes(s.share, 1), LIMIT);
    CHECK_EQUAL(sim_used(&s, 0), 0);
    CHECK_EQUAL(sim_used(&s, 1), LIMIT);
    return 0;
}
