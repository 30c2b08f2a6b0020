/*
 * The GPUs that the program sees: the driver's devices that are in the share and that the program's
 * CUDA_VISIBLE_DEVICES leaves, in that order.
 *
 * The driver's own variable makes it show just these. In case it shows more, or in another order,
 * devices are also matched by UUID. So a program gets none but the GPUs of its share. Of a share on
 * MIG instances the driver's variable names these; the driver shows a process one of them.
 */
#ifndef DIVVY_CUDA_DEVICE_H
#define DIVVY_CUDA_DEVICE_H

#include "cuda/driver.h"

/* The device's number in the share; -1 if it is not in the share or not shown. Asks the driver
 * which devices it has if no cuInit of ours has. */
DV_HIDDEN int device_number(CUdevice device);

/* The driver's device for a number in the share, the inverse of device_number. False if none. */
DV_HIDDEN bool device_of_number(unsigned number, CUdevice *device);

/* Around a driver call that makes a context. A client of MPS is shown the share's variables in it,
 * because the driver may read them for each context. shown_enter gives the error of a process that
 * gets no context; then there is nothing to leave. If shown_leave is false, the context that was
 * made may lack its limits: end it and answer CUDA_ERROR_MPS_CONNECTION_FAILED. */
DV_HIDDEN CUresult shown_enter(void);
DV_HIDDEN bool shown_leave(void);

#endif
