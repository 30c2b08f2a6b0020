/* nvidia-smi: which of its uses simgpu has. */
#include "simgpu/smi/smi.h"

#include <stdio.h>
#include <string.h>

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "compute-policy") == 0) {
        return (int)smi_compute_policy(argc - 2, argv + 2);
    }
    if (argc > 1 && strcmp(argv[1], "mig") == 0) {
        return (int)smi_mig(argc - 2, argv + 2);
    }
    if (argc == 2 && (strcmp(argv[1], "-L") == 0 || strcmp(argv[1], "--list-gpus") == 0)) {
        return (int)smi_list();
    }
    if (smi_is_mode(argc - 1, argv + 1)) {
        return (int)smi_mode(argc - 1, argv + 1);
    }
    if (argc == 1) {
        return (int)smi_summary();
    }
    if (smi_is_query(argc - 1, argv + 1)) {
        return (int)smi_query(argc - 1, argv + 1);
    }
    printf("ERROR: Option %s is not recognized. Please run 'nvidia-smi -h'.\n\n", argv[1]);
    return SMI_UNKNOWN;
}
