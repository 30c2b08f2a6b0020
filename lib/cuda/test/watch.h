/*
 * A driver that passes every call on to simgpu's and notes those that our library inserts: calls
 * that the program did not make itself. Each is judged by the state at its moment.
 *
 * An inserted call is wrong
 *   - if it fails; that an event is not done yet is no failure,
 *   - if it is no call that docs/design/calls.md names,
 *   - if it records into a stream that is being captured, or whose context is not the event's,
 *   - if it records into the legacy stream of a context that has other blocking streams, unless the
 *     program is just launching into that stream.
 *
 * The functions are found in the driver by setting_real.
 */
#ifndef DIVVY_CUDA_TEST_WATCH_H
#define DIVVY_CUDA_TEST_WATCH_H

#include <stdbool.h>

#include "abi/cuda/types.h"

/* The calling thread is about to call this function of the driver, about this stream where it takes
 * one; and it has returned. Calls outside of these two are not judged. */
typedef void watch_enter_type(const char *name, CUstream stream);
typedef void watch_leave_type(void);

/* How many inserted calls were wrong; each was written to stderr. */
typedef unsigned watch_wrong_type(void);

/* How often a function was called by insertion. */
typedef unsigned watch_inserted_type(const char *name);

/* The streams of the program's launches that reached the driver, in that order, from the first one
 * on; returns how many there were, of which at most `most` are stored. */
typedef unsigned watch_order_type(CUstream *streams, unsigned most);

/* From now on the driver records no inserted event, as one that wants an event of the very context,
 * and that is not judged. */
typedef void watch_refuse_type(bool refuses);

#endif
