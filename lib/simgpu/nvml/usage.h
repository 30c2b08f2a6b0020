/* What the driver tells of the recent past of a device: samples at boundaries, late. */
#ifndef SIMGPU_NVML_USAGE_H
#define SIMGPU_NVML_USAGE_H

#include "simgpu/nvml/call.h"

/* What executed on a GPU, or a part of it, at the sample boundaries. */
typedef const uint64_t usage_record[SG_SAMPLES];

/* Half of the kept samples cover the lag, half the window. */
#define USAGE_REACH (SG_SAMPLES / 2u - 1u)

/* The reference of each function about load: "On MIG-enabled GPUs, querying [it] is not currently supported." */
#define NVML_NOT_DIVIDED(call)                                                                     \
    if (sg_mig_on(call.in, call.index)) {                                                          \
        return NVML_ERROR_NOT_SUPPORTED;                                                           \
    }

/* Decides the schedule up to now, so that the boundaries before now have their samples. */
void usage_catch_up(struct nvml_call *call);
/* Percent, rounded down, of the n sample periods before a boundary. Samples are read without the
 * schedule lock: those that window and lag can reach are never being overwritten. */
unsigned int usage_percent(usage_record executed, uint64_t boundary, uint64_t n);
/* How many boundaries later than a time stamp are reported, at most as many as are kept; *first is
 * the oldest. */
unsigned int usage_new_samples(struct nvml_call *call, unsigned long long since, uint64_t *first);

#endif
