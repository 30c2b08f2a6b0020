/* What a process does about its own checkpoint: a thread of its own serves what it and others ask. */
#define _GNU_SOURCE
#include "simgpu/cuda/checkpoint.h"

#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "simgpu/cuda/saved.h"
#include "simgpu/cuda/touch.h"

/* The thread alone uses it. */
static enum sg_process_state state;

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool serves;
} begin = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static CUresult enter(enum sg_process_state next, CUresult result) {
    state = next;
    sg_checkpoint_enter(&sg_driver.instance, next);
    return result;
}

static CUresult lock(uint32_t timeout_ms) {
    SG_REQUIRE(state == SG_PROCESS_RUNNING, CUDA_ERROR_ILLEGAL_STATE);
    SG_REQUIRE(gate_close(timeout_ms), CUDA_ERROR_NOT_READY);
    return enter(SG_PROCESS_LOCKED, CUDA_SUCCESS);
}

static CUresult unlock(void) {
    SG_REQUIRE(state == SG_PROCESS_LOCKED, CUDA_ERROR_ILLEGAL_STATE);
    enter(SG_PROCESS_RUNNING, CUDA_SUCCESS);
    gate_open();
    return CUDA_SUCCESS;
}

/* Memory that others may have too: exported, or imported. */
static bool shares_memory(void) {
    struct sg_instance *in = &sg_driver.instance;
    bool shares = false;

    sg_state_lock(in);
    for (uint32_t i = 0; i < in->state->objects_end && !shares; i++) {
        const struct sg_object *o = &in->state->objects[i];
        shares = o->in_use && (o->holders[in->id / 64] >> (in->id % 64) & 1);
    }
    sg_state_unlock(in);
    return shares;
}

/* What the driver cannot save. README of cuda-checkpoint: it does not keep the process in a good state then. */
static bool is_refused(void) {
    return managed_any() || shares_memory() ||
           sg_driver.instance.state->clients[sg_driver.instance.id].place != 0;
}

/* The gate is closed: no context comes or goes. */
static void finish_work(void) {
    for (struct link *at = sg_driver.contexts.next; at != &sg_driver.contexts; at = at->next) {
        sg_drain_context(CONTAINER(at, struct CUctx_st, of_process));
    }
}

static CUresult checkpoint(void) {
    SG_REQUIRE(state == SG_PROCESS_LOCKED, CUDA_ERROR_ILLEGAL_STATE);
    finish_work();
    if (is_refused()) {
        return enter(SG_PROCESS_FAILED, CUDA_ERROR_NOT_SUPPORTED);
    }
    if (saved_take() != CUDA_SUCCESS) {
        return enter(SG_PROCESS_FAILED, CUDA_ERROR_OPERATING_SYSTEM);
    }
    return enter(SG_PROCESS_CHECKPOINTED, CUDA_SUCCESS);
}

/* One that finds no room fails, and so do all later ones, with 304: seen with driver 580.95 (cuda-checkpoint, issue 44). */
static CUresult restore(const uint32_t places[SG_GPUS_MAX]) {
    SG_REQUIRE(state != SG_PROCESS_FAILED, CUDA_ERROR_OPERATING_SYSTEM);
    SG_REQUIRE(state == SG_PROCESS_CHECKPOINTED, CUDA_ERROR_ILLEGAL_STATE);
    if (saved_give_back(places) != CUDA_SUCCESS) {
        return enter(SG_PROCESS_FAILED, CUDA_ERROR_OPERATING_SYSTEM);
    }
    return enter(SG_PROCESS_LOCKED, CUDA_SUCCESS);
}

static CUresult serve(const struct sg_request *request) {
    switch (request->wish) {
    case SG_WISH_LOCK:
        return lock(request->timeout_ms);
    case SG_WISH_CHECKPOINT:
        return checkpoint();
    case SG_WISH_RESTORE:
        return restore(request->places);
    case SG_WISH_UNLOCK:
        return unlock();
    }
    return CUDA_ERROR_INVALID_VALUE;
}

/* From now on others may ask. */
static void tell_begin(void) {
    struct sg_instance *in = &sg_driver.instance;

    sg_state_lock(in);
    in->state->clients[in->id].checkpoint.thread = (int32_t)syscall(SYS_gettid);
    sg_state_unlock(in);
    pthread_mutex_lock(&begin.lock);
    begin.serves = true;
    pthread_cond_signal(&begin.changed);
    pthread_mutex_unlock(&begin.lock);
}

static void await_begin(void) {
    pthread_mutex_lock(&begin.lock);
    while (!begin.serves) {
        pthread_cond_wait(&begin.changed, &begin.lock);
    }
    pthread_mutex_unlock(&begin.lock);
}

static void *work(void *unused) {
    struct sg_instance *in = &sg_driver.instance;
    struct sg_request request;

    (void)unused;
    gate_thread.inside = 1; /* its own calls pass */
    tell_begin();
    for (;;) {
        sg_checkpoint_await(in, &request);
        sg_checkpoint_answer(in, serve(&request));
    }
    return NULL;
}

/* cuda-checkpoint is for x86-64 alone, and the functions came with 12.8. */
static bool has_checkpoints(void) {
#if defined(__x86_64__)
    return sg_driver.machine->cuda_version >= 12080 && gate_start();
#else
    return false;
#endif
}

CUresult checkpoint_start(void) {
    pthread_attr_t attributes;
    pthread_t thread;
    sigset_t all, before;

    if (!has_checkpoints()) {
        return CUDA_SUCCESS;
    }
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    /* Signals belong to the program's threads. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_create(&thread, &attributes, work, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    if (failed) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    await_begin();
    return CUDA_SUCCESS;
}
