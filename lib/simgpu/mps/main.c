/* nvidia-cuda-mps-control: its options, as the machine's driver knows them. */
#include "abi/generated/machine_layout.h"
#include "simgpu/machine/state.h"
#include "simgpu/mps/mps.h"

#include <stdlib.h>
#include <string.h>

/* The major version of the machine's driver, 0 without a machine. */
static int driver_version(void) {
    static const char self;
    char dir[SG_PATH_BYTES], tag[SG_TAG_BYTES];
    struct sg_instance in;
    size_t bytes;

    if (sg_find(&self, dir, tag) != 0 || sg_open(&in, dir, tag, false) != 0) {
        return 0;
    }
    const sim_machine *machine = sg_state_machine(&in, &bytes);
    int version =
        bytes == sizeof *machine && machine->magic == SIM_MAGIC && machine->version == SIM_VERSION
            ? atoi(machine->driver_version)
            : 0;
    sg_close(&in);
    return version;
}

static int start(bool background) {
    int driver = driver_version();

    if (driver == 0) {
        fputs("there is no simulated machine: start one with `divvy simgpu start`\n", stderr);
        return 1;
    }
    return mps_start(driver, background);
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

    return is(option, "-d") || is(option, "-f") ? start(option[1] == 'd') : mps_ask();
}

/* One server for clients of several users changes nothing while there are no servers. */
static int run(int argc, char **argv) {
    bool daemon = false, background = false;

    for (int i = 1; i < argc; i++) {
        if (is(argv[i], "-d") || is(argv[i], "-f")) {
            daemon = true;
            background = background || argv[i][1] == 'd';
        } else if (!is(argv[i], "-multiuser-server")) {
            return usage(1);
        }
    }
    return daemon ? start(background) : mps_ask();
}

int main(int argc, char **argv) {
    if (argc == 2 && (is(argv[1], "-h") || is(argv[1], "--help"))) {
        return usage(0);
    }
    return driver_version() >= MPS_OPTIONS_SINCE ? run(argc, argv) : run_early(argc, argv);
}
