/* Random calls of many kinds, for a comparison of what answers them: results, outputs, and memory. */
#ifndef DIVVY_REMOTE_TEST_DIFFERENCE_H
#define DIVVY_REMOTE_TEST_DIFFERENCE_H

#include "abi/generated/cuda_functions.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define BUFFERS 8u
#define STREAMS 4u
#define EVENTS 4u
#define ROOM 65536u /* of the largest buffer, and of host memory */

/* An error of a call that is posted may come late, unless the client judges all that the call names. The next call that waits is
 * always one that has nothing else to tell. */
enum { DIFFERENCE_POSTED, DIFFERENCE_JUDGED, DIFFERENCE_TELLER, DIFFERENCE_WAITING };

/* What is noted of a call. */
struct difference_call {
    int32_t result;
    uint16_t what; /* the operation that it is of */
    uint8_t kind;
    uint64_t seen;
};

/* The program. Handles that have ended keep their place. */
struct difference_world {
    CUcontext context;
    CUmodule module;
    CUfunction fill, none;
    struct {
        CUdeviceptr at;
        size_t size;
        bool held;
    } buffers[BUFFERS];
    CUstream streams[STREAMS];
    CUevent events[EVENTS];
    unsigned char *pinned;
    CUmemoryPool pool;
    CUdeviceptr kept; /* of which graphs fill */
    CUgraph graph;
    CUgraphExec exec;
};
extern struct difference_world w;
extern unsigned char difference_host[ROOM];

void *difference_find(const char *name);
uint64_t difference_draw(uint64_t below);
/* Notes a call. */
CUresult difference_told(CUresult result, uint8_t kind);
/* Has late errors told, if calls were posted. */
void difference_tell(void);
/* Notes what it has written. */
void difference_see(uint64_t value);
void difference_see_bytes(const void *bytes, size_t size);

#define CALL_(name, ...)                                                                           \
    __extension__({                                                                                \
        static __typeof__(name) *call_;                                                            \
        if (!call_) {                                                                              \
            void *at_ = difference_find(#name);                                                    \
            memcpy(&call_, &at_, sizeof at_);                                                      \
        }                                                                                          \
        call_(__VA_ARGS__);                                                                        \
    })
#define WAITS(name, ...)                                                                           \
    (difference_tell(), difference_told(CALL_(name, __VA_ARGS__), DIFFERENCE_WAITING))
#define POSTS(name, ...) difference_told(CALL_(name, __VA_ARGS__), DIFFERENCE_POSTED)
#define JUDGED(name, ...) difference_told(CALL_(name, __VA_ARGS__), DIFFERENCE_JUDGED)
/* A stream that is there, or was, or a fixed one; and so on. */
CUstream difference_stream(void);
CUevent difference_event(void);

typedef void difference_operation(void);
extern difference_operation *const difference_memory[];
extern difference_operation *const difference_work[];
#define MEMORY_KINDS 11u
#define WORK_KINDS 12u

#endif
