#include "cuda/memory/ending.h"

#include "cuda/memory/array.h"
#include "cuda/memory/ipc.h"
#include "cuda/memory/limbo.h"
#include "cuda/memory/linear.h"
#include "cuda/memory/overhead.h"

/* Frees that wait for a stream come first: they are of allocations that are then taken out. */
static void memory_emptied(struct place place) {
    limbo_context_done(place.owner);
    linear_context_ended(place.owner);
    arrays_context_ended(place.owner);
    ipc_context_ended(place.owner);
}
ON(context_emptied, memory_emptied);

void context_memory_ended(struct place place) {
    TELL(context_emptied, (place));
}

void context_ended(struct place place) {
    context_memory_ended(place);
    overhead_ended(place.device);
}
