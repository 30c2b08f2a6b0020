#ifndef DIVVY_SHARE_TEST_COPY_H
#define DIVVY_SHARE_TEST_COPY_H

#include <stdint.h>

/* Opens the share in dir if this copy has not, charges bytes on GPU 0 and returns the slot, -1 on
 * failure. */
int copy_charge(const char *dir, uint64_t bytes);

#endif
