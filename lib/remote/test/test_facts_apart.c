/* The same sequences with the client's library in one process and a worker in another: addresses are reserved there. */
#include "remote/test/sequence.h"

int main(void) {
    sequence_compare(DIRECT, APART, 500);
    sequence_compare(DIRECT, APART_STRICT, 500);
    return 0;
}
