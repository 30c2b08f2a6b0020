/* Checkpoints: while a process is locked for one, nothing of ours may be under way on the GPU, and
 * afterwards its clock may be another's. */
#include <unistd.h>

#include "cuda/time/launch.h"

CUresult cuCheckpointProcessLock(int pid, CUcheckpointLockArgs *args) {
    if (launch_counts() && pid == getpid()) {
        flights_forget();
    }
    return DV_REAL(cuCheckpointProcessLock)(pid, args);
}
