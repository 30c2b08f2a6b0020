/* Drawn records about copies, regions and bytes beside the stream, most of which no client of ours would send: the worker
 * answers or ends the link, and touches no memory but what both sides see. Sanitizers judge that. */
#define _GNU_SOURCE
#include "remote/test/copies_world.h"

#include "test/check.h"

#include <stddef.h>
#include <stdlib.h>

#define OK(call) CHECK_EQUAL(call, CUDA_SUCCESS)
#define AREA (2u << 20)

static CUdeviceptr device;

static uint64_t drawn = 1;

static uint64_t below(uint64_t bound) {
    drawn ^= drawn << 13;
    drawn ^= drawn >> 7;
    drawn ^= drawn << 17;
    return drawn % bound;
}

/* Numbers near those at which something ends. */
static uint64_t draw(void) {
    const uint64_t near[] = {0,
                             1,
                             8192,
                             65536,
                             REMOTE_CHUNK_BYTES,
                             AREA,
                             3u << 20,
                             device,
                             (uintptr_t)&device,
                             UINT64_C(1) << 32,
                             UINT64_C(1) << 63,
                             REMOTE_MOST_REGIONS,
                             UINT64_MAX};
    uint64_t value = near[below(sizeof near / sizeof *near)];

    switch (below(5)) {
    case 0:
        return value + below(3) - 1;
    case 1:
        return below(9);
    case 2:
        return value / (1 + below(70));
    default:
        return value;
    }
}

static void draw_end(uint64_t *word) {
    word[0] = below(5);
    word[1] = word[0] == REMOTE_PLACE_DEVICE ? device + below(5000) : 1;
    word[2] = word[0] == REMOTE_PLACE_AREA ? below(40) * REMOTE_BLOCK_BYTES : below(9000);
}

/* Records of all forms, most of whose words are right for themselves. */
static void check_drawn(uint64_t count) {
    static const enum remote_number calls[] = {REMOTE_cuMemcpyAsync,
                                               REMOTE_cuMemcpy2DAsync_v2,
                                               REMOTE_cuMemcpy3DAsync_v2,
                                               REMOTE_cuMemcpy3DPeerAsync,
                                               (enum remote_number)REMOTE_REGION,
                                               (enum remote_number)REMOTE_BULK};
    static const uint32_t words_of[] = {REMOTE_ROW_WORDS,   REMOTE_SHAPE_WORDS,  REMOTE_SHAPE_WORDS,
                                        REMOTE_SHAPE_WORDS, REMOTE_REGION_WORDS, REMOTE_BULK_WORDS};
    unsigned long answered = 0, succeeded = 0;
    uint64_t shape[sizeof(CUDA_MEMCPY3D_PEER) / 8];

    for (uint64_t i = 0; i < count; i++) {
        size_t form = below(6);
        struct copies_words words = {.call = calls[form],
                                     .count = words_of[form],
                                     .posted = below(2),
                                     .piece = form ? shape : NULL,
                                     .size = sizeof shape - (below(20) ? 0 : 8)};
        for (size_t k = 0; k < words.count; k++) {
            words.word[k] = draw();
        }
        for (size_t k = 0; k < sizeof shape / 8; k++) {
            shape[k] = below(3) ? below(40) : draw();
        }
        if (form < 4 && below(4)) {
            shape[offsetof(CUDA_MEMCPY3D_PEER, srcLOD) / 8] = 0;
            shape[offsetof(CUDA_MEMCPY3D_PEER, dstLOD) / 8] = 0;
            draw_end(words.word + REMOTE_COPY_TO);
            draw_end(words.word + REMOTE_COPY_FROM);
            words.word[REMOTE_COPY_STREAM] = below(3);
            words.word[REMOTE_COPY_MANNER] = words.posted ? 0 : REMOTE_COPY_DONE;
            if (words.posted && words.word[REMOTE_COPY_TO] == REMOTE_PLACE_AREA) {
                words.word[REMOTE_COPY_MANNER] = REMOTE_COPY_LANDS | REMOTE_COPY_BYTES;
            }
            words.word[REMOTE_COPY_MANNER] ^= below(4) ? 0 : below(16);
            /* Of a row its bytes, and of a shape its contexts. */
            words.word[REMOTE_COPY_SIZE] = form ? 7 * below(2) : below(9000);
            words.word[REMOTE_COPY_FROM_CONTEXT] = 7 * below(2);
        }
        int32_t result = copies_send(&words);
        if (i % 100 == 0) {
            copies_land();
        }
        answered += result >= 0;
        succeeded += result == 0;
    }
    printf("%llu records, %lu answered, %lu with success\n", (unsigned long long)count, answered,
           succeeded);
    CHECK(succeeded > count / 50);
    CHECK(copies_landed > count / 1000);
}

int main(void) {
    const char *given = getenv("RECORDS");
    void *region;

    copies_shared = copies_foreign = true;
    copies_area_bytes = AREA;
    copies_start();
    OK(copies_driver.cuMemAlloc_v2(&device, 3u << 20));
    OK(CLIENT(cuMemHostAlloc)(&region, 8192, 0));
    OK(remote_area_begin());
    check_drawn(given ? strtoull(given, NULL, 10) : 100000);
    return 0;
}
