/* simgpuctl: makes simulated machines, reports what happens on them, and makes calls fail. */
#ifndef SIMGPU_CTL_CTL_H
#define SIMGPU_CTL_CTL_H

#include "abi/generated/machine_layout.h"
#include "simgpu/machine/state.h"

#include <stdio.h>

/* The commands; each returns the program's exit status after it has said what went wrong. */
int ctl_create(const char *dir);
int ctl_report(const char *dir);
/* result and delay_us as in struct sg_call_fault; count 0 means for ever. */
struct ctl_injection {
    const char *call; /* an exported name, or alloc, work, nvml, xid */
    uint32_t result;
    uint32_t delay_us;
    uint64_t count;
};
int ctl_inject(const char *dir, uint32_t gpu, const struct ctl_injection *what);
int ctl_clear(const char *dir, uint32_t gpu);

/* GPU time so far, a line of JSON for each GPU; again every so many ns unless that is 0. */
int ctl_oracle(const char *dir, uint64_t every_ns);
/* The segments in which a process's channels had their GPUs, oldest first, as far as they are
   kept. */
int ctl_segments(const char *dir, int32_t pid);
/* Sets the time slice of the processes with that number or of that tenant; 0 ns takes the machine's
 * own. */
int ctl_slice(const char *dir, const char *whose, uint64_t ns);
/* Moves the instance's virtual clock on. */
int ctl_clock(const char *dir, uint64_t ns);

/* Drives the schedule of GPU 0 as several clients, by lines on standard input: docs/simgpu.md. With
 * NULL on a machine of its own. */
int ctl_play(const char *dir);

/* Reads an amount of time, such as 5ms; a number alone is of nanoseconds. */
bool ctl_duration(const char *text, uint64_t *ns);
/* Opens dir as a visitor; says why and returns false when it cannot. */
bool ctl_open(struct sg_instance *in, const char *dir);
/* Writes "simgpuctl: ..." with what errno-like code error means for an instance directory;
 * returns 1. */
int ctl_fail(const char *dir, int error);
/* Writes text of at most size bytes as a JSON string. */
void ctl_print_string(FILE *out, const char *text, size_t size);
/* report_mig.c: writes a GPU's MIG mode and instances as the last members of its object; nothing for a GPU without MIG. */
void ctl_print_mig(FILE *out, const struct sg_instance *in, const sim_machine *machine,
                   uint32_t gpu);
/* Writes the UUID of the compute instance that a process uses; nothing for 0. */
void ctl_print_place(FILE *out, const struct sg_instance *in, uint32_t place);
/* NULL, and a message, when the instance's description is of another version. */
const sim_machine *ctl_machine(const struct sg_instance *in);

#endif
