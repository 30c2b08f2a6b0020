/* nvidia-cuda-mps-control: its options, as the machine's driver knows them. */
#include "abi/generated/machine_layout.h"
#include "simgpu/machine/state.h"
#include "simgpu/mps/server.h"

#include <stdlib.h>
#include <string.h>

/* Clients of one server: the manual of MPS, 48 since Volta, and 60 since CUDA 13.1. */
#define CLIENTS_MOST 48u
#define CLIENTS_MOST_SINCE_13010 60u

/* The machine, opened; NULL without one. */
static const sim_machine *machine_of(struct sg_instance *in) {
    static const char self;
    char dir[SG_PATH_BYTES], tag[SG_TAG_BYTES];
    size_t bytes;

    if (sg_find(&self, dir, tag) != 0 || sg_open(in, dir, tag, false) != 0) {
        return NULL;
    }
    const sim_machine *machine = sg_state_machine(in, &bytes);
    if (bytes == sizeof *machine && machine->magic == SIM_MAGIC &&
        machine->version == SIM_VERSION) {
        return machine;
    }
    sg_close(in);
    return NULL;
}

/* The major version of the machine's driver, 0 without a machine. */
static int driver_version(void) {
    struct sg_instance in;
    const sim_machine *machine = machine_of(&in);
    int version = machine ? atoi(machine->driver_version) : 0;

    if (machine) {
        sg_close(&in);
    }
    return version;
}

static int start(bool background, bool any_user) {
    static struct sg_instance in; /* the daemon's until it ends */
    const sim_machine *machine = machine_of(&in);

    if (!machine) {
        fputs("there is no simulated machine: start one with `divvy simgpu start`\n", stderr);
        return 1;
    }
    return mps_start(&(struct mps_options){
        .driver = atoi(machine->driver_version),
        .machine = &in,
        .most = machine->cuda_version >= 13010 ? CLIENTS_MOST_SINCE_13010 : CLIENTS_MOST,
        .any_user = any_user,
        .background = background});
}

static int usage(int status) {
    puts("nvidia-cuda-mps-control -d   start the control daemon of the simulated driver\n"
         "nvidia-cuda-mps-control -f   be the daemon, and write its log to standard output\n"
         "nvidia-cuda-mps-control      give the daemon the commands of standard input");
    return status;
}

static bool is(const char *argument, const char *option) {
    return strcmp(argument, option) == 0;
}

/* Before 555 one option alone counts, and whatever is none makes it the program that asks. */
static int run_early(int argc, char **argv) {
    const char *option = argc == 2 ? argv[1] : "";

    return is(option, "-d") || is(option, "-f") ? start(option[1] == 'd', false) : mps_ask();
}

static int run(int argc, char **argv) {
    bool daemon = false, background = false, any_user = false;

    for (int i = 1; i < argc; i++) {
        if (is(argv[i], "-d") || is(argv[i], "-f")) {
            daemon = true;
            background = background || argv[i][1] == 'd';
        } else if (is(argv[i], "-multiuser-server")) {
            any_user = true;
        } else {
            return usage(1);
        }
    }
    return daemon ? start(background, any_user) : mps_ask();
}

int main(int argc, char **argv) {
    if (argc > 0 && is(argv[0], MPS_SERVER_PROGRAM)) {
        return mps_server_main();
    }
    if (argc == 2 && (is(argv[1], "-h") || is(argv[1], "--help"))) {
        return usage(0);
    }
    return driver_version() >= MPS_OPTIONS_SINCE ? run(argc, argv) : run_early(argc, argv);
}
