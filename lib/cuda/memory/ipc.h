/*
 * Linear memory opened by other processes through 64-byte handles.
 *
 * When a handle is made, the charge moves from this process to the share, which keeps it until no
 * process of the share has the memory open. Opening a handle of the own share is free. A handle
 * that the share does not know is charged like an allocation of the process that opens it.
 */
#ifndef DIVVY_CUDA_MEMORY_IPC_H
#define DIVVY_CUDA_MEMORY_IPC_H

#include "cuda/memory/reservation.h"
#include "share/share.h"

/* A context has ended, with what it had exported and what it had opened. */
DV_HIDDEN void ipc_context_ended(uint32_t owner);

/* Memory of cuMemAlloc at an address, which is about to leave as a descriptor: moves its charge to
 * the share, under a key of its own or that of its handle if it has one. *known tells whether there
 * is such memory. */
DV_HIDDEN CUresult ipc_share(uint64_t address, uint8_t key[DV_PAGE_EXPORT_KEY_BYTES], bool *known);

#endif
