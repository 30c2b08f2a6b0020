/* Random copies where client and worker share no memory, as over a network: the client is part of this program, and its link
 * is a stream. */
#include "remote/link_inside.h"
#include "remote/test/copies_served.h"
#include "simgpu/machine/test/setting.h"

#include <stdlib.h>
#include <string.h>

struct remote_link *__wrap_remote_link_connect(const char *path, char why[REMOTE_WHY_BYTES]);

struct remote_link *__wrap_remote_link_connect(const char *path, char why[REMOTE_WHY_BYTES]) {
    (void)path;
    return remote_link_client(copies_connect(), REMOTE_LINK_STREAM, REMOTE_HELLO_NS, why);
}

/* dlsym answers with an object's address, which POSIX lets stand for a function. */
static void *found(const char *name) {
    void *at = copies_find(name);

    CHECK(at);
    return at;
}

static void load_client(struct remote_cuda_driver *driver) {
#define COPY(name) driver->name = name;
#define OTHER(name) COPY(name)
#include "remote/test/copies_functions.inc"
#undef COPY
#undef OTHER
}

static void load_direct(struct remote_cuda_driver *driver) {
    void *at;

    copies_open(SIMGPU_FOLDER);
#define COPY(name)                                                                                 \
    at = found(#name);                                                                             \
    memcpy(&driver->name, &at, sizeof at);
#define OTHER(name) COPY(name)
#include "remote/test/copies_functions.inc"
#undef COPY
#undef OTHER
}

void copies_load(bool remote, struct remote_cuda_driver *driver) {
    if (remote) {
        /* Some socket has to be named, though the one above is taken. */
        setenv("DIVVY_REMOTE_SOCKET", copies_folder, 1);
        load_client(driver);
    } else {
        load_direct(driver);
    }
}

int main(void) {
    const char *given = getenv("STEPS");
    uint64_t steps = given ? strtoull(given, NULL, 10) : 300;
    sim_machine machine;

    setting_describe(&machine);
    machine.cuda_version = 13040;
    setting_make(&machine);
    copies_map_nothing = true;
    copies_start_worker();
    copies_compare(false, steps);
    copies_compare(true, steps);
    copies_end_worker();
    return 0;
}
