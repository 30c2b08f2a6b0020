/* Fills of all widths. */
#include "test/api/api.h"

#include <string.h>

#define ROOM 8192u

/* What is in memory after a fill of so many elements of so many bytes. */
static void check_fill(CUdeviceptr a, size_t at, unsigned width, uint32_t value, size_t count) {
    unsigned char want[ROOM], got[ROOM];

    memset(want, 0x11, ROOM);
    for (size_t i = 0; i < count; i++) {
        memcpy(want + at + i * width, &value, width);
    }
    OK(cuMemcpyDtoH_v2, got, a, ROOM);
    TRUE(memcmp(got, want, ROOM) == 0);
    OK(cuMemsetD8_v2, a, 0x11, ROOM);
}

void api_case_fills(void) {
    static const size_t counts[] = {0, 1, 2, 7, 64, 1000};
    CUdeviceptr a = 0;
    CUstream s = NULL;

    api_begin();
    OK(cuMemAlloc_v2, &a, ROOM);
    OK(cuMemsetD8_v2, a, 0x11, ROOM);
    OK(cuStreamCreate, &s, CU_STREAM_DEFAULT);
    for (size_t i = 0; i < COUNT(counts); i++) {
        size_t n = counts[i];
        OK(cuMemsetD8_v2, a + 3, 0xa5, n);
        check_fill(a, 3, 1, 0xa5, n);
        OK(cuMemsetD16_v2, a + 6, 0xa5b6, n);
        check_fill(a, 6, 2, 0xa5b6, n);
        OK(cuMemsetD32_v2, a + 8, 0xa5b6c7d8, n);
        check_fill(a, 8, 4, 0xa5b6c7d8, n);
        OK(cuMemsetD8Async, a + 1, 0x5a, n, s);
        check_fill(a, 1, 1, 0x5a, n);
        OK(cuMemsetD16Async, a + 2, 0x5a6b, n, s);
        check_fill(a, 2, 2, 0x5a6b, n);
        OK(cuMemsetD32Async, a + 4, 0x5a6b7c8d, n, s);
        check_fill(a, 4, 4, 0x5a6b7c8d, n);
    }
    INVALID(cuMemsetD16_v2, a + 1, 1, 1);
    INVALID(cuMemsetD32_v2, a + 2, 1, 1);
    INVALID(cuMemsetD32Async, a + 1, 1, 1, s);
    INVALID(cuMemsetD8_v2, a, 1, ROOM * 1024);
    INVALID(cuMemsetD8_v2, ABSENT, 1, 1);
    INVALID(cuMemsetD32_v2, a, 1, SIZE_MAX / 2);
    INVALID(cuMemsetD8_v2, 0, 1, 1);
    OK(cuMemFree_v2, a);
    INVALID(cuMemsetD8_v2, a, 1, 1);
}

static void check_rows(CUdeviceptr a, size_t pitch, unsigned width, uint32_t value, size_t columns,
                       size_t rows) {
    unsigned char want[ROOM], got[ROOM];

    memset(want, 0x22, ROOM);
    for (size_t y = 0; y < rows; y++) {
        for (size_t x = 0; x < columns; x++) {
            memcpy(want + y * pitch + x * width, &value, width);
        }
    }
    OK(cuMemcpyDtoH_v2, got, a, ROOM);
    TRUE(memcmp(got, want, ROOM) == 0);
    OK(cuMemsetD8_v2, a, 0x22, ROOM);
}

void api_case_rectangles(void) {
    static const size_t columns[] = {1, 5, 16}, rows[] = {1, 3, 8};
    CUdeviceptr a = 0;
    CUstream s = NULL;

    api_begin();
    OK(cuMemAlloc_v2, &a, ROOM);
    OK(cuMemsetD8_v2, a, 0x22, ROOM);
    OK(cuStreamCreate, &s, CU_STREAM_DEFAULT);
    for (size_t i = 0; i < COUNT(columns); i++) {
        for (size_t k = 0; k < COUNT(rows); k++) {
            size_t x = columns[i], y = rows[k];
            OK(cuMemsetD2D8_v2, a, 512, 0x31, x, y);
            check_rows(a, 512, 1, 0x31, x, y);
            OK(cuMemsetD2D16_v2, a, 512, 0x3132, x, y);
            check_rows(a, 512, 2, 0x3132, x, y);
            OK(cuMemsetD2D32_v2, a, 512, 0x31323334, x, y);
            check_rows(a, 512, 4, 0x31323334, x, y);
            OK(cuMemsetD2D8Async, a, 256, 0x41, x, y, s);
            check_rows(a, 256, 1, 0x41, x, y);
            OK(cuMemsetD2D16Async, a, 256, 0x4142, x, y, s);
            check_rows(a, 256, 2, 0x4142, x, y);
            OK(cuMemsetD2D32Async, a, 256, 0x41424344, x, y, s);
            check_rows(a, 256, 4, 0x41424344, x, y);
        }
    }
    INVALID(cuMemsetD2D8_v2, a, 512, 1, 8, 1000000);
    INVALID(cuMemsetD2D8_v2, a, 4, 1, 8, 8);
    INVALID(cuMemsetD2D8_v2, ABSENT, 512, 1, 8, 8);
    INVALID(cuMemsetD2D32_v2, a + 1, 512, 1, 8, 8);
    INVALID(cuMemsetD2D8_v2, a, (size_t)1 << 63, 1, 8, 3);
}
