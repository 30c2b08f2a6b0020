/* The API suite in a share on a simulated machine: our libraries answer as the driver does. */
#include "cuda/test/sim.h"

#include "abi/generated/machine_layout.h"

#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Set by the build. */
#ifndef API_SUITE
#error                                                                                             \
    "API_SUITE is the suite; API_LACKS, DRIVER_LACKS: where our library and the driver answer otherwise"
#endif

int main(void) {
    static struct setting setting;
    char cuda[256], nvml[256];
    int status;

    sim_dead_handles = SIM_DEAD_COUNT;
    sim_make_closed(&setting, SIM_GPUS, 256 * MIB);
    snprintf(cuda, sizeof cuda, "%s", setting_path(&setting, "libcuda.so.1"));
    snprintf(nvml, sizeof nvml, "%s", setting_path(&setting, "libnvidia-ml.so.1"));
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        execl(API_SUITE, API_SUITE, "--lacks", DRIVER_LACKS, "--lacks", API_LACKS, cuda, nvml,
              (char *)NULL);
        _exit(127);
    }
    CHECK_EQUAL(waitpid(child, &status, 0), child);
    CHECK_EQUAL(status, 0);
    return 0;
}
