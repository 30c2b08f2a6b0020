/* Random sequences of calls that make contexts current and memory, for tests that compare what answers them. Two threads of
 * the program take turns, and what is seen of each call is noted. */
#ifndef DIVVY_REMOTE_TEST_SEQUENCE_H
#define DIVVY_REMOTE_TEST_SEQUENCE_H

#include "remote/generated/cuda_decode.h"
#include "remote/generated/cuda_stubs.h"
#include "simgpu/machine/test/setting.h"

#include <stdbool.h>
#include <stdint.h>

#define CUDA_BY_HAND(name, manner, subject) __typeof__(name) REMOTE_STUB(name);
#include "remote/generated/cuda_by_hand.inc"
#undef CUDA_BY_HAND

#define CONTEXTS 8u
#define DEVICES 4
#define MEMORIES 24u
#define HOSTS 5u /* one is allocated: an address that was freed can be had again */

/* Who answers. */
enum way {
    DIRECT,      /* the simulated driver */
    LOOPBACK,    /* client and worker in one process */
    APART,       /* the client's library and a worker */
    APART_STRICT /* the same where every call waits */
};

extern struct remote_cuda_driver sequence_driver;
extern enum way sequence_way;
extern bool sequence_has_worker; /* one of the two ways has a worker in another process */
CUresult sequence_told(const char *name, CUresult result);
#define CALL(name, ...)                                                                            \
    sequence_told(#name, sequence_way == LOOPBACK ? REMOTE_STUB(name)(__VA_ARGS__)                 \
                                                  : sequence_driver.name(__VA_ARGS__))

/* What the program has. Contexts that have ended keep their place until it is drawn again. */
struct world {
    CUcontext contexts[CONTEXTS + DEVICES];
    struct {
        CUdeviceptr address;
        size_t size;
        bool held; /* one that was freed keeps its place until another takes it */
    } memory[MEMORIES];
    CUmemGenericAllocationHandle block;
    unsigned char *host[HOSTS]; /* one that was freed keeps its place too */
};
extern struct world world;

/* A number below this one. */
uint64_t draw(uint64_t below);
CUdevice draw_device(void);
/* Mostly one that was made, though it may have ended. */
CUcontext draw_context(void);
/* Notes what a call has answered. */
void see(uint64_t value);
/* A context, told by the place that it was put into last. */
void see_context(CUcontext ctx);

typedef CUresult operation(void);
extern operation *const context_operations[];
extern operation *const memory_operations[];
extern operation *const host_operations[]; /* only where both ways have the whole client */
#define CONTEXT_OPERATIONS 19u
#define MEMORY_OPERATIONS 10u
#define HOST_OPERATIONS 4u
/* Frees what there is of host memory. */
void host_end(void);
/* What an attribute of a pointer says that is the same in both ways. */
void see_attribute(CUpointer_attribute attribute, uint64_t value, CUdeviceptr address);

/* Compares two ways for as many sequences as SEQUENCES says, from the one that FIRST says. */
void sequence_compare(enum way one, enum way other, uint64_t sequences);

/* Compares what a script sees and notes. */
void sequence_compare_script(void (*with)(void), enum way one, enum way other);
/* Notes a result, after what was seen with it. */
void sequence_noted(CUresult result);

/* apart.c: starts a worker beside this process, and loads the client's library. */
void apart_start(bool strict);
void apart_end(void);

#endif
