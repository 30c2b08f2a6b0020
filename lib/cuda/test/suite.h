/* The API suite in a share on a simulated machine. */
#ifndef DIVVY_CUDA_TEST_SUITE_H
#define DIVVY_CUDA_TEST_SUITE_H

#include "cuda/test/sim.h"

/* Runs it with the libraries of a share that is not open, on a machine on which handles that have
 * ended are counted. It must succeed. lacks lists where the libraries answer otherwise than it
 * expects, more does too or is NULL. */
void suite_run(const struct setting *setting, const char *lacks, const char *more);

#endif
