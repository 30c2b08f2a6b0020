/* The API suite in a share on a simulated machine: our libraries answer as the driver does. */
#include "cuda/test/suite.h"

#include "abi/generated/machine_layout.h"

/* Set by the build. */
#ifndef DRIVER_LACKS
#error "API_LACKS, DRIVER_LACKS: where our library and the driver answer otherwise"
#endif

int main(void) {
    static struct setting setting;

    sim_dead_handles = SIM_DEAD_COUNT;
    sim_make_closed(&setting, SIM_GPUS, 256 * MIB);
    suite_run(&setting, DRIVER_LACKS, API_LACKS);
    return 0;
}
