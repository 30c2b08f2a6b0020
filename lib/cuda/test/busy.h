/*
 * A tenant on a simulated machine whose GPU time is divided: work for it, and what was counted.
 */
#ifndef DIVVY_CUDA_TEST_BUSY_H
#define DIVVY_CUDA_TEST_BUSY_H

#include "cuda/test/sim.h"

#define MS 1000000u
#define US 1000u

/* A share on the first GPU, or so many, with a budget that holds up nothing: limited, all of the
 * GPU, deep. It is initialised and has a context. */
void busy_make(struct setting *setting, unsigned gpus);

/* The budget of the first GPU that busy_make writes, to be changed and written. Rate and base are
 * the same, so that the age of the decision does not matter. */
extern dv_page_budget busy_budget;
void busy_grant(struct setting *setting, unsigned gpu);

/* The code of the kernel that takes so many ns, and that kernel in the first context. */
extern const char busy_image[];
CUfunction busy_kernel(struct setting *setting);
CUresult busy_launch(struct setting *setting, CUstream stream, uint64_t ns);
void busy_sync(struct setting *setting, CUstream stream);

/* Launches a kernel that was never launched, and of which the library does not know, and waits for it.
 * The driver loads its code inside the launch, in which the gate often closes if that takes long. */
CUresult busy_launch_new(struct setting *setting, CUstream stream);

/* What the state page says of a GPU. */
dv_page_bucket busy_bucket(const struct setting *setting, unsigned gpu);
dv_page_worker busy_worker(const struct setting *setting, unsigned gpu);

/* Sums over the intervals still in the page. */
uint64_t busy_measured(const dv_page_worker *worker);
uint64_t busy_measured_charge(const dv_page_worker *worker);

#endif
