/*
 * Events: how a file tells files that build on it that something has happened, without calling them
 * by name.
 *
 * The header of the file below declares the event:
 *
 *     EVENT(context_met, (unsigned device));
 *
 * A file above says which of its functions is to be called:
 *
 *     ON(context_met, overhead_met);
 *
 * And the file below calls them all, in no particular order: TELL(context_met, (device)).
 *
 * The linker lays the listeners of an event side by side in a section of their own. So there is
 * nothing to register when the library is loaded, and no list that a lock would have to protect.
 */
#ifndef DIVVY_CUDA_EVENT_H
#define DIVVY_CUDA_EVENT_H

#include "substitute/substitute.h"

/* first and end are the linker's names for the bounds of the section; an event needs a listener. */
#define EVENT(event, parameters)                                                                   \
    typedef void event##_listener parameters;                                                      \
    DV_HIDDEN extern event##_listener *const event##_first[] __asm__("__start_dv_on_" #event);     \
    DV_HIDDEN extern event##_listener *const event##_end[] __asm__("__stop_dv_on_" #event)

#define ON(event, function)                                                                        \
    static event##_listener *const event##_##function                                              \
        __attribute__((section("dv_on_" #event), used)) = function

#define TELL(event, arguments)                                                                     \
    do {                                                                                           \
        for (event##_listener *const *to = event##_first; to < event##_end; to++) {                \
            (*to) arguments;                                                                       \
        }                                                                                          \
    } while (0)

#endif
