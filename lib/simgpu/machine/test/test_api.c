/* The API suite on the simulated driver: it answers as the interfaces are documented. */
#include "simgpu/machine/test/setting.h"

#include <sys/wait.h>
#include <unistd.h>

/* Set by the build. */
#ifndef API_SUITE
#error "API_SUITE and SIMGPU_FOLDER name the suite and the libraries"
#endif

int main(void) {
    sim_machine machine;
    int status;

    setting_describe(&machine);
    machine.cuda_version = 13040;
    setting_make(&machine);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        execl(API_SUITE, API_SUITE, "--lacks", API_LACKS, SIMGPU_FOLDER "libcuda.so.1",
              SIMGPU_FOLDER "libnvidia-ml.so.1", (char *)NULL);
        _exit(127);
    }
    CHECK_EQUAL(waitpid(child, &status, 0), child);
    CHECK_EQUAL(status, 0);
    return 0;
}
