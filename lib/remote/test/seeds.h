/* The described records, which Go wrote, for tests that change them. */
#ifndef DIVVY_REMOTE_TEST_SEEDS_H
#define DIVVY_REMOTE_TEST_SEEDS_H

#include <stddef.h>
#include <stdint.h>

#define MOST_SEEDS 1024u

struct seed {
    char name[256];
    size_t size;
    unsigned char *bytes;
};
extern struct seed seeds[MOST_SEEDS];
extern size_t seeds_count;

void seeds_read(void);
/* A number that often matters, for random bits. */
uint64_t seeds_number(uint64_t drawn);
/* A described record that is changed in some places, and its size; it may say another. */
size_t seeds_frame(unsigned char *bytes, uint64_t (*next)(void));

#endif
