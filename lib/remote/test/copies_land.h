/* What the files of a test share of copies whose bytes come later. */
#ifndef DIVVY_REMOTE_TEST_COPIES_LAND_H
#define DIVVY_REMOTE_TEST_COPIES_LAND_H

#include "abi/generated/cuda_functions.h"
#include "test/check.h"

#define OK(call) CHECK_EQUAL(call, CUDA_SUCCESS)

extern CUcontext land_context;
CUstream land_stream(void);
/* Host memory of zeros. */
unsigned char *land_pinned(size_t size);

/* copies_land.c */
void land_threads(void);

#endif
