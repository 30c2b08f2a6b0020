/* Records that no client of ours would send: the decoders refuse them or call the driver with parameters of which every
 * byte is theirs, and answer with a whole answer. Begins with the described records, seeds.txt, each of which is taken;
 * then changes them. FRAMES=n says how many changed ones, SEED=n repeats a run. */
#include "remote/test/exercise.h"
#include "remote/test/seeds.h"
#include "test/check.h"

#include <stdlib.h>
#include <string.h>

static uint64_t state;
static unsigned long outcomes[REMOTE_BY_HAND + 1];

static uint64_t next(void) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

/* Decodes a record from memory that ends where it does, so that a sanitizer sees a byte too far. */
static enum remote_outcome decode(const unsigned char *bytes, size_t size) {
    unsigned char *exact = malloc(size ? size : 1);

    CHECK(exact);
    memcpy(exact, bytes, size);
    enum remote_outcome outcome = remote_decode(&loopback, exact, size);
    free(exact);
    if (outcome == REMOTE_ANSWERED) {
        struct remote_answer answer;

        memcpy(&answer, loopback.answer, sizeof answer);
        CHECK(answer.size >= sizeof answer && answer.size <= REMOTE_RECORD_BYTES);
        CHECK_EQUAL(answer.size % 8, 0);
        CHECK_EQUAL(answer.call, loopback.head.call);
        CHECK_EQUAL(answer.sequence, loopback.head.sequence);
        CHECK_EQUAL(answer.given & ~loopback.head.given, 0);
    }
    return outcome;
}

static void check_seeds(void) {
    for (size_t i = 0; i < seeds_count; i++) {
        unsigned long called = mock_calls;

        loopback_forget();
        enum remote_outcome outcome = decode(seeds[i].bytes, seeds[i].size);

        CHECK(outcome == REMOTE_ANSWERED || outcome == REMOTE_LATER);
        if (mock_calls != called + (outcome == REMOTE_ANSWERED)) {
            fprintf(stderr, "record %zu: the driver was not called, result %d\n", i,
                    loopback.result);
            exit(1);
        }
        /* Less than the record says, and more than there is. */
        CHECK_EQUAL(decode(seeds[i].bytes, seeds[i].size - 8), REMOTE_GARBLED);
    }
}

/* Text ends where its length says, and nowhere before. */
static void check_text(void) {
    for (size_t i = 0; i < seeds_count; i++) {
        unsigned char *text = seeds[i].bytes + seeds[i].size - 8;

        if (strcmp(seeds[i].name, "cuModuleGetFunction") != 0) {
            continue;
        }
        CHECK(text[0] == 'a' && text[1] == 0);
        text[1] = 'b';
        CHECK_EQUAL(decode(seeds[i].bytes, seeds[i].size), REMOTE_GARBLED);
        text[0] = text[1] = 0;
        CHECK_EQUAL(decode(seeds[i].bytes, seeds[i].size), REMOTE_GARBLED);
        text[0] = 'a';
        CHECK_EQUAL(decode(seeds[i].bytes, seeds[i].size), REMOTE_ANSWERED);
        return;
    }
    CHECK(!"there is a call with text");
}

static void frame(unsigned char *bytes) {
    size_t size = seeds_frame(bytes, next);

    outcomes[decode(bytes, size)]++;
    if (next() % 256 == 0) {
        loopback_forget();
    }
}

int main(void) {
    static unsigned char bytes[REMOTE_RECORD_BYTES];
    const char *frames = getenv("FRAMES"), *seed = getenv("SEED");
    uint64_t count = frames ? strtoull(frames, NULL, 10) : 200000;

    state = seed ? strtoull(seed, NULL, 10) : 1;
    CHECK(state);
    loopback_start(&cuda_mock, &nvml_mock);
    seeds_read();
    check_seeds();
    check_text();
    for (uint64_t i = 0; i < count; i++) {
        frame(bytes);
    }
    printf("%lu answered, %lu later, %lu garbled, %lu by hand\n", outcomes[REMOTE_ANSWERED],
           outcomes[REMOTE_LATER], outcomes[REMOTE_GARBLED], outcomes[REMOTE_BY_HAND]);
    CHECK(outcomes[REMOTE_GARBLED] > 0 && outcomes[REMOTE_ANSWERED] > 0);
    return 0;
}
