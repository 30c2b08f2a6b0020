/* Copies of all shapes, whose bytes are compared with what the program computes. */
#include "test/api/api.h"

#include <stdlib.h>
#include <string.h>

#define ROOM (5 * MIB + 4096)
#define FAR (32 * MIB) /* farther than what is allocated */

void api_case_copies(void) {
    static const size_t sizes[] = {0, 1, 3, 64, 4095, 4096, 65536, 1000003, 5 * MIB + 1};
    unsigned char *from = malloc(FAR), *to = malloc(FAR);
    CUdeviceptr a = 0, b = 0;
    CUstream stream = NULL;

    api_begin();
    OK(cuMemAlloc_v2, &a, ROOM);
    OK(cuMemAlloc_v2, &b, ROOM);
    OK(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    for (size_t i = 0; i < COUNT(sizes); i++) {
        size_t n = sizes[i];
        api_pattern(from, ROOM, (unsigned)i);
        memset(to, 0xcc, ROOM);
        OK(cuMemcpyHtoD_v2, a + 3, from, n);
        OK(cuMemcpyDtoD_v2, b + 5, a + 3, n);
        OK(cuMemcpyDtoH_v2, to + 1, b + 5, n);
        TRUE(memcmp(to + 1, from, n) == 0 && to[0] == 0xcc && to[n + 1] == 0xcc);
        /* Pageable memory may be written over as soon as the call is back. */
        OK(cuMemcpyHtoDAsync_v2, b, from, n, stream);
        memset(from, 0x77, n);
        OK(cuMemcpyDtoDAsync_v2, a, b, n, stream);
        OK(cuMemcpyDtoHAsync_v2, to, a, n, stream);
        OK(cuStreamSynchronize, stream);
        api_pattern(from, ROOM, (unsigned)i);
        TRUE(memcmp(to, from, n) == 0);
        /* What kind of memory each side is, the driver finds out. */
        OK(cuMemcpy, b + 7, (uintptr_t)from, n);
        OK(cuMemcpyAsync, a, b + 7, n, stream);
        OK(cuStreamSynchronize, stream);
        memset(to, 0, ROOM);
        OK(cuMemcpy, (uintptr_t)to, a, n);
        TRUE(memcmp(to, from, n) == 0);
        OK(cuMemcpy, (uintptr_t)to, (uintptr_t)(from + 1), n);
        TRUE(memcmp(to, from + 1, n) == 0);
    }
    INVALID(cuMemcpyHtoD_v2, a, from, FAR);
    INVALID(cuMemcpyHtoD_v2, a + ROOM - 10, from, FAR);
    INVALID(cuMemcpyDtoH_v2, to, a + 1, FAR);
    INVALID(cuMemcpyDtoD_v2, b + 1, a, FAR);
    INVALID(cuMemcpyHtoD_v2, ABSENT, from, 1);
    INVALID(cuMemcpyDtoH_v2, to, ABSENT, 1);
    INVALID(cuMemcpyDtoD_v2, a, ABSENT, 1);
    INVALID(cuMemcpyHtoD_v2, a, NULL, 1);
    INVALID(cuMemcpyDtoH_v2, NULL, a, 1);
    OK(cuMemcpyHtoD_v2, a, NULL, 0);
    OK(cuMemFree_v2, a);
    INVALID(cuMemcpyHtoD_v2, a, from, 1);
    OK(cuMemFree_v2, b);
    free(from);
    free(to);
}

#define WIDTH 100u
#define HEIGHT 9u
static unsigned char host[HEIGHT][WIDTH], back[HEIGHT][WIDTH], want[HEIGHT][WIDTH];

/* A rectangle there, out of there into another place, and back; each row is where it must be. */
static void check_rectangle(CUdeviceptr a, size_t pitch, size_t x, size_t y, size_t width,
                            size_t height, unsigned how) {
    CUDA_MEMCPY2D up = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                        .srcHost = host,
                        .srcPitch = WIDTH,
                        .srcXInBytes = x,
                        .srcY = y,
                        .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                        .dstDevice = a,
                        .dstPitch = pitch,
                        .dstXInBytes = 2,
                        .dstY = 1,
                        .WidthInBytes = width,
                        .Height = height};
    CUDA_MEMCPY2D down = {.srcMemoryType = CU_MEMORYTYPE_UNIFIED,
                          .srcDevice = a,
                          .srcPitch = pitch,
                          .srcXInBytes = 2,
                          .srcY = 1,
                          .dstMemoryType = CU_MEMORYTYPE_HOST,
                          .dstHost = back,
                          .dstPitch = WIDTH,
                          .dstXInBytes = x,
                          .dstY = y,
                          .WidthInBytes = width,
                          .Height = height};
    memset(back, 0xaa, sizeof back);
    memset(want, 0xaa, sizeof want);
    for (size_t i = 0; i < height; i++) {
        memcpy(&want[y + i][x], &host[y + i][x], width);
    }
    switch (how) {
    case 0:
        OK(cuMemcpy2D_v2, &up);
        OK(cuMemcpy2D_v2, &down);
        break;
    case 1:
        OK(cuMemcpy2DUnaligned_v2, &up);
        OK(cuMemcpy2DUnaligned_v2, &down);
        break;
    default:
        OK(cuMemcpy2DAsync_v2, &up, NULL);
        OK(cuMemcpy2DAsync_v2, &down, NULL);
        OK(cuStreamSynchronize, NULL);
    }
    TRUE(memcmp(back, want, sizeof want) == 0);
}

void api_case_shapes(void) {
    CUdeviceptr a = 0;
    size_t pitch = 0;

    api_begin();
    OK(cuMemAllocPitch_v2, &a, &pitch, WIDTH + 10, HEIGHT + 1, 4);
    api_pattern(host[0], sizeof host, 1);
    for (unsigned how = 0; how < 3; how++) {
        check_rectangle(a, pitch, 0, 0, WIDTH, HEIGHT, how);
        check_rectangle(a, pitch, 7, 2, 50, 3, how);
        check_rectangle(a, pitch, 99, 8, 1, 1, how);
        check_rectangle(a, pitch, 0, 4, 1, 5, how);
    }
    CUDA_MEMCPY2D copy = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                          .srcHost = host,
                          .srcPitch = WIDTH,
                          .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                          .dstDevice = a,
                          .dstPitch = pitch,
                          .WidthInBytes = WIDTH,
                          .Height = HEIGHT};
    CUDA_MEMCPY2D wrong = copy;
    wrong.srcPitch = WIDTH - 1;
    INVALID(cuMemcpy2D_v2, &wrong);
    wrong = copy;
    wrong.dstPitch = 10;
    INVALID(cuMemcpy2D_v2, &wrong);
    wrong = copy;
    wrong.Height = 100000;
    INVALID(cuMemcpy2D_v2, &wrong);
    wrong = copy;
    wrong.dstDevice = ABSENT;
    INVALID(cuMemcpy2D_v2, &wrong);
    wrong = copy;
    wrong.srcMemoryType = (CUmemorytype)9;
    INVALID(cuMemcpy2D_v2, &wrong);
    wrong = copy;
    wrong.dstMemoryType = (CUmemorytype)0;
    INVALID(cuMemcpy2D_v2, &wrong);
    wrong = copy;
    wrong.dstXInBytes = SIZE_MAX - 8;
    INVALID(cuMemcpy2D_v2, &wrong);
    wrong = copy;
    wrong.WidthInBytes = 0;
    OK(cuMemcpy2D_v2, &wrong);
    wrong = copy;
    wrong.Height = 0;
    OK(cuMemcpy2D_v2, &wrong);
}

static void check_wrong_boxes(const CUDA_MEMCPY3D *right) {
    CUDA_MEMCPY3D up = *right;

    up.Depth = 100000;
    INVALID(cuMemcpy3D_v2, &up);
    up.Depth = 4;
    up.srcPitch = 7;
    INVALID(cuMemcpy3D_v2, &up);
    up.srcPitch = 8;
    up.dstDevice = ABSENT;
    INVALID(cuMemcpy3D_v2, &up);
    up.dstDevice = right->dstDevice;
    up.dstPitch = (size_t)1 << 62;
    INVALID(cuMemcpy3D_v2, &up);
}

void api_case_boxes(void) {
    static unsigned char box[4][3][8], out[4][3][8];
    CUdeviceptr a = 0;
    CUDA_MEMCPY3D up = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                        .srcHost = box,
                        .srcPitch = 8,
                        .srcHeight = 3,
                        .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                        .dstXInBytes = 5,
                        .dstY = 1,
                        .dstZ = 1,
                        .dstPitch = 1024,
                        .dstHeight = 16,
                        .WidthInBytes = 8,
                        .Height = 3,
                        .Depth = 4};
    CUDA_MEMCPY3D down = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                          .srcXInBytes = 5,
                          .srcY = 1,
                          .srcZ = 1,
                          .srcPitch = 1024,
                          .srcHeight = 16,
                          .dstMemoryType = CU_MEMORYTYPE_HOST,
                          .dstHost = out,
                          .dstPitch = 8,
                          .dstHeight = 3,
                          .WidthInBytes = 8,
                          .Height = 3,
                          .Depth = 4};

    api_begin();
    OK(cuMemAlloc_v2, &a, MIB);
    OK(cuMemsetD8_v2, a, 0xbb, MIB);
    up.dstDevice = down.srcDevice = a;
    for (unsigned i = 0; i < 4; i++) {
        api_pattern(box[0][0], sizeof box, i);
        memset(out, 0, sizeof out);
        if (i % 2) {
            OK(cuMemcpy3DAsync_v2, &up, NULL);
            OK(cuMemcpy3DAsync_v2, &down, NULL);
            OK(cuStreamSynchronize, NULL);
        } else {
            OK(cuMemcpy3D_v2, &up);
            OK(cuMemcpy3D_v2, &down);
        }
        TRUE(memcmp(box, out, sizeof box) == 0);
    }
    unsigned char row[32];
    OK(cuMemcpyDtoH_v2, row, a + (16 + 1) * 1024, sizeof row);
    TRUE(row[4] == 0xbb && row[5] == box[0][0][0] && row[12] == box[0][0][7] && row[13] == 0xbb);
    OK(cuMemcpyDtoH_v2, row, a + (4 * 16 + 3) * 1024, sizeof row);
    TRUE(row[5] == box[3][2][0] && row[12] == box[3][2][7]);
    check_wrong_boxes(&up);
}

void api_case_batches(void) {
    CUdeviceptr a = 0, to[2], from[2];
    size_t bytes[2] = {100, 50}, first = 0, failed = 9;
    CUmemcpyAttributes attributes = {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM};
    unsigned char text[100], out[100];
    int version = 0;
    CUstream s = NULL;

    api_begin();
    OK(cuDriverGetVersion, &version);
    if (version < 12080) {
        return;
    }
    OK(cuStreamCreate, &s, CU_STREAM_NON_BLOCKING);
    OK(cuMemAlloc_v2, &a, 1000);
    memset(text, 'q', sizeof text);
    to[0] = a;
    from[0] = (uintptr_t)text;
    to[1] = a + 500;
    from[1] = a;
    OK(cuMemcpyBatchAsync, to, from, bytes, 2, &attributes, &first, 1, &failed, s);
    OK(cuStreamSynchronize, s);
    TRUE(api_is_filled(a, 'q', 100) && api_is_filled(a + 500, 'q', 50));
    INVALID(cuMemcpyBatchAsync, to, from, bytes, 2, &attributes, &first, 1, &failed, NULL);
    INVALID(cuMemcpyBatchAsync, to, from, bytes, 0, &attributes, &first, 1, &failed, s);
    INVALID(cuMemcpyBatchAsync, NULL, from, bytes, 2, &attributes, &first, 1, &failed, s);
    memset(out, 0, sizeof out);
    to[0] = (uintptr_t)out;
    from[0] = a + 500;
    bytes[0] = 50;
    OK(cuMemcpyBatchAsync, to, from, bytes, 1, &attributes, &first, 1, &failed, s);
    OK(cuStreamSynchronize, s);
    TRUE(out[0] == 'q' && out[49] == 'q' && out[50] == 0);
}
