#include "remote/test/seeds.h"

#include "remote/record.h"

#include <stdlib.h>
#include <string.h>

#include "test/check.h"

struct seed seeds[MOST_SEEDS];
size_t seeds_count;

static unsigned digit(char c) {
    return (unsigned)(c <= '9' ? c - '0' : c - 'a' + 10);
}

void seeds_read(void) {
    static char line[65536], name[256], text[65536];
    FILE *file = fopen(REMOTE_SEEDS, "r");

    CHECK(file);
    while (fgets(line, sizeof line, file)) {
        unsigned long size;

        CHECK(seeds_count < MOST_SEEDS);
        CHECK(sscanf(line, "%255s %lu %65535s", name, &size, text) == 3);
        struct seed *seed = &seeds[seeds_count++];
        snprintf(seed->name, sizeof seed->name, "%s", name);
        seed->size = size;
        seed->bytes = calloc(1, size);
        CHECK(seed->bytes && strlen(text) <= 2 * size);
        for (size_t i = 0; text[2 * i]; i++) {
            seed->bytes[i] = (unsigned char)(digit(text[2 * i]) << 4 | digit(text[2 * i + 1]));
        }
    }
    fclose(file);
    CHECK(seeds_count >= 450);
}

uint64_t seeds_number(uint64_t drawn) {
    switch (drawn % 6) {
    case 0:
        return drawn >> 8;
    case 1:
        return (drawn >> 8) % 64;
    case 2:
        return UINT64_MAX - (drawn >> 8) % 16;
    case 3:
        return UINT64_C(1) << (drawn >> 8) % 64;
    case 4:
        return (UINT64_C(1) << (drawn >> 8) % 64) - 1;
    default:
        return 0x1000 + (drawn >> 8) % 16;
    }
}

size_t seeds_frame(unsigned char *bytes, uint64_t (*next)(void)) {
    const struct seed *seed = &seeds[next() % seeds_count];
    size_t size = seed->size;
    uint32_t said;

    memcpy(bytes, seed->bytes, size);
    if (next() % 4 == 0) {
        size_t change = 8 * (next() % 9);

        if (next() % 2 && change < size) {
            size -= change;
        } else {
            memset(bytes + size, (int)next(), change);
            size += change;
        }
        said = (uint32_t)size;
        memcpy(bytes, &said, sizeof said);
    }
    for (uint64_t i = next() % 5; i > 0; i--) {
        uint64_t value = seeds_number(next());
        size_t at = next() % 8 ? sizeof(struct remote_head) : 0;
        size_t length = next() % 4 ? 8 : 4;

        at += 4 * (next() % 16);
        if (next() % 8 == 0) {
            at = 4 * (next() % (size / 4 + 1));
        }
        if (at + length <= size) {
            memcpy(bytes + at, &value, length);
        }
    }
    return size;
}
