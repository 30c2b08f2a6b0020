/*
 * How our library stands in front of a driver library, under that library's name.
 *
 * Our library carries the driver's SONAME and depends on the driver's file under the name
 * "<stem>-real.so.1". For each name of abi/ it exports a weak function that jumps to the driver's
 * function of that name; a strong definition elsewhere in our library overrides it. Names that we
 * do not know are found by the dynamic linker in the driver itself, because a lookup on our handle
 * goes on to what we depend on.
 *
 * A library that uses this defines dv_missing, to which every name leads that the driver lacks,
 * emits one DV_FORWARD_SLOT and at most one DV_FORWARD_JUMP per name in one of its source files and
 * calls dv_substitute from a constructor. Link it with a version script that exports abi names
 * alone: the linker would else export the bounds of the section of slots, under names that two such
 * libraries in one process share. The jump costs one load and one indirect branch and needs no
 * state of ours.
 */
#ifndef DIVVY_SUBSTITUTE_H
#define DIVVY_SUBSTITUTE_H

#include <stdbool.h>
#include <stdint.h>

#define DV_HIDDEN __attribute__((visibility("hidden")))
#define DV_EXPORT __attribute__((visibility("default")))

/* One name and the driver's function for it, dv_missing until dv_substitute has run. */
struct dv_forward {
    const char *name;
    void *real;
};

/* Finds the driver's functions under the library `soname`, which ours depends on. False, with every
 * name still leading to dv_missing, if that library is not loaded. Called once, from a constructor:
 * the slots are plain stores. */
DV_HIDDEN bool dv_substitute(const char *soname);

/* The directory in which the dynamic linker found the driver's library. It is also the tenant's
 * directory, and is never taken from the environment. Empty if dv_substitute failed. */
DV_HIDDEN const char *dv_substitute_directory(void);

/* Stands for a function that the driver lacks. Returns the error code of this library for that. */
DV_HIDDEN int dv_missing(void);

/* How many driver calls of our own functions this thread has begun and not ended. A call that the
 * program left by a jump out of a signal handler counts for ever, so this alone decides nothing.
 * With the initial-exec model an access is one instruction and never allocates. */
DV_HIDDEN extern _Thread_local unsigned dv_depth __attribute__((tls_model("initial-exec")));

/* Where the driver's image is; empty until dv_substitute has run. */
struct dv_image {
    uintptr_t begin, size;
};
DV_HIDDEN extern struct dv_image dv_driver_image;

/* Bounds of our own image, by the linker. */
DV_HIDDEN extern const char dv_own_begin[] __asm__("__ehdr_start"), dv_own_end[] __asm__("_end");

/* Whether the code at this address is the driver's or ours. */
static inline bool dv_is_drivers(const void *address) {
    uintptr_t at = (uintptr_t)address, own = (uintptr_t)dv_own_begin;
    return at - dv_driver_image.begin < dv_driver_image.size ||
           at - own < (uintptr_t)dv_own_end - own;
}

/* Whether a call of ours was made by the driver, inside a call that a function of ours has made.
 * The driver may call its public functions through the dynamic linker and so call us; such a call
 * must be passed on unchanged. What the program calls inside a driver call, in a signal handler or
 * a callback, is the program's own. The return address tells the two apart. It is ours when the
 * driver's function has ended with a jump to the other one.
 *
 * Stands in an exported function: a function below one of ours would see our own address. */
#define DV_INNER() (__builtin_expect(dv_depth > 0, 0) && dv_is_drivers(__builtin_return_address(0)))

/* The driver's function of this name, with the type of the declared one. */
#define DV_REAL(fn)                                                                                \
    (__extension__({                                                                               \
        DV_HIDDEN extern struct dv_forward dv_forward_##fn;                                        \
        (__typeof__(&fn))dv_forward_##fn.real;                                                     \
    }))

/* True if the driver lacks this name. */
#define DV_LACKS(fn) ((uintptr_t)DV_REAL(fn) == (uintptr_t)dv_missing)

/* Calls the driver's function on behalf of one of ours. */
#define DV_CALL(fn, ...)                                                                           \
    (__extension__({                                                                               \
        dv_depth++;                                                                                \
        __typeof__(fn(__VA_ARGS__)) dv_result_ = DV_REAL(fn)(__VA_ARGS__);                         \
        dv_depth--;                                                                                \
        dv_result_;                                                                                \
    }))

#if defined(__x86_64__)
#define DV_JUMP(slot) "endbr64\n\tjmp *" slot "+8(%rip)\n"
#elif defined(__aarch64__)
/* hint #34 is "bti c": a landing pad for indirect branches, a no-op where the CPU has none. */
#define DV_JUMP(slot)                                                                              \
    "hint #34\n\tadrp x16, " slot "+8\n\tldr x16, [x16, #:lo12:" slot "+8]\n\tbr x16\n"
#else
#error "forwarding is written for x86-64 and aarch64"
#endif

/* Emits the slot of one name. The slots of a library lie together in the section dv_forwards, whose
 * bounds the linker names. */
#define DV_FORWARD_SLOT(fn)                                                                        \
    __asm__(".pushsection .rodata.dv_names,\"a\"\n"                                                \
            "1:\t.string \"" #fn "\"\n"                                                            \
            ".popsection\n"                                                                        \
            ".pushsection dv_forwards,\"aw\"\n"                                                    \
            "\t.balign 8\n"                                                                        \
            "\t.globl dv_forward_" #fn "\n"                                                        \
            "\t.hidden dv_forward_" #fn "\n"                                                       \
            "dv_forward_" #fn ":\n"                                                                \
            "\t.quad 1b\n"                                                                         \
            "\t.quad dv_missing\n"                                                                 \
            ".popsection\n");

/* Emits the exported function of one name, which jumps to what its slot holds. `binding` is ".weak"
 * where another file may define the name, else ".globl". */
#define DV_FORWARD_JUMP(fn, binding)                                                               \
    __asm__(".pushsection .text.dv_forward,\"ax\"\n"                                               \
            "\t.balign 16\n"                                                                       \
            "\t" binding " " #fn "\n"                                                              \
            "\t.type " #fn ", %function\n" #fn                                                     \
            ":\n\t" DV_JUMP("dv_forward_" #fn) "\t.size " #fn ", .-" #fn "\n"                      \
                                               ".popsection\n");

#endif
