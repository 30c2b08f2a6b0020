/* The gate that calls pass, which is closed while the process is locked for a checkpoint. Calls that are inside go on.
 *
 * A call writes its thread's counter and looks at the gate's number, in this order and without a fence: who closes the gate
 * has all threads pass one (membarrier(2)) before it looks at their counters. So a call pays one predicted branch. */
#ifndef SIMGPU_CUDA_GATE_H
#define SIMGPU_CUDA_GATE_H

#include <stdbool.h>
#include <stdint.h>

struct gate_thread {
    uint32_t inside; /* calls of the thread, one in the other */
    uint32_t pass;   /* the gate's number when the thread last saw it open */
    bool listed;
    struct gate_thread *next, **from; /* in the list of threads that calls came from */
};
/* initial-exec: a launch looks here, and must not pay for a call to find the thread's storage. */
extern _Thread_local struct gate_thread gate_thread __attribute__((tls_model("initial-exec")));
extern uint32_t gate_number; /* changes when the gate closes and when it opens */

/* The gate's number is not the one that the thread knows: waits until it is open, unless a call is inside already. */
void gate_stop(void);

static inline int gate_enter(void) {
    struct gate_thread *t = &gate_thread;

    __atomic_store_n(&t->inside, t->inside + 1, __ATOMIC_RELAXED);
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    if (__builtin_expect(__atomic_load_n(&gate_number, __ATOMIC_ACQUIRE) != t->pass, 0)) {
        gate_stop();
    }
    return 0;
}

static inline void gate_leave(const int *unused) {
    (void)unused;
    __atomic_store_n(&gate_thread.inside, gate_thread.inside - 1, __ATOMIC_RELEASE);
}

#define GATE_JOIN(a, b) a##b
#define GATE_NAME(line) GATE_JOIN(gate_, line)
/* From here to the end of the block the thread is inside. */
#define SG_GATE()                                                                                  \
    __attribute__((cleanup(gate_leave), unused)) const int GATE_NAME(__LINE__) = gate_enter()

/* Whether the kernel has what the gate needs; to be asked first. */
bool gate_start(void);
/* Closes the gate and waits until no call is inside, at most so long; 0 is for ever. False when it took longer: the gate
 * is open again. */
bool gate_close(uint32_t timeout_ms);
void gate_open(void);
void gate_fork_child(void);

#endif
