/* Every name of NVML, leading to the driver unless a file beside this one defines it.
 *
 * Defined here are the functions that hand out GPUs, that count memory and that name processes.
 * What passes, although it tells of the whole GPU:
 * - clocks, power, temperature, errors, links and counters of the bus: they are the hardware's;
 * - nvmlDeviceGetFieldValues: no field of it tells of memory in use or of processes;
 * - performance monitors (nvmlGpm..., nvmlDevicePerfMetrics...), JPEG and optical-flow load: the
 *   driver does not tell processes apart there;
 * - nvmlInternalGetExportTable: tables of the driver's own programs, without a documented layout;
 * - functions that change something: the driver asks for root, and a tenant has no more rights than
 *   it had;
 * - vGPU functions: they answer on hosts of virtual machines only. */
#include "abi/nvml/types.h"
#include "substitute/substitute.h"

#define NVML_FN(name, base, version, kind) DV_FORWARD_SLOT(name) DV_FORWARD_JUMP(name, ".weak")
#include "abi/generated/nvml_names.inc"
#undef NVML_FN

int dv_missing(void) {
    return NVML_ERROR_FUNCTION_NOT_FOUND;
}

__attribute__((constructor)) static void find_driver(void) {
    dv_substitute("libnvidia-ml-real.so.1");
}
