#include "cuda/memory/ending.h"

#include "cuda/memory/array.h"
#include "cuda/memory/ipc.h"
#include "cuda/memory/limbo.h"
#include "cuda/memory/linear.h"
#include "cuda/memory/overhead.h"
#include "cuda/memory/swapped.h"

/* Frees that wait for a stream come before what they are of is taken out. The driver is not asked for
 * them any more: it may have given the addresses again. */
static void memory_emptied(struct home home) {
    swapped_context_ended(home.owner);
    limbo_context_done(home.owner);
    linear_context_ended(home.owner);
    arrays_context_ended(home.owner);
    ipc_context_ended(home.owner);
}
ON(context_emptied, memory_emptied);

void context_memory_ended(struct home home) {
    TELL(context_emptied, (home));
}

void context_ended(struct home home) {
    context_memory_ended(home);
    overhead_ended(home.device);
}
