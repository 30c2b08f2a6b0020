#include "cuda/ending.h"

#include "cuda/memory/array.h"
#include "cuda/memory/ipc.h"
#include "cuda/memory/limbo.h"
#include "cuda/memory/linear.h"
#include "cuda/memory/overhead.h"
#include "cuda/time/flight.h"

void context_memory_ended(struct place place) {
    flights_context_ended(place.owner);
    limbo_context_done(place.owner);
    linear_context_ended(place.owner);
    arrays_context_ended(place.owner);
    ipc_context_ended(place.owner);
}

void context_ended(struct place place) {
    context_memory_ended(place);
    overhead_ended(place.device);
}
