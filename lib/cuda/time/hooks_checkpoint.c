/* Checkpoints. While a process is locked for one, no event of ours may be pending on the GPU.
 * Afterwards the process may run on another GPU, whose clock differs. */
#include <unistd.h>

#include "cuda/time/launch.h"

CUresult cuCheckpointProcessLock(int pid, CUcheckpointLockArgs *args) {
    if (launch_counts() && pid == getpid()) {
        flights_forget();
    }
    return DV_REAL(cuCheckpointProcessLock)(pid, args);
}
