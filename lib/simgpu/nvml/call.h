/* What every NVML entry of the simulated driver begins with.
 *
 * The library opens its instance with the first nvmlInit and gives it up with the last
 * nvmlShutdown. Between them calls run side by side: each holds the library's lock for reading, so
 * that a shutdown waits for them. Lock order: library lock, state lock, schedule lock.
 *
 * NVML shows the whole machine, whatever CUDA_VISIBLE_DEVICES says, in order of PCI address, and
 * process ids as the processes themselves see them.
 */
#ifndef SIMGPU_NVML_CALL_H
#define SIMGPU_NVML_CALL_H

#include "abi/generated/machine_layout.h"
#include "abi/generated/nvml_functions.h"
#include "simgpu/machine/fault.h"

#include <stdbool.h>

/* One call under way. */
struct nvml_call {
    struct sg_instance *in;     /* NULL when nothing is held */
    const sim_machine *machine; /* the description */
    const sim_gpu *gpu;         /* of the device asked about; NULL for calls about the system */
    uint32_t index;             /* its number */
    uint32_t place; /* of the MIG device asked about, see sg_place_of; 0 for a whole GPU */
};

/* Begins a call about the system, or about a device. The latter refuses an unknown handle with
 * NVML_ERROR_INVALID_ARGUMENT, and answers what was injected for calls of that name. */
nvmlReturn_t nvml_enter(struct nvml_call *call);
/* Whether somebody has initialised the library. */
bool nvml_in_use(void);
/* Opens the machine beside the library's own opening, for what is answered before nvmlInit too; the caller
 * closes it. */
nvmlReturn_t nvml_visit(struct sg_instance *in, const sim_machine **machine);
nvmlReturn_t nvml_enter_device(struct nvml_call *call, nvmlDevice_t device, const char *name);
/* The same for calls that answer about MIG devices too. One whose compute instance has ended is an unknown handle. */
nvmlReturn_t nvml_enter_any(struct nvml_call *call, nvmlDevice_t device, const char *name);
/* Waits while that part of a GPU is silent, with nothing held; what the call knew is read anew.
 * NVML_ERROR_GPU_IS_LOST for a GPU that was reset since the library was opened. */
nvmlReturn_t nvml_await(struct nvml_call *call, uint32_t gpu, enum sg_silence part);
/* Ends a call; also one that was refused. */
void nvml_leave(struct nvml_call *call);

/* The handle of a GPU by its index, and back; SG_GPUS_MAX for other pointers. */
nvmlDevice_t nvml_handle(uint32_t index);
uint32_t nvml_handle_index(nvmlDevice_t device);
/* The handle of a MIG device by its place, and back; 0 for other pointers. */
nvmlDevice_t nvml_mig_handle(uint32_t place);
uint32_t nvml_mig_place(nvmlDevice_t device);

#define NVML_BEGIN(call, enter)                                                                    \
    struct nvml_call call __attribute__((cleanup(nvml_leave))) = {0};                              \
    {                                                                                              \
        nvmlReturn_t entered = enter;                                                              \
        if (entered != NVML_SUCCESS)                                                               \
            return entered;                                                                        \
    }
/* Opens the body of an entry; the call ends where the body does. */
#define NVML_SYSTEM(call) NVML_BEGIN(call, nvml_enter(&call))
#define NVML_DEVICE(call, device) NVML_BEGIN(call, nvml_enter_device(&call, device, __func__))

#define NVML_ANY_DEVICE(call, device) NVML_BEGIN(call, nvml_enter_any(&call, device, __func__))

#define NVML_REQUIRE(condition)                                                                    \
    do {                                                                                           \
        if (!(condition))                                                                          \
            return NVML_ERROR_INVALID_ARGUMENT;                                                    \
    } while (0)

/* An entry `name(device, value *)` whose value is an expression over `call`. */
#define NVML_GETTER(name, type, expression)                                                        \
    nvmlReturn_t name(nvmlDevice_t device, type *value) {                                          \
        NVML_DEVICE(call, device)                                                                  \
        NVML_REQUIRE(value);                                                                       \
        *value = expression;                                                                       \
        return NVML_SUCCESS;                                                                       \
    }

/* Copies text into a caller's buffer of that length, or answers NVML_ERROR_INSUFFICIENT_SIZE. */
nvmlReturn_t nvml_text(char *buffer, unsigned int length, const char *text);
/* Answers a list of n elements by the rules of NVML's in/out counts: *count becomes n, and the
 * result says NVML_ERROR_INSUFFICIENT_SIZE when there was less room, with or without a buffer. */
nvmlReturn_t nvml_room(unsigned int *count, const void *buffer, unsigned int n);

/* Locks the state and frees what dead processes had on the device; end with sg_state_unlock. */
void nvml_lock_state(struct nvml_call *call);

/* Converts a moment of CLOCK_MONOTONIC to NVML's time stamps: microseconds since 1970. */
unsigned long long nvml_stamp(uint64_t monotonic_ns);

/* "GPU-" or "MIG-" and the 32 hexadecimal digits in groups. */
void nvml_uuid_text(const char *kind, const uint8_t uuid[16], char text[41]);
/* The UUID of a GPU, or of a MIG device unless the place is 0, as text. */
void nvml_uuid_of(const struct nvml_call *call, uint32_t gpu, uint32_t place, char text[41]);

/* Utilisation; see usage.c. Percent of the window that ended last. */
unsigned int nvml_gpu_percent(struct nvml_call *call);
/* Draw and warmth follow the utilisation. */
unsigned int nvml_milliwatts(struct nvml_call *call);
unsigned int nvml_celsius(struct nvml_call *call);
unsigned long long nvml_millijoules(struct nvml_call *call);
unsigned int nvml_megahertz(struct nvml_call *call, nvmlClockType_t type);

/* A device's address in the form of nvmlPciInfo_v3. */
void nvml_pci_info(const sim_pci *at, uint32_t device_id, uint32_t subsystem_id,
                   nvmlPciInfo_t *info);

#endif
