/* The pause between the event that begins a batch and the launch after it. */
#ifndef DIVVY_CUDA_TIME_GAP_H
#define DIVVY_CUDA_TIME_GAP_H

#include <stdint.h>

/* In an idle stream the event is stamped at once, and then the GPU waits for the launch. Returns
 * how many ns of the batch's time are such waiting, which nobody is charged for. stamped is the
 * earliest moment of the stamp. If that is later than the launch, there was work before the batch
 * and so no gap. */
static inline int64_t batch_gap(uint64_t begin_after, uint64_t launch_after, uint64_t stamped) {
    if (launch_after <= stamped || launch_after <= begin_after) {
        return 0;
    }
    uint64_t gap = launch_after - stamped, most = launch_after - begin_after;
    return (int64_t)(gap < most ? gap : most);
}

#endif
