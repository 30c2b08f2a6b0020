/* nvidia-smi, as far as simgpu has it: its table of GPUs, --query-gpu, the subcommand compute-policy, -L, what the subcommand
 * mig lists, -mig and --gpu-reset.
 *
 * Except in the first two, its words and exit statuses are those of nvidia-smi 550.163.01 when NVML's answers are given to it: that
 * program's texts, its order of checks, its rows. 470, 535 and 555 print the same list. Exit statuses are NVML's numbers
 * (nvidia-smi(1), "return value"). */
#ifndef SIMGPU_SMI_SMI_H
#define SIMGPU_SMI_SMI_H

#include <stdbool.h>

/* The exit statuses that it ends with. */
enum smi_status {
    SMI_DONE = 0,
    SMI_INVALID_ARGUMENT = 2,
    SMI_UNSUPPORTED = 3,
    SMI_NO_PERMISSION = 4,
    SMI_NOT_FOUND = 6,
    SMI_NO_DRIVER = 9,
    SMI_UNKNOWN = 255,
};

/* Runs `nvidia-smi compute-policy` with what follows that word on the machine beside the program; says on standard output
 * what it did, or why not. Returns the exit status. */
enum smi_status smi_compute_policy(int argc, char **argv);

/* The same for `nvidia-smi -L`, and for the lists of `nvidia-smi mig`. They ask NVML, which the loader finds: in a share that
 * is Divvy's. */
enum smi_status smi_list(void);
enum smi_status smi_mig(int argc, char **argv);

/* The same for the table of GPUs that it prints without arguments, and for --query-gpu, both from that NVML; whether the
 * arguments, which follow the program's name, are for the latter. */
enum smi_status smi_summary(void);
bool smi_is_query(int argc, char **argv);
enum smi_status smi_query(int argc, char **argv);

/* The same for `nvidia-smi -mig` and `nvidia-smi --gpu-reset`; whether the arguments, which follow the program's name, are
 * for one of these. */
bool smi_is_mode(int argc, char **argv);
enum smi_status smi_mode(int argc, char **argv);

/* Opens the machine in whose directory the program lies; false where there is none, which is told. */
struct sg_instance;
bool smi_machine(struct sg_instance *in);

#endif
