/* The API suite in a swap share: what is managed in place of device memory is told as device memory,
 * but for what SWAP_LACKS lists. */
#include "cuda/test/suite.h"

#include "abi/generated/machine_layout.h"

/* Set by the build. */
#ifndef SWAP_LACKS
#error "SWAP_LACKS: where our library, or the driver behind it, answers otherwise"
#endif

int main(void) {
    static struct setting setting;

    sim_dead_handles = SIM_DEAD_COUNT;
    sim_make_swap_closed(&setting, SIM_GPUS, 512 * MIB, 256 * MIB);
    suite_run(&setting, SWAP_LACKS, NULL);
    return 0;
}
