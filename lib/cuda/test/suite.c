#include "cuda/test/suite.h"

#include <sys/wait.h>
#include <unistd.h>

/* Set by the build. */
#ifndef API_SUITE
#error "API_SUITE is the suite"
#endif

void suite_run(const struct setting *setting, const char *lacks, const char *more) {
    char cuda[256], nvml[256];
    int status;

    snprintf(cuda, sizeof cuda, "%s", setting_path(setting, "libcuda.so.1"));
    snprintf(nvml, sizeof nvml, "%s", setting_path(setting, "libnvidia-ml.so.1"));
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        execl(API_SUITE, API_SUITE, "--lacks", lacks, "--lacks", more != NULL ? more : "/dev/null",
              cuda, nvml, (char *)NULL);
        _exit(127);
    }
    CHECK_EQUAL(waitpid(child, &status, 0), child);
    CHECK_EQUAL(status, 0);
}
