/* Every generated call, with many drawn parameters, gives through client and worker what it gives directly: result,
 * everything that is written, and nothing else. */
#include "remote/test/exercise.h"
#include "test/check.h"

#include <stdlib.h>

static unsigned long faults;

static void compare(const struct exercise_entry *entry, uint64_t seed) {
    struct exercise direct = exercise_run(entry, seed, false);
    unsigned long sent = loopback_sent, called = mock_calls;
    struct exercise remote = exercise_run(entry, seed, true);

    if (loopback_sent != sent + 1 || mock_calls != called + 1 ||
        loopback_outcome != REMOTE_ANSWERED || direct.digest != remote.digest || direct.failed ||
        remote.failed) {
        fprintf(stderr, "%s, draw %llu: %lu records, %lu calls, outcome %d, results %s, kept %s\n",
                entry->name, (unsigned long long)seed, loopback_sent - sent, mock_calls - called,
                (int)loopback_outcome, direct.digest == remote.digest ? "equal" : "differ",
                remote.failed ? "changed" : "unchanged");
        faults++;
    }
}

static unsigned long compare_all(const struct exercise_entry *entries, uint64_t draws) {
    unsigned long count = 0;

    for (; entries->name; entries++, count++) {
        for (uint64_t seed = 0; seed < draws && faults < 50; seed++) {
            compare(entries, seed);
        }
    }
    return count;
}

int main(void) {
    const char *draws = getenv("DRAWS");
    uint64_t each = draws ? strtoull(draws, NULL, 10) : 50;

    loopback_start(&cuda_mock, &nvml_mock);
    loopback_strict = true;
    unsigned long cuda = compare_all(cuda_exercises, each);
    unsigned long nvml = compare_all(nvml_exercises, each);
    CHECK_EQUAL(faults, 0);
    CHECK(cuda >= 250);
    CHECK(nvml >= 200);
    return 0;
}
