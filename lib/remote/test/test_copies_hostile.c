/* Records that no client of ours would send, and descriptors that are not what they should be: the link ends or the answer is an
 * error, and no byte beyond the client's own memory is touched. Also that chunks come back, and bytes beside the stream. */
#define _GNU_SOURCE
#include "remote/test/copies_world.h"

#include "remote/worker/bulk.h"
#include "remote/worker/copies.h"
#include "test/check.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define OK(call) CHECK_EQUAL(call, CUDA_SUCCESS)
#define AREA (2u << 20)

static CUdeviceptr device;

static int32_t send_row(uint64_t to_place, uint64_t to, uint64_t to_at, uint64_t from_place,
                        uint64_t from, uint64_t from_at, uint64_t size, uint64_t manner) {
    const struct copies_words row = {
        .call = REMOTE_cuMemcpyAsync,
        .count = REMOTE_ROW_WORDS,
        .word = {to_place, to, to_at, from_place, from, from_at, 0, manner, size}};
    return copies_send(&row);
}

static void check_rows(void) {
    const uint64_t done = REMOTE_COPY_DONE, into = REMOTE_PLACE_DEVICE, area = REMOTE_PLACE_AREA;
    const uint64_t region = REMOTE_PLACE_REGION;

    CHECK_EQUAL(send_row(into, device, 0, area, 0, 0, 64, done), 0);
    CHECK_EQUAL(send_row(into, device, 0, area, 0, AREA - 65536, 65536, done), 0);
    /* Beyond the area, beyond a chunk, between blocks, and around the end of all addresses. */
    CHECK_EQUAL(send_row(into, device, 0, area, 0, AREA - 65536, 65537, done), -1);
    CHECK_EQUAL(send_row(into, device, 0, area, 0, AREA, 1, done), -1);
    CHECK_EQUAL(send_row(into, device, 0, area, 0, 0, REMOTE_CHUNK_BYTES + 1, done), -1);
    CHECK_EQUAL(send_row(into, device, 0, area, 0, 8, 64, done), -1);
    CHECK_EQUAL(send_row(into, device, 0, area, 0, UINT64_MAX - 65535, 65536, done), -1);
    CHECK_EQUAL(send_row(into, device, 0, area, 0, 0, UINT64_MAX, done), -1);
    CHECK_EQUAL(send_row(area, 0, AREA - 65536, into, device, 0, 65537, done), -1);
    /* Manners that cannot be. */
    CHECK_EQUAL(send_row(area, 0, 0, into, device, 0, 64, 0), -1);
    CHECK_EQUAL(send_row(into, device, 0, area, 0, 0, 64, done | REMOTE_COPY_BYTES), -1);
    CHECK_EQUAL(send_row(into, device, 0, area, 0, 0, 64, 8), -1);
    CHECK_EQUAL(send_row(into, device, 0, area, 0, 0, 64, UINT64_C(1) << 32), -1);
    /* Both on the host, and places that are none. */
    CHECK_EQUAL(send_row(area, 0, 0, area, 0, 65536, 64, done), -1);
    CHECK_EQUAL(send_row(area, 0, 0, region, 1, 0, 64, done), -1);
    CHECK_EQUAL(send_row(into, device, 0, 5, 0, 0, 64, done), -1);
    CHECK_EQUAL(send_row(UINT64_MAX, device, 0, into, device, 0, 64, 0), -1);
    /* Addresses of the worker's own memory are none of a device. */
    CHECK(send_row(into, (uintptr_t)&device, 0, area, 0, 0, 64, done) > 0);
    CHECK(send_row(area, 0, 0, into, (uintptr_t)&device, 0, 64, done) > 0);
    /* Regions of another number, and beyond one's end. */
    CHECK_EQUAL(send_row(into, device, 0, region, 2, 0, 64, done), 1);
    CHECK_EQUAL(send_row(into, device, 0, region, UINT64_MAX, 0, 64, done), 1);
    CHECK_EQUAL(send_row(into, device, 0, region, 0, 0, 64, done), 1);
    CHECK_EQUAL(send_row(into, device, 0, region, 1, 0, 8192, done), 0);
    CHECK_EQUAL(send_row(into, device, 0, region, 1, 8, 8192, done), 1);
    CHECK_EQUAL(send_row(into, device, 0, region, 1, 8193, 1, done), 1);
    CHECK_EQUAL(send_row(into, device, 0, region, 1, UINT64_MAX, 2, done), 1);
    CHECK_EQUAL(send_row(region, 1, 8192 - 64, into, device, 0, 65, 0), 1);
}

/* Copies whose bytes come by themselves are posted, go to the area, and have a bound. */
static void check_landings(void) {
    struct copies_words row = {
        .call = REMOTE_cuMemcpyAsync,
        .count = REMOTE_ROW_WORDS,
        .word = {REMOTE_PLACE_AREA, 0, 0, REMOTE_PLACE_DEVICE, device, 0, 0, 0, 64}};
    const uint64_t lands = REMOTE_COPY_LANDS | REMOTE_COPY_BYTES;
    const uint64_t wrong[] = {REMOTE_COPY_LANDS, lands | REMOTE_COPY_DONE,
                              lands | REMOTE_COPY_BLOCKS, lands | 16};

    copies_foreign = true;
    row.word[REMOTE_COPY_MANNER] = lands;
    CHECK_EQUAL(copies_send(&row), -1);
    row.posted = true;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        row.word[REMOTE_COPY_MANNER] = wrong[i];
        CHECK_EQUAL(copies_send(&row), -1);
    }
    row.word[REMOTE_COPY_MANNER] = lands;
    for (unsigned round = 1; round <= 2; round++) {
        for (unsigned i = 0; i < REMOTE_MOST_LANDINGS; i++) {
            /* Of one that the driver does not take, and of one in a stream that is none, no bytes come. */
            row.word[REMOTE_COPY_FROM + 1] = i % 3 ? device : (uintptr_t)&device;
            row.word[REMOTE_COPY_STREAM] = i % 3 == 2 ? 999 : 0;
            CHECK(copies_send(&row) >= 0);
        }
        CHECK_EQUAL(copies_send(&row), -1);
        copies_land();
        CHECK_EQUAL(copies_landed, round * (REMOTE_MOST_LANDINGS / 3));
    }
    copies_foreign = false;
}

/* With a pitch the same bytes lie further apart. */
static void check_shapes(void) {
    CUDA_MEMCPY3D_PEER shape = {.WidthInBytes = 64, .Height = 4, .Depth = 2, .srcPitch = 64};
    struct copies_words words = {
        .call = REMOTE_cuMemcpy3DAsync_v2,
        .count = REMOTE_SHAPE_WORDS,
        .word = {REMOTE_PLACE_DEVICE, device, 0, REMOTE_PLACE_REGION, 1, 0, 0, REMOTE_COPY_DONE},
        .piece = &shape,
        .size = sizeof shape};

    CHECK_EQUAL(copies_send(&words), 0);
    shape.srcPitch = 1040;
    shape.srcHeight = 4;
    CHECK_EQUAL(copies_send(&words), 0);
    shape.srcPitch = 1200;
    CHECK_EQUAL(copies_send(&words), 1);
    shape.srcPitch = UINT64_MAX / 4;
    CHECK(copies_send(&words) != 0);
    shape.srcPitch = UINT64_C(1) << 62;
    CHECK_EQUAL(copies_send(&words), -1);
    shape.srcPitch = 64;
    shape.srcHeight = UINT64_C(1) << 58;
    CHECK_EQUAL(copies_send(&words), -1);
    shape.srcHeight = 0;
    shape.Depth = UINT64_MAX;
    CHECK_EQUAL(copies_send(&words), -1);
    shape.Depth = 2;
    /* Offsets and addresses that the client leaves in it lead nowhere. */
    shape.srcXInBytes = UINT64_C(1) << 40;
    shape.srcY = UINT64_MAX;
    shape.srcHost = &device;
    shape.srcMemoryType = CU_MEMORYTYPE_UNIFIED;
    shape.srcDevice = (uintptr_t)&device;
    CHECK_EQUAL(copies_send(&words), 0);
    words.word[REMOTE_COPY_FROM] = REMOTE_PLACE_AREA;
    words.word[REMOTE_COPY_FROM + 1] = 0;
    shape.Height = REMOTE_CHUNK_BYTES / 64 / 2 + 1;
    CHECK_EQUAL(copies_send(&words), -1);
    words.size = sizeof shape - 8;
    CHECK_EQUAL(copies_send(&words), -1);
    words.piece = NULL;
    CHECK_EQUAL(copies_send(&words), -1);
}

static int32_t send_region(uint64_t what, uint64_t a, uint64_t b, bool posted) {
    const struct copies_words words = {.call = (enum remote_number)REMOTE_REGION,
                                       .count = REMOTE_REGION_WORDS,
                                       .posted = posted,
                                       .word = {what, a, b}};
    return copies_send(&words);
}

static int seals, extra;

/* A descriptor that lacks something. */
static int spoiled(int descriptor) {
    int file = memfd_create("spoiled", MFD_ALLOW_SEALING);
    off_t size = lseek(descriptor, 0, SEEK_END);

    CHECK(file >= 0 && ftruncate(file, size + extra) == 0);
    CHECK_EQUAL(fcntl(file, F_ADD_SEALS, seals), 0);
    return file;
}

static int socket_like(int descriptor) {
    (void)descriptor;
    return open("/dev/zero", O_RDWR);
}

static int on_disk(int descriptor) {
    (void)descriptor;
    return open("/proc/self/exe", O_RDONLY);
}

static void check_regions(void) {
    void *at = NULL;

    copies_swap = spoiled;
    for (seals = 0; seals < 8; seals++) {
        for (extra = -4096; extra <= 4096; extra += 4096) {
            bool sound = !extra && (seals & F_SEAL_SHRINK) && (seals & F_SEAL_GROW);
            CUresult result = CLIENT(cuMemHostAlloc)(&at, 3 * 4096, 0);

            CHECK_EQUAL(result, sound ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
            if (sound) {
                OK(CLIENT(cuMemFreeHost)(at));
            }
        }
    }
    seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE, extra = 0;
    CHECK_EQUAL(CLIENT(cuMemHostAlloc)(&at, 4096, 0), CUDA_ERROR_OUT_OF_MEMORY);
    copies_swap = socket_like;
    CHECK_EQUAL(CLIENT(cuMemHostAlloc)(&at, 4096, 0), CUDA_ERROR_INVALID_VALUE);
    copies_swap = on_disk;
    CHECK_EQUAL(CLIENT(cuMemHostAlloc)(&at, 4096, 0), CUDA_ERROR_INVALID_VALUE);
    copies_swap = NULL;
    /* Without a descriptor, with a number that is taken, and with one that names none. */
    CHECK_EQUAL(send_region(REMOTE_REGION_ADD, 7, 4096, false), 1);
    CHECK_EQUAL(send_region(REMOTE_REGION_ADD, 0, 4096, false), 1);
    CHECK_EQUAL(send_region(REMOTE_REGION_ADD, UINT64_MAX, 4096, false), 1);
    CHECK_EQUAL(send_region(REMOTE_REGION_MOVE, 7, 0, false), 1);
    CHECK_EQUAL(send_region(REMOTE_REGION_END, 7, 0, false), 1);
    CHECK_EQUAL(send_region(REMOTE_REGION_END, 1, 0, true), -1);
    CHECK_EQUAL(send_region(99, 1, 0, false), -1);
    /* Shared memory is the client's to write. */
    CHECK_EQUAL(send_region(REMOTE_AREA_WRITE, 0, 0, false), -1);
    OK(CLIENT(cuMemHostAlloc)(&at, UINT64_C(1) << 20, 0));
    OK(CLIENT(cuMemFreeHost)(at));
    CHECK_EQUAL(CLIENT(cuMemFreeHost)(at), CUDA_ERROR_INVALID_VALUE);
    /* More than the host can spare. */
    CHECK_EQUAL(CLIENT(cuMemHostAlloc)(&at, UINT64_C(1) << 50, 0), CUDA_ERROR_OUT_OF_MEMORY);
}

/* Many more bytes than the area has, in pieces of all sizes, none of which is waited for: each chunk comes back, and each
 * byte arrives. */
static void check_wrap(void) {
    static unsigned char from[3u << 20], to[3u << 20];

    for (size_t i = 0; i < sizeof from; i++) {
        from[i] = (unsigned char)(i * 7 + i / 251);
    }
    for (size_t size = 1; size <= sizeof from; size = size * 3 + 1) {
        for (size_t at = 0; at + size <= sizeof from && at < 40 * size; at += size) {
            OK(CLIENT(cuMemcpyHtoDAsync_v2)(device + at, from + at, size, NULL));
        }
        memset(to, 0, sizeof to);
        size_t all = size * (sizeof from / size < 40 ? sizeof from / size : 40);
        OK(CLIENT(cuMemcpyDtoH_v2)(to, device, all));
        CHECK(memcmp(from, to, all) == 0);
        CHECK(all == sizeof to || to[all] == 0);
    }
}

static CUstream client_stream(void) {
    CUstream stream;

    OK(copies_driver.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    return (CUstream)loopback_number(REMOTE_KIND_CUstream, (uint64_t)stream);
}

/* A stream stands still with chunks that it has not read yet; others come and go around them, and the bytes of each arrive. */
static void check_held(void) {
    static unsigned char held[20][REMOTE_BLOCK_BYTES], back[sizeof held],
        other[3 * REMOTE_BLOCK_BYTES];
    CUstream stands = client_stream(), goes = client_stream();
    CUdeviceptr value, beside;

    OK(copies_driver.cuMemAlloc_v2(&value, sizeof other));
    beside = value + 4096;
    OK(copies_driver.cuMemsetD8_v2(value, 0, 4096));
    OK(copies_driver.cuStreamWaitValue32_v2(
        (CUstream)loopback_handle(REMOTE_KIND_CUstream, (uint64_t)stands), value, 1, 0));
    for (size_t i = 0; i < 20; i++) {
        memset(held[i], (int)i + 1, sizeof held[i]);
        OK(CLIENT(cuMemcpyHtoDAsync_v2)(device + i * sizeof held[i], held[i], sizeof held[i],
                                        stands));
        memset(held[i], 0xee, sizeof held[i]);
    }
    for (size_t i = 0; i < 100; i++) {
        memset(other, 0xdd, sizeof other);
        OK(CLIENT(cuMemcpyHtoDAsync_v2)(beside, other, 1 + i * 1900, goes));
    }
    OK(copies_driver.cuStreamWriteValue32_v2(
        (CUstream)loopback_handle(REMOTE_KIND_CUstream, (uint64_t)goes), value, 1, 0));
    OK(copies_driver.cuCtxSynchronize());
    OK(copies_driver.cuMemcpyDtoH_v2(back, device, sizeof back));
    for (size_t i = 0; i < sizeof back; i++) {
        CHECK_EQUAL(back[i], i / REMOTE_BLOCK_BYTES + 1);
    }
}

static unsigned long records;
static __typeof__(cuEventRecord) *real_record;

static CUresult counted_record(CUevent event, CUstream stream) {
    records++;
    return real_record(event, stream);
}

/* All blocks of the area can be had again: it is waited for them. */
static void check_all_come(void) {
    uint64_t taken[AREA / REMOTE_BLOCK_BYTES];

    alarm(60);
    for (size_t i = 0; i < AREA / REMOTE_BLOCK_BYTES; i++) {
        CHECK(remote_chunk_take(1, true, &taken[i]));
    }
    for (size_t i = 0; i < AREA / REMOTE_BLOCK_BYTES; i++) {
        remote_chunk_give(taken[i]);
    }
    alarm(0);
}

/* One event stands behind many small copies of a stream, also where several streams are in turn, and where one ends. */
static void check_events(void) {
    enum { COPIES = 1600 };
    CUstream streams[] = {client_stream(), client_stream(), NULL};
    unsigned char byte = 9;

    real_record = copies_driver.cuEventRecord;
    copies_driver.cuEventRecord = counted_record;
    for (size_t i = 0; i < COPIES; i++) {
        OK(CLIENT(cuMemcpyHtoDAsync_v2)(device + i, &byte, 1, streams[i % 3]));
    }
    check_all_come();
    CHECK(records > 0 && records < COPIES / 5);
    for (size_t i = 0; i < 7; i++) {
        OK(CLIENT(cuMemcpyHtoDAsync_v2)(device + i, &byte, 1, streams[0]));
    }
    CUstream ended = (CUstream)loopback_handle(REMOTE_KIND_CUstream, (uint64_t)streams[0]);
    remote_chunks_stream_ends(NULL, ended);
    OK(copies_driver.cuStreamDestroy_v2(ended));
    check_all_come();
    copies_driver.cuEventRecord = real_record;
}

/* What the worker tells of chunks that nobody sent frees none. */
static void check_lies(void) {
    uint32_t blocks[REMOTE_MOST_BLOCKS];
    uint64_t one, other;

    CHECK(remote_chunk_take(1, true, &one));
    remote_chunks_freed(NULL, blocks);
    remote_chunk_unused((uint32_t)(one / REMOTE_BLOCK_BYTES));
    while (remote_chunk_take(1, false, &other)) {
        CHECK(other != one);
        remote_chunk_sent(other);
        remote_chunk_unused((uint32_t)(other / REMOTE_BLOCK_BYTES));
    }
    CHECK(remote_chunk_take(1, true, &other));
    CHECK(other != one);
}

static bool put(uint64_t number, uint64_t size, uint64_t from, const char *bytes) {
    return remote_bulk_put(number, size, from, bytes, strlen(bytes));
}

static void check_bulk(void) {
    CHECK(put(5, 6, 0, "abc") && put(6, 2, 0, "xy"));
    CHECK(!remote_bulk_get(5, 6));
    /* Not there, of another size, beyond the end, twice. */
    CHECK(!put(5, 6, 4, "e") && !put(5, 7, 3, "def") && !put(5, 6, 3, "defg") &&
          !put(7, 9, 3, "d"));
    CHECK(!put(5, 6, UINT64_MAX, "d") && !put(0, 1, 0, "a"));
    CHECK(put(5, 6, 3, "def"));
    CHECK(!put(5, 6, 0, "abc"));
    CHECK(!remote_bulk_get(5, 5) && !remote_bulk_get(8, 0));
    const void *bytes = remote_bulk_get(5, 6);
    CHECK(bytes && memcmp(bytes, "abcdef", 6) == 0);
    bytes = remote_bulk_get(6, 2);
    CHECK(bytes && memcmp(bytes, "xy", 2) == 0);
    /* Named once, they go when others come. Those that nobody names make room in the end. */
    CHECK(put(9, 1, 0, "a"));
    CHECK(!remote_bulk_get(5, 6));
    for (uint64_t i = 10; i < 200; i++) {
        CHECK(put(i, 1, 0, "a"));
    }
    CHECK(!remote_bulk_get(9, 1));
    CHECK(remote_bulk_get(199, 1));
    CHECK(!put(300, REMOTE_MOST_BULK + 1, 0, "a"));
    const struct copies_words words = {.call = (enum remote_number)REMOTE_BULK,
                                       .count = REMOTE_BULK_WORDS,
                                       .word = {301, 4, UINT64_MAX},
                                       .piece = "abcd",
                                       .size = 4};
    CHECK_EQUAL(copies_send(&words), -1);
}

int main(void) {
    void *region;

    copies_shared = true;
    copies_area_bytes = AREA;
    copies_start();
    OK(copies_driver.cuMemAlloc_v2(&device, 3u << 20));
    const struct remote_range range = {.start = device, .size = 3u << 20, .context = 7};
    CHECK(remote_range_add(&range));
    OK(CLIENT(cuMemHostAlloc)(&region, 8192, 0));
    OK(remote_area_begin());
    check_rows();
    check_landings();
    check_shapes();
    check_regions();
    check_wrap();
    check_held();
    check_events();
    check_lies();
    check_bulk();
    return 0;
}
