/* Sequences of calls that make contexts current and memory: what the client answers by itself or around the worker is what
 * the simulated driver answers to the same sequence. Client and worker are in one process. */
#include "remote/test/sequence.h"

int main(void) {
    sequence_compare(DIRECT, LOOPBACK, 10000);
    return 0;
}
