/* The program divvy-worker at a socket that it was given. */
#define _GNU_SOURCE
#include "remote/link.h"
#include "remote/test/program.h"
#include "simgpu/machine/test/setting.h"

#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static char why[REMOTE_WHY_BYTES];

/* A socket that somebody else has bound, and removes: who has it open listens there, and leaves it. */
static void check_bound_socket(void) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const int highest = 20;

    CHECK(strlen(program_path) < sizeof address.sun_path);
    strcpy(address.sun_path, program_path);
    int made = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(made >= 0 && bind(made, (struct sockaddr *)&address, sizeof address) == 0);
    CHECK_EQUAL(dup2(made, highest), highest);
    CHECK(!remote_link_connect(program_path, why));
    PROGRAM("--bound", "20", );
    close(made);
    close(highest);
    struct remote_link *link = remote_link_connect(program_path, why);
    CHECK(link && !remote_link_ended(link));
    remote_link_free(link);
    EVENTUALLY(program_workers(NULL) == 0);
    close(program_life);
    program_life = -1;
    CHECK_EQUAL(program_status(program_listener), 0);
    CHECK(!remote_link_connect(program_path, why));
    CHECK_EQUAL(unlink(program_path), 0);
}

int main(void) {
    sim_machine machine;

    setting_describe(&machine);
    setting_make(&machine);
    program_place();
    check_bound_socket();
    return 0;
}
