/* Arrays and mipmapped arrays. */
#include "simgpu/cuda/test/cuda.h"

#include <string.h>

static void check_sizes(void) {
    CUDA_ARRAY_DESCRIPTOR flat = {1000, 700, CU_AD_FORMAT_FLOAT, 2}, back;
    CUDA_ARRAY3D_DESCRIPTOR deep = {64, 64, 64, CU_AD_FORMAT_UNSIGNED_INT8, 4, 0};
    CUDA_ARRAY_MEMORY_REQUIREMENTS needs;
    CUarray a;

    OK(cuArrayCreate_v2(&a, &flat));
    CHECK_EQUAL(cuda_true(SG_ARRAY), 6 * MIB); /* 5,600,000 bytes in blocks */
    OK(cuArrayGetDescriptor_v2(&back, a));
    CHECK(memcmp(&back, &flat, sizeof back) == 0);
    FAILS(cuArrayGetMemoryRequirements(&needs, a, 0), CUDA_ERROR_INVALID_VALUE);
    OK(cuArrayDestroy(a));
    FAILS(cuArrayDestroy(a), CUDA_ERROR_INVALID_HANDLE);
    OK(cuArray3DCreate_v2(&a, &deep));
    CHECK_EQUAL(cuda_true(SG_ARRAY), 2 * MIB);
    OK(cuArrayDestroy(a));
    deep.Flags = CUDA_ARRAY3D_DEFERRED_MAPPING;
    OK(cuArray3DCreate_v2(&a, &deep));
    CHECK_EQUAL(cuda_true(SG_ARRAY), 0);
    OK(cuArrayGetMemoryRequirements(&needs, a, 0));
    CHECK_EQUAL(needs.size, MIB);
    OK(cuArrayDestroy(a));
    flat.NumChannels = 3;
    FAILS(cuArrayCreate_v2(&a, &flat), CUDA_ERROR_INVALID_VALUE);
    flat = (CUDA_ARRAY_DESCRIPTOR){60000, 60000, CU_AD_FORMAT_FLOAT, 4};
    FAILS(cuArrayCreate_v2(&a, &flat), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQUAL(cuda_true(SG_ARRAY), 0);
}

static void check_copies(void) {
    CUDA_ARRAY_DESCRIPTOR what = {16, 4, CU_AD_FORMAT_UNSIGNED_INT16, 1};
    unsigned short rows[4][16], back[4][16];
    CUarray a, b;

    for (int i = 0; i < 64; i++) {
        rows[i / 16][i % 16] = (unsigned short)(i * 3);
    }
    OK(cuArrayCreate_v2(&a, &what));
    OK(cuArrayCreate_v2(&b, &what));
    CUDA_MEMCPY2D copy = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                          .srcHost = rows,
                          .srcPitch = 32,
                          .dstMemoryType = CU_MEMORYTYPE_ARRAY,
                          .dstArray = a,
                          .WidthInBytes = 32,
                          .Height = 4};
    OK(cuMemcpy2D_v2(&copy));
    copy = (CUDA_MEMCPY2D){.srcMemoryType = CU_MEMORYTYPE_ARRAY,
                           .srcArray = a,
                           .srcXInBytes = 4,
                           .srcY = 1,
                           .dstMemoryType = CU_MEMORYTYPE_ARRAY,
                           .dstArray = b,
                           .WidthInBytes = 8,
                           .Height = 2};
    OK(cuMemcpy2D_v2(&copy));
    copy.Height = 5;
    FAILS(cuMemcpy2D_v2(&copy), CUDA_ERROR_INVALID_VALUE);
    copy = (CUDA_MEMCPY2D){.srcMemoryType = CU_MEMORYTYPE_ARRAY,
                           .srcArray = b,
                           .dstMemoryType = CU_MEMORYTYPE_HOST,
                           .dstHost = back,
                           .dstPitch = 32,
                           .WidthInBytes = 32,
                           .Height = 4};
    OK(cuMemcpy2D_v2(&copy));
    CHECK_EQUAL(back[0][0], rows[1][2]);
    CHECK_EQUAL(back[1][3], rows[2][5]);
    CHECK_EQUAL(back[1][4], 0);
    OK(cuMemcpyAtoH_v2(back, a, 6, 4));
    CHECK_EQUAL(back[0][0], rows[0][3]);
    OK(cuArrayDestroy(a));
    OK(cuArrayDestroy(b));
}

static void check_mipmaps(void) {
    CUDA_ARRAY3D_DESCRIPTOR what = {1024, 1024, 0, CU_AD_FORMAT_UNSIGNED_INT8, 4, 0}, level_is;
    CUmipmappedArray mipmap;
    CUarray level, same;
    unsigned char row[2048];

    OK(cuMipmappedArrayCreate(&mipmap, &what, 99));
    /* 4 MiB and a third of it, in blocks */
    CHECK_EQUAL(cuda_true(SG_ARRAY), 6 * MIB);
    OK(cuMipmappedArrayGetLevel(&level, mipmap, 1));
    OK(cuMipmappedArrayGetLevel(&same, mipmap, 1));
    CHECK(level == same);
    OK(cuArray3DGetDescriptor_v2(&level_is, level));
    CHECK_EQUAL(level_is.Width, 512);
    memset(row, 9, sizeof row);
    OK(cuMemcpyHtoA_v2(level, 0, row, sizeof row));
    FAILS(cuArrayDestroy(level), CUDA_ERROR_ARRAY_IS_MAPPED);
    FAILS(cuMipmappedArrayGetLevel(&level, mipmap, 11), CUDA_ERROR_INVALID_VALUE);
    OK(cuMipmappedArrayDestroy(mipmap));
    FAILS(cuMipmappedArrayDestroy(mipmap), CUDA_ERROR_INVALID_HANDLE);
    CHECK_EQUAL(cuda_true(SG_ARRAY), 0);
}

/* Nothing is copied from and to places that there are not, nor anything beyond an array's end. */
static void check_bounds(void) {
    CUDA_ARRAY_DESCRIPTOR what = {16, 0, CU_AD_FORMAT_UNSIGNED_INT8, 1};
    CUDA_MEMCPY3D copy = {.srcMemoryType = CU_MEMORYTYPE_ARRAY,
                          .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                          .WidthInBytes = 16,
                          .Height = 1,
                          .Depth = 1};
    CUdeviceptr device;
    CUarray a;

    OK(cuArrayCreate_v2(&a, &what));
    OK(cuMemAlloc_v2(&device, 64));
    OK(cuMemcpyAtoD_v2(0, NULL, 0, 0));
    OK(cuMemcpyDtoA_v2(NULL, 5, 0, 0));
    OK(cuMemcpyAtoA_v2(NULL, 0, a, 0, 0));
    FAILS(cuMemcpyAtoD_v2(device, a, (size_t)-8, 16), CUDA_ERROR_INVALID_VALUE);
    FAILS(cuMemcpyDtoA_v2(a, 8, device, (size_t)-1), CUDA_ERROR_INVALID_VALUE);
    FAILS(cuMemcpyAtoD_v2(device, a, 1, 16), CUDA_ERROR_INVALID_VALUE);
    copy.srcArray = a;
    copy.dstDevice = device;
    OK(cuMemcpy3D_v2(&copy));
    copy.srcY = (size_t)-1;
    copy.Height = 2;
    FAILS(cuMemcpy3D_v2(&copy), CUDA_ERROR_INVALID_VALUE);
    copy.srcY = 0;
    copy.srcZ = (size_t)-1;
    copy.Height = 1;
    copy.Depth = 2;
    FAILS(cuMemcpy3D_v2(&copy), CUDA_ERROR_INVALID_VALUE);
    copy = (CUDA_MEMCPY3D){.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                           .srcDevice = device,
                           .srcPitch = (size_t)1 << 63,
                           .dstMemoryType = CU_MEMORYTYPE_HOST,
                           .dstHost = &what,
                           .WidthInBytes = 1,
                           .Height = 3,
                           .Depth = 1};
    FAILS(cuMemcpy3D_v2(&copy), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemcpyDtoH_v2(&what, device, 8));
    OK(cuMemFree_v2(device));
    OK(cuArrayDestroy(a));
}

int main(void) {
    cuda_start(NULL);
    check_sizes();
    check_copies();
    check_bounds();
    check_mipmaps();
    return 0;
}
