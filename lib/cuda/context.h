/*
 * Contexts of this process, and the GPU of each.
 *
 * The memory of a context ends with it. The driver may give a later context the same handle, so
 * each context gets a number of its own: its life.
 */
#ifndef DIVVY_CUDA_CONTEXT_H
#define DIVVY_CUDA_CONTEXT_H

#include "cuda/driver.h"
#include "cuda/event.h"
#include "cuda/table.h"

/* The GPU and context to which an allocation belongs. */
struct home {
    unsigned device; /* its number in the share */
    uint32_t owner;  /* the life of the context; 0: the memory belongs to none */
};

/* The calling thread's current context. The driver's error if there is none or no driver,
 * CUDA_ERROR_INVALID_DEVICE if it is on a GPU outside the share. A program can make a context
 * without us, through one of the driver's export tables. Such a context is noted, and its overhead
 * charged, when it is first met. */
DV_HIDDEN CUresult context_current(struct home *home);

/* The same for a given context. */
DV_HIDDEN CUresult context_find(CUcontext context, struct home *home);

/* A number for a new context's life. */
DV_HIDDEN uint32_t context_new_life(void);

/* Notes the home of a context. */
DV_HIDDEN void context_note(CUcontext context, struct home home);

/* The same for the handle of a green context, which uses the memory of its GPU's primary context. */
DV_HIDDEN void context_note_green(CUcontext context, struct home home);

/* Whether a context is a green one's; the calling thread's current context if so, else NULL. */
DV_HIDDEN bool context_is_green(CUcontext context);
DV_HIDDEN CUcontext context_current_green(void);

/* The home of a context that was noted; false if it was not. Makes no driver call. */
DV_HIDDEN bool context_known(CUcontext context, struct home *home);

/* A context was met that was made without us, on this device of the share. */
EVENT(context_met, (unsigned device));

/* The driver is about to be called in a way that may end a context, with its streams and events.
 * From here on nobody asks the driver about them. One of the next two follows. */
EVENT(context_ending, (struct home home));

/* The context lives on. */
EVENT(context_spared, (struct home home));

/* A green context is about to be destroyed. Its streams stay handles, but take nothing any more. */
EVENT(green_ending, (CUcontext context));

/* The memory of a context is gone: the context has ended, or its device was reset. */
EVENT(context_emptied, (struct home home));

/* Forgets every handle with this owner. */
DV_HIDDEN void context_forget_owner(uint32_t owner);

/* Takes out the note of a context before a driver call that may end it (false if there is none),
 * and puts it back if the call did not end it. The note's amount is the usage count. */
DV_HIDDEN bool context_take(CUcontext context, struct entry *note);
DV_HIDDEN void context_put_back(CUcontext context, struct entry note);

#endif
