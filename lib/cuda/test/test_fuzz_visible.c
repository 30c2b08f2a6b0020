/* CUDA_VISIBLE_DEVICES of any content shows nothing but what was granted. Built with
 * -fsanitize=fuzzer -DFUZZER it is a target for libFuzzer; else it tries many mutations by itself.
 */
#include "cuda/visible.h"

#include <string.h>

#include "test/check.h"

#define GRANTED 3u
#define RUNS 200000

static const uint8_t first[GRANTED][16] = {
    {0x8f, 0x93, 0x2f}, {0x8f, 0x93, 0x30, 1}, {0xab, 0xcd, 0xef, 2, 3}};
/* Two instances on one GPU and one on another. */
static const uint8_t parents[GRANTED][16] = {{0xab, 0xcd}, {0xab, 0xcd}, {0xab, 0xce}};
static const struct granted gpus = {GRANTED, first, NULL};
static const struct granted instances = {GRANTED, first, parents};

static void check_choice(const struct granted *granted, const struct choice *choice) {
    /* Of which GPU an instance is, the driver will tell, unless the share has instances. */
    bool known = choice->instance && granted->parents == NULL;
    for (unsigned i = 0; i < GRANTED; i++) {
        known = known || memcmp(choice->uuid, first[i], 16) == 0;
    }
    CHECK(known);
    CHECK(memchr(choice->text, '\0', sizeof choice->text) != NULL);
    CHECK(granted->parents == NULL || strncmp(choice->text, "MIG-", 4) == 0);
    CHECK(strncmp(choice->text, "GPU-", 4) == 0 || choice->instance ||
          (choice->text[0] | 0x20) == 'm');
    CHECK(strchr(choice->text, ',') == NULL);
}

static void try_value(const struct granted *granted, const char *value) {
    struct choices choices, again;
    char written[2048];
    visible_choose(granted, value, &choices);
    CHECK(choices.count <= VISIBLE_MAX);
    for (unsigned i = 0; i < choices.count; i++) {
        check_choice(granted, &choices.at[i]);
    }
    CHECK(visible_write(&choices, written, sizeof written));
    if (choices.count > 0) { /* what is written for the driver names the same again */
        visible_choose(granted, written, &again);
        CHECK_EQUAL(again.count, choices.count);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
    char value[512];
    size = size < sizeof value - 1 ? size : sizeof value - 1;
    memcpy(value, bytes, size);
    value[size] = '\0';
    try_value(&gpus, value);
    try_value(&instances, value);
    return 0;
}

#ifndef FUZZER
static uint32_t random_below(uint32_t bound) {
    static uint64_t state = 3;
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((state >> 33) % bound);
}

static void mutate(uint8_t *bytes, size_t *size, size_t room) {
    static const char pieces[][48] = {",",
                                      "0",
                                      "1",
                                      "2",
                                      "-1",
                                      "GPU-",
                                      "MIG-",
                                      "GPU-8f932f00-0000-0000-0000-000000000000",
                                      "GPU-8f93",
                                      "MIG-GPU-abcdef02-0300-0000-0000-000000000000/1/0",
                                      "MIG-8f932f00-0000-0000-0000-000000000000",
                                      "99999999999",
                                      " ",
                                      "\t"};
    const char *piece = pieces[random_below(14)];
    size_t length = strlen(piece);
    if (random_below(3) == 0 && *size > 0) {
        bytes[random_below((uint32_t)*size)] = (uint8_t)random_below(256);
    } else if (*size + length <= room) {
        memcpy(bytes + *size, piece, length);
        *size += length;
    } else {
        *size = 0;
    }
}

int main(void) {
    uint8_t bytes[600];
    size_t size = 0;
    struct choices all;
    visible_choose(&gpus, NULL, &all);
    CHECK_EQUAL(all.count, GRANTED);
    visible_choose(&instances, NULL, &all);
    CHECK_EQUAL(all.count, GRANTED);
    for (unsigned run = 0; run < RUNS; run++) {
        size = random_below(8) == 0 ? 0 : size;
        mutate(bytes, &size, sizeof bytes);
        LLVMFuzzerTestOneInput(bytes, size);
    }
    return 0;
}
#endif
