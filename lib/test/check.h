/* What C tests say and how they end: the first check that fails tells where and ends the test. */
#ifndef DIVVY_TEST_CHECK_H
#define DIVVY_TEST_CHECK_H

#include <stdio.h>
#include <stdlib.h>

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s: not true: %s\n", __FILE__, __LINE__, __func__,             \
                    #condition);                                                                   \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

/* Both sides are whole numbers and are shown. */
#define CHECK_EQUAL(got, want)                                                                     \
    do {                                                                                           \
        unsigned long long got_ = (unsigned long long)(got), want_ = (unsigned long long)(want);   \
        if (got_ != want_) {                                                                       \
            fprintf(stderr, "%s:%d: %s: %s is %llu (0x%llx), not %llu (0x%llx)\n", __FILE__,       \
                    __LINE__, __func__, #got, got_, got_, want_, want_);                           \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

#endif
