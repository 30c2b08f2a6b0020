/* Kernels that touch memory, as PTX for a real GPU. The simulated driver knows them by name. */
#include "touch.h"

#include <string.h>

#define BLOCKS                                                                                     \
    64u /* more than one block for a multiprocessor would not start at once on small GPUs */
#define THREADS 512u

/*
 * A thread touches one word of each page of 4 KiB whose number it is: the driver moves memory by
 * pages at least. What it writes is what it read. %globaltimer is the GPU's wall clock.
 */
#define PARAMETERS                                                                                 \
    "(.param .u64 p, .param .u64 bytes, .param .u32 reads, .param .u32 writes,\n"                  \
    " .param .u32 order, .param .u32 seed, .param .u64 ns) {\n"
#define REGISTERS                                                                                  \
    ".reg .u64 %d<16>; .reg .u32 %r<12>; .reg .pred %p, %q;\n"                                     \
    "mov.u64 %d1, %globaltimer; ld.param.u64 %d2, [p]; ld.param.u64 %d3, [bytes];\n"               \
    "ld.param.u32 %r1, [reads]; ld.param.u32 %r2, [writes]; ld.param.u32 %r3, [order];\n"          \
    "ld.param.u32 %r4, [seed]; ld.param.u64 %d4, [ns];\n"                                          \
    "mov.u32 %r5, %ctaid.x; mov.u32 %r6, %ntid.x; mov.u32 %r7, %tid.x;\n"                          \
    "mad.lo.u32 %r5, %r5, %r6, %r7; cvt.u64.u32 %d5, %r5;\n" /* this thread */                     \
    "mov.u32 %r7, %nctaid.x; mul.wide.u32 %d6, %r6, %r7;\n"  /* all threads */                     \
    "max.u32 %r8, %r1, %r2; mov.u32 %r9, 0;\n"
/* At the address in %d9; %q tells whether it is written. */
#define TOUCH "ld.volatile.global.u32 %r10, [%d9]; @%q st.volatile.global.u32 [%d9], %r10;\n"
#define WAIT                                                                                       \
    "wait: mov.u64 %d10, %globaltimer; sub.u64 %d10, %d10, %d1;\n"                                 \
    "setp.lt.u64 %p, %d10, %d4; @%p bra wait; ret; }\n"

static const char text[] =
    ".version 6.0\n.target sm_50\n.address_size 64\n"
    ".visible .entry divvy_sweep" PARAMETERS REGISTERS "shr.u64 %d7, %d3, 12;\n" /* pages */
    "again: setp.ge.u32 %p, %r9, %r8; @%p bra wait;\n"
    "setp.lt.u32 %q, %r9, %r2; mov.u64 %d8, %d5;\n"
    "and.b32 %r11, %r9, 1; setp.eq.u32 %p, %r3, 2; selp.u32 %r11, %r11, %r3, %p;\n"
    "page: setp.ge.u64 %p, %d8, %d7; @%p bra over;\n"
    "mul.wide.u32 %d9, %r4, 512; add.u64 %d9, %d9, %d8; rem.u64 %d9, %d9, %d7;\n"
    "setp.eq.u32 %p, %r11, 1; sub.u64 %d10, %d7, %d9; sub.u64 %d10, %d10, 1;\n"
    "selp.u64 %d9, %d10, %d9, %p; shl.b64 %d9, %d9, 12; add.u64 %d9, %d2, %d9;\n" TOUCH
    "add.u64 %d8, %d8, %d6; bra page;\n"
    "over: add.u32 %r9, %r9, 1; bra again;\n" WAIT
    /* Each place is drawn by two multiplications; the upper half of a product with the number of
     * words is a word. With order 1 that is done twice, which prefers the front. */
    ".visible .entry divvy_scatter" PARAMETERS REGISTERS
    "shr.u64 %d7, %d3, 2; cvt.u64.u32 %d8, %r8; mov.u64 %d11, %d5;\n"
    "place: setp.ge.u64 %p, %d11, %d8; @%p bra wait;\n"
    "cvt.u64.u32 %d12, %r2; setp.lt.u64 %q, %d11, %d12;\n"
    "cvt.u64.u32 %d12, %r4; add.u64 %d12, %d12, %d11; add.u64 %d12, %d12, 1;\n"
    "mul.lo.u64 %d12, %d12, 0x9e3779b97f4a7c15; shr.u64 %d13, %d12, 31; xor.b64 %d12, %d12, %d13;\n"
    "mul.lo.u64 %d12, %d12, 0xbf58476d1ce4e5b9; shr.u64 %d13, %d12, 29; xor.b64 %d12, %d12, %d13;\n"
    "mul.hi.u64 %d9, %d12, %d7; mul.lo.u64 %d13, %d12, 0x94d049bb133111eb;\n"
    "mul.hi.u64 %d10, %d13, %d9; setp.eq.u32 %p, %r3, 1; selp.u64 %d9, %d10, %d9, %p;\n"
    "shl.b64 %d9, %d9, 2; add.u64 %d9, %d2, %d9;\n" TOUCH
    "add.u64 %d11, %d11, %d6; bra place;\n" WAIT;

CUresult touching_load(struct touching *touching) {
    CUmodule module;
    CUresult result = driver.cuModuleLoadData(&module, text);
    if (result == CUDA_SUCCESS) {
        result = driver.cuModuleGetFunction(&touching->sweep, module, "divvy_sweep");
    }
    if (result == CUDA_SUCCESS) {
        result = driver.cuModuleGetFunction(&touching->scatter, module, "divvy_scatter");
    }
    return result;
}

CUresult touch(CUfunction kernel, struct touched what, CUstream stream) {
    void *parameters[] = {&what.address, &what.bytes, &what.reads, &what.writes,
                          &what.order,   &what.seed,  &what.ns};
    return driver.cuLaunchKernel(kernel, BLOCKS, 1, 1, THREADS, 1, 1, 0, stream, parameters, NULL);
}

/* ---- marks ---- */

#define APART (2ull << 20)
enum { WORDS = 8 };

struct mark {
    uint64_t words[WORDS];
};

static struct mark mark_of(uint64_t seed, uint64_t index) {
    struct mark mark;
    uint64_t x = seed * 0x9e3779b97f4a7c15u + index * 0xd1342543de82ef95u + 1;
    for (int i = 0; i < WORDS; i++) {
        x ^= x >> 12;
        x ^= x << 25;
        x ^= x >> 27;
        mark.words[i] = x * 0x2545f4914f6cdd1du;
    }
    return mark;
}

/* Where the mark of a piece lies, which is not at the same place in each. */
static uint64_t place_of(uint64_t bytes, uint64_t index) {
    uint64_t begin = index * APART, room = bytes - begin < APART ? bytes - begin : APART;
    return room < sizeof(struct mark)
               ? bytes
               : begin + index * 4099u * 8 % (room - sizeof(struct mark) + 1) / 8 * 8;
}

CUresult marks_write(CUdeviceptr address, uint64_t bytes, uint64_t seed) {
    CUresult result = CUDA_SUCCESS;
    for (uint64_t i = 0; i * APART < bytes && result == CUDA_SUCCESS; i++) {
        uint64_t at = place_of(bytes, i);
        struct mark mark = mark_of(seed, i);
        if (at < bytes) {
            result = driver.cuMemcpyHtoD_v2(address + at, &mark, sizeof mark);
        }
    }
    return result;
}

CUresult marks_compare(CUdeviceptr address, uint64_t bytes, uint64_t seed, uint64_t *changed) {
    CUresult result = CUDA_SUCCESS;
    for (uint64_t i = 0; i * APART < bytes && result == CUDA_SUCCESS; i++) {
        uint64_t at = place_of(bytes, i);
        struct mark want = mark_of(seed, i), have;
        if (at >= bytes) {
            continue;
        }
        memset(&have, 0, sizeof have);
        result = driver.cuMemcpyDtoH_v2(&have, address + at, sizeof have);
        for (size_t k = 0; k < sizeof have; k++) {
            *changed += ((unsigned char *)&have)[k] != ((unsigned char *)&want)[k];
        }
    }
    return result;
}
