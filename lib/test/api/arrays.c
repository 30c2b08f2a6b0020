/* Arrays, mipmapped arrays, and textures of them. */
#include "test/api/api.h"

#include <string.h>

static void check_copies(CUarray array, unsigned short rows[4][16]) {
    unsigned short back[4][16];
    CUdeviceptr device = 0;
    CUDA_MEMCPY2D up = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                        .srcHost = rows,
                        .srcPitch = 32,
                        .dstMemoryType = CU_MEMORYTYPE_ARRAY,
                        .dstArray = array,
                        .WidthInBytes = 32,
                        .Height = 4};
    CUDA_MEMCPY2D part = {.srcMemoryType = CU_MEMORYTYPE_ARRAY,
                          .srcArray = array,
                          .srcXInBytes = 4,
                          .srcY = 1,
                          .dstMemoryType = CU_MEMORYTYPE_HOST,
                          .dstHost = back,
                          .dstPitch = 32,
                          .WidthInBytes = 8,
                          .Height = 2};

    OK(cuMemcpy2D_v2, &up);
    memset(back, 0, sizeof back);
    OK(cuMemcpy2D_v2, &part);
    TRUE(memcmp(back[0], &rows[1][2], 8) == 0 && memcmp(back[1], &rows[2][2], 8) == 0);
    TRUE(back[0][4] == 0 && back[2][0] == 0);
    OK(cuMemAlloc_v2, &device, 256);
    OK(cuMemcpyAtoD_v2, device, array, 0, 32);
    OK(cuMemcpyDtoH_v2, back, device, 32);
    TRUE(memcmp(back, rows, 32) == 0);
    OK(cuMemsetD8_v2, device, 0x55, 32);
    OK(cuMemcpyDtoA_v2, array, 4, device, 8);
    OK(cuMemcpyAtoH_v2, back, array, 0, 16);
    TRUE(back[0][1] == rows[0][1] && back[0][2] == 0x5555 && back[0][6] == rows[0][6]);
    OK(cuMemcpyHtoA_v2, array, 0, rows, 32);
    OK(cuMemcpyAtoH_v2, back, array, 6, 4);
    TRUE(back[0][0] == rows[0][3] && back[0][1] == rows[0][4]);
    part.Height = 5;
    INVALID(cuMemcpy2D_v2, &part);
    part.Height = 2;
    part.srcXInBytes = 100;
    INVALID(cuMemcpy2D_v2, &part);
    INVALID(cuMemcpyAtoD_v2, device, array, (size_t)-8, 16);
    INVALID(cuMemcpyHtoA_v2, array, 0, NULL, 8);
    OK(cuMemFree_v2, device);
}

void api_case_arrays(void) {
    static const CUarray_format formats[] = {
        CU_AD_FORMAT_UNSIGNED_INT8, CU_AD_FORMAT_UNSIGNED_INT16, CU_AD_FORMAT_UNSIGNED_INT32,
        CU_AD_FORMAT_SIGNED_INT8,   CU_AD_FORMAT_SIGNED_INT16,   CU_AD_FORMAT_SIGNED_INT32,
        CU_AD_FORMAT_HALF,          CU_AD_FORMAT_FLOAT};
    CUDA_ARRAY_DESCRIPTOR flat = {16, 4, CU_AD_FORMAT_UNSIGNED_INT16, 1}, got;
    CUDA_ARRAY3D_DESCRIPTOR deep = {8, 8, 8, CU_AD_FORMAT_FLOAT, 4, 0}, deep_got;
    unsigned short rows[4][16];
    CUarray a = NULL, b = NULL;

    api_begin();
    api_pattern((unsigned char *)rows, sizeof rows, 5);
    for (size_t i = 0; i < COUNT(formats); i++) {
        for (unsigned channels = 1; channels <= 4; channels *= 2) {
            CUDA_ARRAY_DESCRIPTOR what = {100, i % 2 ? 0 : 50, formats[i], channels};
            OK(cuArrayCreate_v2, &b, &what);
            memset(&got, 0xff, sizeof got);
            OK(cuArrayGetDescriptor_v2, &got, b);
            TRUE(got.Width == 100 && got.Height == what.Height && got.Format == formats[i]);
            SAME(got.NumChannels, channels);
            OK(cuArrayDestroy, b);
        }
    }
    OK(cuArrayCreate_v2, &a, &flat);
    check_copies(a, rows);
    OK(cuArray3DGetDescriptor_v2, &deep_got, a);
    TRUE(deep_got.Width == 16 && deep_got.Height == 4 && deep_got.Depth == 0);
    OK(cuArrayDestroy, a);
    ANSWERS(CUDA_ERROR_INVALID_HANDLE, cuArrayDestroy, a);
    ANSWERS(CUDA_ERROR_INVALID_HANDLE, cuArrayGetDescriptor_v2, &got, a);
    OK(cuArray3DCreate_v2, &a, &deep);
    OK(cuArray3DGetDescriptor_v2, &deep_got, a);
    TRUE(deep_got.Depth == 8 && deep_got.NumChannels == 4 && deep_got.Flags == 0);
    OK(cuArrayDestroy, a);
    flat.NumChannels = 3;
    INVALID(cuArrayCreate_v2, &a, &flat);
    flat = (CUDA_ARRAY_DESCRIPTOR){0, 4, CU_AD_FORMAT_FLOAT, 1};
    INVALID(cuArrayCreate_v2, &a, &flat);
    flat = (CUDA_ARRAY_DESCRIPTOR){16, 4, (CUarray_format)0x77, 1};
    INVALID(cuArrayCreate_v2, &a, &flat);
    flat = (CUDA_ARRAY_DESCRIPTOR){60000, 60000, CU_AD_FORMAT_FLOAT, 4};
    CUresult large = CU(cuArrayCreate_v2)(&a, &flat); /* some GPUs have room for it */
    TRUE(large == CUDA_SUCCESS || large == CUDA_ERROR_OUT_OF_MEMORY);
    if (large == CUDA_SUCCESS) {
        OK(cuArrayDestroy, a);
    }
    INVALID(cuArrayCreate_v2, NULL, &flat);
    INVALID(cuArrayCreate_v2, &a, NULL);
    INVALID(cuArray3DCreate_v2, &a, NULL);
}

void api_case_mipmaps(void) {
    CUDA_ARRAY3D_DESCRIPTOR what = {256, 128, 0, CU_AD_FORMAT_UNSIGNED_INT8, 4, 0}, got;
    CUmipmappedArray mipmap = NULL;
    CUarray level = NULL, same = NULL;
    unsigned char row[1024], back[1024];

    api_begin();
    OK(cuMipmappedArrayCreate, &mipmap, &what, 4);
    for (unsigned i = 0; i < 4; i++) {
        OK(cuMipmappedArrayGetLevel, &level, mipmap, i);
        OK(cuMipmappedArrayGetLevel, &same, mipmap, i);
        TRUE(level == same && level);
        OK(cuArray3DGetDescriptor_v2, &got, level);
        SAME(got.Width, 256u >> i);
        SAME(got.Height, 128u >> i);
        api_pattern(row, sizeof row, i);
        OK(cuMemcpyHtoA_v2, level, 0, row, 4 * (256u >> i));
        OK(cuMemcpyAtoH_v2, back, level, 0, 4 * (256u >> i));
        TRUE(memcmp(row, back, 4 * (256u >> i)) == 0);
    }
    INVALID(cuMipmappedArrayGetLevel, &level, mipmap, 4);
    INVALID(cuMipmappedArrayGetLevel, NULL, mipmap, 0);
    OK(cuMipmappedArrayDestroy, mipmap);
    ANSWERS(CUDA_ERROR_INVALID_HANDLE, cuMipmappedArrayDestroy, mipmap);
    INVALID(cuMipmappedArrayCreate, &mipmap, NULL, 4);
    INVALID(cuMipmappedArrayCreate, NULL, &what, 4);
}

/* As the interface lays them out: 144 and 104 bytes. */
void api_case_textures(void) {
    static union {
        struct {
            unsigned type; /* 0: an array; 2: linear memory */
            void *array;
        } of;
        uint64_t words[18];
    } resource, got;
    static uint64_t texture[13], texture_got[13];
    CUDA_ARRAY3D_DESCRIPTOR what = {16, 16, 0, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_SURFACE_LDST};
    CUarray array = NULL;
    CUtexObject object = 0;
    CUsurfObject surface = 0;

    api_begin();
    OK(cuArray3DCreate_v2, &array, &what);
    resource.of.array = array;
    OK(cuTexObjectCreate, &object, (const CUDA_RESOURCE_DESC *)&resource,
       (const CUDA_TEXTURE_DESC *)texture, NULL);
    TRUE(object != 0);
    SERVED(cuTexObjectGetResourceDesc, (CUDA_RESOURCE_DESC *)&got, object) {
        TRUE(got.of.type == 0 && got.of.array == array);
    }
    SERVED(cuTexObjectGetTextureDesc, (CUDA_TEXTURE_DESC *)texture_got, object) {
        TRUE(memcmp(texture_got, texture, 64) == 0);
    }
    OK(cuTexObjectDestroy, object);
    OK(cuSurfObjectCreate, &surface, (const CUDA_RESOURCE_DESC *)&resource);
    TRUE(surface != 0);
    memset(&got, 0, sizeof got);
    SERVED(cuSurfObjectGetResourceDesc, (CUDA_RESOURCE_DESC *)&got, surface) {
        TRUE(got.of.array == array);
    }
    OK(cuSurfObjectDestroy, surface);
    INVALID(cuTexObjectCreate, NULL, (const CUDA_RESOURCE_DESC *)&resource,
            (const CUDA_TEXTURE_DESC *)texture, NULL);
    INVALID(cuTexObjectCreate, &object, NULL, (const CUDA_TEXTURE_DESC *)texture, NULL);
    INVALID(cuSurfObjectCreate, &surface, NULL);
}
