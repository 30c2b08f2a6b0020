/* Random copies of all kinds, directly to the simulated driver and through client and worker: after each the results are equal,
 * and so are all bytes of devices and of the host, those that must not change among them. */
#include "remote/test/copies_steps.h"
#include "remote/test/copies_world.h"

#include "test/check.h"

#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

/* What the client has of the functions that the steps call. */
static struct remote_cuda_driver client;

static void find_client(void) {
    client = copies_driver;
#define COPY(name) client.name = CLIENT(name);
#define OTHER(name)
#include "remote/test/copies_functions.inc"
#undef COPY
#undef OTHER
}

/* The client's side has numbers where the driver has handles. */
static void make_client(struct copies_side *side) {
    copies_make(side, &client, &copies_driver);
    const struct remote_range range = {
        .start = side->device[0], .size = COPIES_ROOM, .context = 7, .kind = REMOTE_RANGE_LINEAR};
    /* Of the second memory the client does not know, as of a module's variable. */
    CHECK(remote_range_add(&range));
    side->flat = (CUarray)loopback_number(REMOTE_KIND_CUarray, (uint64_t)side->flat);
    side->deep = (CUarray)loopback_number(REMOTE_KIND_CUarray, (uint64_t)side->deep);
    side->stream = (CUstream)loopback_number(REMOTE_KIND_CUstream, (uint64_t)side->stream);
    side->context = (CUcontext)7;
    remote_number_learn(REMOTE_KIND_CUcontext, 7);
}

/* In a process of its own, because there is one area in each. */
static void run(bool shared, uint64_t steps) {
    struct copies_side direct = {0}, remote = {0};
    unsigned long succeeded = 0;

    copies_shared = shared;
    copies_area_bytes = 4u << 20;
    copies_start();
    find_client();
    copies_make(&direct, &copies_driver, &copies_driver);
    make_client(&remote);
    direct.maps_nothing = remote.maps_nothing = !shared;
    for (uint64_t i = 0; i < steps; i++) {
        loopback_late = 0;
        loopback_strict = i % 4 == 0;
        CUresult result = copies_step(&direct, i);
        CUresult other = copies_step(&remote, i);
        copies_land();
        other = other == CUDA_SUCCESS ? (CUresult)loopback_late : other;
        if (result != other) {
            fprintf(stderr, "step %llu: direct %d, remote %d\n", (unsigned long long)i, result,
                    other);
            exit(1);
        }
        succeeded += result == CUDA_SUCCESS;
        if (copies_look(&direct) != copies_look(&remote)) {
            fprintf(stderr, "step %llu: memory differs\n", (unsigned long long)i);
            exit(1);
        }
    }
    copies_end(&direct);
    copies_end(&remote);
    printf("%s memory: %llu steps, %lu with success\n", shared ? "shared" : "no shared",
           (unsigned long long)steps, succeeded);
    CHECK(succeeded * 2 > steps);
    CHECK((copies_landed > steps / 100) == !shared);
}

int main(void) {
    const char *given = getenv("STEPS");
    uint64_t steps = given ? strtoull(given, NULL, 10) : 700;
    int status;
    pid_t child = fork();

    CHECK(child >= 0);
    if (child == 0) {
        run(false, steps);
        return 0;
    }
    CHECK_EQUAL(waitpid(child, &status, 0), child);
    CHECK_EQUAL(status, 0);
    run(true, steps);
    return 0;
}
