/*
 * The driver's interface as this library sees it: the declared functions are our own exports, and
 * DV_CALL(name, ...) goes to the driver's function of the same name.
 */
#ifndef DIVVY_CUDA_DRIVER_H
#define DIVVY_CUDA_DRIVER_H

#include <stdbool.h>

#include "abi/generated/cuda_functions.h"
#include "substitute/substitute.h"

/* GPUs that a driver is asked about at start; no driver enumerates more. */
#define DRIVER_DEVICES_MAX 64

/* The arguments in a parenthesised list, as the hooks of abi/generated/cuda_hooks.inc get them. */
#define ARGUMENTS(...) __VA_ARGS__

#endif
