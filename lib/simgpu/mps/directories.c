/* Where daemons are, by the documented variables and their documented defaults. */
#include "simgpu/mps/mps.h"

#include <stdlib.h>

static const char *named(const char *variable, const char *otherwise) {
    const char *value = getenv(variable);

    return value && *value ? value : otherwise;
}

const char *mps_pipe_directory(void) {
    return named("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps");
}

const char *mps_log_directory(void) {
    return named("CUDA_MPS_LOG_DIRECTORY", "/var/log/nvidia-mps");
}

bool mps_entry(char path[MPS_PATH_BYTES], const char *name) {
    int length = snprintf(path, MPS_PATH_BYTES, "%s/%s", mps_pipe_directory(), name);

    return length > 0 && length < (int)MPS_PATH_BYTES;
}
