/* What is taken off the front of a batch. */
#include "cuda/time/gap.h"
#include "test/check.h"

int main(void) {
    CHECK_EQUAL(batch_gap(1000, 6000, 2000), 4000);
    CHECK_EQUAL(batch_gap(1000, 6000, 1000), 5000);
    /* No more than between the two calls, however early the stamp may have been. */
    CHECK_EQUAL(batch_gap(1000, 6000, 0), 5000);
    CHECK_EQUAL(batch_gap(1000, 6000, 9000), 0);
    /* The batch before it ended after this one's launch. */
    CHECK_EQUAL(batch_gap(50006000, 6000, 0), 0);
    CHECK_EQUAL(batch_gap(6000, 6000, 0), 0);
    return 0;
}
