/*
 * A program of several threads that makes, uses and destroys driver objects at random, each step
 * legal: nobody uses an object that another thread uses or has destroyed. Streams are destroyed
 * before their events are waited for, contexts with streams and events in them, and objects pass
 * from thread to thread.
 */
#ifndef DIVVY_CUDA_TEST_HANDLES_H
#define DIVVY_CUDA_TEST_HANDLES_H

#include <stdint.h>

/* Does so many operations in so many threads with libcuda.so.1, which was opened and initialised.
 * The same seed gives each thread the same choices. Ends the program when an answer is wrong. */
void handles_run(void *library, unsigned threads, uint64_t operations, uint64_t seed);

#endif
