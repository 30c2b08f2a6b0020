/*
 * Memory that goes back to the driver without a call that says so: pools release at
 * synchronisation, graphs keep memory for their next launch.
 */
#ifndef DIVVY_CUDA_MEMORY_REREAD_H
#define DIVVY_CUDA_MEMORY_REREAD_H

#include "substitute/substitute.h"

#include <stdbool.h>

/* Asks the driver what pools and graphs of the device hold now and charges that. True if charges
 * were given back. */
DV_HIDDEN bool reread_device(unsigned device);

#endif
