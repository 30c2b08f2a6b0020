/*
 * Code whose memory a share of 512 MiB has room for, or has not, and an account that may have parts of blocks too much.
 */
#ifndef DIVVY_CUDA_TEST_CODE_H
#define DIVVY_CUDA_TEST_CODE_H

#include "cuda/test/sim.h"

#define LIMIT (512 * MIB)

#define HEAD ".version 8.0\n.target sm_80\n.address_size 64\n"

/* Variables of 600 MiB, of 300 MiB, and of less than one. */
extern const char code_huge[], code_large[], code_small[];

/* Checks that the account of the first GPU tells at least the truth, no more than so many blocks beyond it, and that the limit
 * held. */
void code_check_account(const struct setting *setting, uint64_t blocks);

#endif
