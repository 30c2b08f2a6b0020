/*
 * Allocations that are known by their address: linear, pitched and managed memory.
 */
#ifndef DIVVY_CUDA_LINEAR_H
#define DIVVY_CUDA_LINEAR_H

#include "cuda/claim.h"
#include "cuda/table.h"

/* Notes what the driver gave for the claim and settles it. False if there is no memory for the note:
 * the claim is settled to nothing, and the caller gives the memory back to the driver. */
DV_HIDDEN bool linear_keep(struct claim *claim, uint64_t address, uint64_t bytes);

/* Takes the note out before a driver call that frees the memory; false if there is none. */
DV_HIDDEN bool linear_take(uint64_t address, record *note);
/* The driver refused to free it. */
DV_HIDDEN void linear_put_back(uint64_t address, record note);
/* The driver has freed it. */
DV_HIDDEN void linear_release(uint64_t address, record note);

/* Marks an allocation whose fully covered blocks the share has taken over from this process, because
 * other processes can open them; its free gives back only the others. False, with nothing changed, if
 * address is not the start of an allocation or is marked already; *note tells what was found. */
DV_HIDDEN bool linear_mark_exported(uint64_t address, record *note);
DV_HIDDEN void linear_unmark_exported(uint64_t address);
#define LINEAR_EXPORTED 1u /* in the flags of a note */

/* A context has ended, and all its memory with it. */
DV_HIDDEN void linear_context_ended(uint32_t owner);

DV_HIDDEN void linear_forked(void);

#endif
