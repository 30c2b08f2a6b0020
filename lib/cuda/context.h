/*
 * Contexts of this process: on which GPU each is, and what dies with it.
 *
 * Memory of a context ends with it. Each life of a context has a number of its own, because the
 * driver may give a later context the same handle.
 */
#ifndef DIVVY_CUDA_CONTEXT_H
#define DIVVY_CUDA_CONTEXT_H

#include "cuda/driver.h"
#include "cuda/event.h"
#include "cuda/table.h"

/* Where an allocation goes. */
struct home {
    unsigned device; /* number in the share */
    uint32_t owner;  /* the context's life; 0: the memory belongs to no context */
};

/* The calling thread's current context. The driver's error if there is none or no driver,
 * CUDA_ERROR_INVALID_DEVICE if it is on a GPU outside the share. A context that was made without us
 * (an export table leads around us) is noted, and its overhead charged, when it is first met. */
DV_HIDDEN CUresult context_current(struct home *home);

/* The same for a given context. */
DV_HIDDEN CUresult context_find(CUcontext context, struct home *home);

/* A number for a new context's life. */
DV_HIDDEN uint32_t context_new_life(void);

/* Notes where the memory of a context goes. */
DV_HIDDEN void context_note(CUcontext context, struct home home);

/* Where the memory of a context that has been noted goes; false if it has not. Asks nobody. */
DV_HIDDEN bool context_known(CUcontext context, struct home *home);

/* A context was met that was made without us, on this device of the share. */
EVENT(context_met, (unsigned device));

/* The memory of a context is gone: the context has ended, or its device was reset. */
EVENT(context_emptied, (struct home home));

/* Forgets every handle whose memory goes to this owner. */
DV_HIDDEN void context_forget_owner(uint32_t owner);

/* Takes the note out before a driver call that may end the context, false if there is none; and
 * puts it back if the call did not. amount of the note is the usage count. */
DV_HIDDEN bool context_take(CUcontext context, struct entry *note);
DV_HIDDEN void context_put_back(CUcontext context, struct entry note);

#endif
