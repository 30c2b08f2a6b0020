/* Handles that a program passes though they have ended. What a real driver does with one is not
 * defined: it may answer an error, work on whatever has the number now, or crash. */
#define _GNU_SOURCE
#include "simgpu/cuda/driver.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <stdio.h>
#include <stdlib.h>

#define FRAMES 64

static const char *const kinds[] = {
    [0] = "context", /* the first kind */
    [HANDLE_STREAM - HANDLE_CONTEXT] = "stream",
    [HANDLE_EVENT - HANDLE_CONTEXT] = "event",
    [HANDLE_MODULE - HANDLE_CONTEXT] = "module",
    [HANDLE_FUNCTION - HANDLE_CONTEXT] = "function",
    [HANDLE_LIBRARY - HANDLE_CONTEXT] = "library",
    [HANDLE_KERNEL - HANDLE_CONTEXT] = "kernel",
    [HANDLE_POOL - HANDLE_CONTEXT] = "memory pool",
    [HANDLE_ARRAY - HANDLE_CONTEXT] = "array",
    [HANDLE_MIPMAP - HANDLE_CONTEXT] = "mipmapped array",
    [HANDLE_PHYSICAL - HANDLE_CONTEXT] = "memory allocation",
    [HANDLE_GRAPH - HANDLE_CONTEXT] = "graph",
    [HANDLE_NODE - HANDLE_CONTEXT] = "graph node",
    [HANDLE_EXEC - HANDLE_CONTEXT] = "executable graph",
    [HANDLE_TEXTURE - HANDLE_CONTEXT] = "texture",
    [HANDLE_SURFACE - HANDLE_CONTEXT] = "surface",
    [HANDLE_LINK - HANDLE_CONTEXT] = "link state",
    [HANDLE_GREEN - HANDLE_CONTEXT] = "green context",
};
_Static_assert(sizeof kinds / sizeof *kinds == HANDLE_KINDS_END - HANDLE_CONTEXT,
               "every kind has a name");

/* The exported function through which the program came in, and the file that called it. */
struct call {
    const char *name, *caller;
};

/* Goes out from this function as long as frames are the driver's own; it keeps its frames for this
 * (build.mk). */
static struct call find_call(void) {
    struct call call = {"a call", "the program"};
    void *frames[FRAMES];
    Dl_info own, at;
    int depth = backtrace(frames, FRAMES);
    bool inside = false; /* a sanitizer that wraps backtrace comes before our frames */

    if (!dladdr(kinds, &own)) {
        return call;
    }
    for (int i = 0; i < depth && dladdr((char *)frames[i] - 1, &at); i++) {
        if (at.dli_fbase != own.dli_fbase) {
            if (!inside) {
                continue;
            }
            call.caller = at.dli_fname;
            break;
        }
        inside = true;
        if (at.dli_sname && at.dli_sname[0] == 'c' && at.dli_sname[1] == 'u') {
            call.name = at.dli_sname;
        }
    }
    return call;
}

static void end_program(const void *h, enum handle_kind kind) {
    struct call call = find_call();

    fprintf(stderr,
            "simgpu: %s was given the %s %p, which has ended; the caller is %s. A machine with "
            "deadHandles: count answers an error instead.\n",
            call.name, kinds[kind - HANDLE_CONTEXT], h, call.caller);
    abort();
}

bool handle_dead(const void *h, enum handle_kind kind) {
    __atomic_add_fetch(&sg_driver.instance.state->dead_handles, 1, __ATOMIC_RELAXED);
    if (sg_driver.machine->dead_handles == SIM_DEAD_END) {
        end_program(h, kind);
    }
    return false;
}

bool handle_refuse(const void *h) {
    const struct handle *handle = h;
    uint32_t kind =
        handle_points(h) ? ~__atomic_load_n(&handle->mark, __ATOMIC_RELAXED) : HANDLE_NONE;

    return kind >= HANDLE_CONTEXT && kind < HANDLE_KINDS_END &&
           handle_dead(h, (enum handle_kind)kind);
}
