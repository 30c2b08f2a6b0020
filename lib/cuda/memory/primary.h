#ifndef DIVVY_CUDA_MEMORY_PRIMARY_H
#define DIVVY_CUDA_MEMORY_PRIMARY_H

#include "substitute/substitute.h"

/* Forgets primary and green contexts in the child of a fork. */
DV_HIDDEN void primary_forked(void);

#endif
