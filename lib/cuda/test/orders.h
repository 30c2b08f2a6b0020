/*
 * A share with turns on a simulated machine, whose agent is the test: it orders them by hand.
 */
#ifndef DIVVY_CUDA_TEST_ORDERS_H
#define DIVVY_CUDA_TEST_ORDERS_H

#include "cuda/test/busy.h"

/* A swap share of so many GPUs; its gate is open. It is not opened yet. */
void orders_make(struct setting *setting, unsigned gpus, uint64_t limit, uint64_t kept);

/* The same for a share that keeps all its memory on the GPUs, and may be suspended. */
void orders_make_ordinary(struct setting *setting, unsigned gpus, uint64_t limit);

/* Orders a state on all GPUs, and keeps the gate closed by it until the next order or orders_cease.
 * Returns the order. */
uint64_t orders_give(unsigned state, uint64_t give, uint64_t room);

/* The agent is gone. */
void orders_cease(void);

/* What the calling process told of a GPU, which must have a slot. */
dv_page_present orders_present(const struct setting *setting, unsigned gpu);
dv_page_residence orders_residence(const struct setting *setting, unsigned gpu);

/* Waits until the process has carried out an order; until one of its calls waits at the gate; until
 * threads have waited there for so much longer. */
void orders_await_done(const struct setting *setting, uint64_t order);
void orders_await_waiting(const struct setting *setting);
void orders_await_held(const struct setting *setting, uint64_t ns);

#endif
