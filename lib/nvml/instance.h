/* The MIG instances of a share, as NVML numbers them. */
#ifndef DIVVY_NVML_INSTANCE_H
#define DIVVY_NVML_INSTANCE_H

#include "nvml/gpus.h"

/* The driver's handle of the share's instance at `index` of those on a GPU of the share, counted in
 * the driver's order; and back. NVML_ERROR_NOT_FOUND if there is none; *handle and *index stay then.
 */
DV_HIDDEN nvmlReturn_t instance_handle(nvmlDevice_t device, unsigned int index,
                                       nvmlDevice_t *handle);
DV_HIDDEN nvmlReturn_t instance_index(nvmlDevice_t handle, unsigned int *index);

/* The driver's numbers of the instance on which the share's processes run, for the handle `device`
 * of what gpu_find told. Both are NVML_INSTANCE_ID_ANY outside MIG and where the driver does not
 * tell them. */
DV_HIDDEN void instance_ids(const struct gpu *gpu, nvmlDevice_t device, unsigned int *gi,
                            unsigned int *ci);

#endif
