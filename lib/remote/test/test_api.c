/* The API suite on the client, a worker and the simulated driver: it answers as the driver does, or exactly that it does not
 * serve. Once where calls do not wait, and once where all do. */
#include "remote/test/whole.h"
#include "test/check.h"

#include <sys/wait.h>
#include <unistd.h>

/* Set by the build. */
#ifndef API_LACKS
#error                                                                                             \
    "API_LACKS, API_LACKS_STRICT: what the client does not serve; DRIVER_LACKS: what the driver does not"
#endif

static int run(const char *manner, const char *lacks) {
    int status;
    pid_t child = fork();

    CHECK(child >= 0);
    if (child == 0) {
        setenv("DIVVY_REMOTE", manner, 1);
        execl(REMOTE_BUILD "/test/api/apisuite", "apisuite", "--lacks", lacks, "--lacks",
              DRIVER_LACKS, REMOTE_BUILD "/lib/remote/libcuda.so.1",
              REMOTE_BUILD "/lib/remote/libnvidia-ml.so.1", (char *)NULL);
        _exit(127);
    }
    CHECK_EQUAL(waitpid(child, &status, 0), child);
    return status;
}

int main(void) {
    whole_start();
    int posted = run("", API_LACKS), strict = run("strict", API_LACKS_STRICT);
    CHECK_EQUAL(posted, 0);
    CHECK_EQUAL(strict, 0);
    return 0;
}
