/* The interfaces with 32-bit addresses. */
#include "simgpu/cuda/test/cuda.h"

#include <string.h>

int main(void) {
    CUdeviceptr_v1 a, base;
    unsigned pitch, bytes, free_bytes, total;
    char text[100], back[100];
    CUDA_MEMCPY2D_v1 copy = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                             .dstMemoryType = CU_MEMORYTYPE_HOST,
                             .dstHost = back,
                             .dstPitch = 10,
                             .WidthInBytes = 10,
                             .Height = 2};

    cuda_start(NULL);
    OK(cuMemGetInfo(&free_bytes, &total));
    CHECK_EQUAL(total, GPU_BYTES - GPU_RESERVED);
    OK(cuMemAlloc(&a, 1000));
    CHECK_EQUAL(cuda_true(SG_LINEAR), BLOCK);
    memset(text, 'x', sizeof text);
    OK(cuMemcpyHtoD(a, text, sizeof text));
    OK(cuMemcpyDtoH(back, a, sizeof back));
    CHECK(memcmp(text, back, sizeof text) == 0);
    OK(cuMemGetAddressRange(&base, &bytes, a + 50));
    CHECK(base == a && bytes == 1000);
    OK(cuMemFree(a));
    FAILS(cuMemFree(a), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemAllocPitch(&a, &pitch, 10, 20, 4));
    CHECK_EQUAL(pitch, 512);
    OK(cuMemsetD2D8(a, pitch, 'y', 10, 20));
    copy.srcDevice = a;
    copy.srcPitch = pitch;
    copy.srcY = 18;
    OK(cuMemcpy2D(&copy));
    CHECK(back[0] == 'y' && back[19] == 'y' && back[20] == 'x');
    /* The newer interfaces take the memory too. */
    OK(cuMemFree_v2(a));
    CHECK_EQUAL(cuda_true(SG_LINEAR), 0);
    return 0;
}
