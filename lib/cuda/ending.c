#include "cuda/ending.h"

#include "cuda/array.h"
#include "cuda/flight.h"
#include "cuda/ipc.h"
#include "cuda/limbo.h"
#include "cuda/linear.h"
#include "cuda/overhead.h"

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
