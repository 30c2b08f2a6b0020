/* A program whose calls the driver of watch.c tells from those that our library inserts. */
#ifndef DIVVY_CUDA_TEST_PROGRAM_H
#define DIVVY_CUDA_TEST_PROGRAM_H

#include "cuda/test/busy.h"
#include "cuda/test/watch.h"

extern struct setting program;

/* A tenant like that of busy_make whose driver is the file `watch`. */
void program_make(const char *watch);

/* The functions of watch.h. */
extern watch_enter_type *program_enter;
extern watch_leave_type *program_leave;
unsigned program_wrong(void);
unsigned program_inserted(const char *name);
unsigned program_order(CUstream *streams, unsigned most);
void program_refuse(bool refuses);

/* A call about a stream, and one about none. */
#define SAY(of, fn, ...)                                                                           \
    (__extension__({                                                                               \
        static __typeof__(&fn) known_;                                                             \
        __typeof__(&fn) at_ = __atomic_load_n(&known_, __ATOMIC_RELAXED);                          \
        if (at_ == NULL) {                                                                         \
            at_ = (__typeof__(&fn))setting_function(&program, #fn);                                \
            __atomic_store_n(&known_, at_, __ATOMIC_RELAXED);                                      \
        }                                                                                          \
        program_enter(#fn, (of));                                                                  \
        CUresult result_ = at_(__VA_ARGS__);                                                       \
        program_leave();                                                                           \
        result_;                                                                                   \
    }))
#define IN(of, fn, ...) CHECK_EQUAL(SAY(of, fn, __VA_ARGS__), CUDA_SUCCESS)
#define DO(fn, ...) IN(CU_STREAM_LEGACY, fn, __VA_ARGS__)

/* The kernel that takes so many ns, in the current context. */
CUfunction program_kernel(void);
void program_launch(CUfunction kernel, CUstream stream, uint64_t ns);

#endif
