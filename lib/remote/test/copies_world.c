#define _GNU_SOURCE
#include "remote/test/copies_world.h"

#include "remote/client/inside.h"
#include "remote/test/exercise.h"
#include "remote/test/pair.h"
#include "remote/worker/copies.h"
#include "remote/worker/session.h"
#include "simgpu/machine/test/setting.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MOST 64

bool copies_shared;
size_t copies_area_bytes;
int (*copies_swap)(int descriptor);
struct remote_cuda_driver copies_driver;
unsigned long copies_landed;
bool copies_foreign;

static struct remote_range ranges[MOST];
static size_t range_count;
static int passed[REMOTE_MOST_REGIONS + 1];
static CUcontext context;

/* The session: there is always one. */
struct remote_link *remote_session_link(void) {
    return (struct remote_link *)&copies_shared;
}

void remote_session_end(const char *why) {
    (void)why;
    loopback_dead = true;
}

void *remote_link_area(struct remote_link *link, size_t *size) {
    static void *area;

    (void)link;
    *size = copies_shared ? copies_area_bytes : 0;
    if (copies_shared && !area) {
        area = mmap(NULL, copies_area_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
                    0);
        CHECK(area != MAP_FAILED);
    }
    return copies_shared ? area : NULL;
}

bool remote_give_descriptor(uint64_t number, int descriptor) {
    CHECK(number && number <= REMOTE_MOST_REGIONS);
    if (copies_shared) {
        passed[number] = copies_swap ? copies_swap(descriptor) : dup(descriptor);
        CHECK(passed[number] >= 0);
    }
    return copies_shared;
}

int remote_link_receive(struct remote_link *link, uint64_t number) {
    (void)link;
    int descriptor = number <= REMOTE_MOST_REGIONS && passed[number] ? passed[number] : -1;

    if (descriptor >= 0) {
        passed[number] = 0;
    }
    return descriptor;
}

/* The contexts. */
uint64_t remote_current(void) {
    return 7;
}

void remote_context_watch(void (*ended)(uint64_t context)) {
    (void)ended;
}

CUresult remote_current_result(void) {
    return CUDA_SUCCESS;
}

/* Nothing is captured. */
bool remote_capture_active(void) {
    return false;
}

void remote_capture_relax(struct remote_worker *worker) {
    (void)worker;
}

bool remote_capture_forbids(uint32_t thread) {
    (void)thread;
    return false;
}

/* The ranges. */
bool remote_range_find(CUdeviceptr address, struct remote_range *range) {
    for (size_t i = 0; i < range_count; i++) {
        if (address >= ranges[i].start && address - ranges[i].start < ranges[i].size) {
            *range = ranges[i];
            return true;
        }
    }
    return false;
}

bool remote_range_add(const struct remote_range *range) {
    CHECK(range_count < MOST);
    ranges[range_count++] = *range;
    return true;
}

bool remote_range_remove(CUdeviceptr start, struct remote_range *range) {
    for (size_t i = 0; i < range_count; i++) {
        if (ranges[i].start == start) {
            *range = ranges[i];
            ranges[i] = ranges[--range_count];
            return true;
        }
    }
    return false;
}

void copies_start(void) {
    sim_machine machine;

    setting_describe(&machine);
    machine.cuda_version = 13040;
    setting_make(&machine);
    pair_load(SIMGPU_FOLDER "libcuda.so.1");
    remote_cuda_driver_find(&copies_driver, pair_find);
    loopback_start(&copies_driver, &nvml_mock);
    CHECK_EQUAL(copies_driver.cuInit(0), CUDA_SUCCESS);
    CHECK_EQUAL(copies_driver.cuCtxCreate_v2(&context, 0, 0), CUDA_SUCCESS);
    CHECK(remote_worker_bind(NULL, REMOTE_KIND_CUcontext, 7, (uint64_t)(uintptr_t)context));
}

/* Bytes of posted copies come as the worker sends them. */
void remote_worker_land(struct remote_worker *worker, uint64_t block, int32_t result,
                        const void *bytes, size_t size) {
    size_t padded = remote_padded(size);
    /* Memory that ends where the frame does, so that a sanitizer sees a byte too far. */
    unsigned char *body = calloc(1, sizeof block + padded);
    const struct remote_answer head = {.size = (uint32_t)(sizeof head + sizeof block + padded),
                                       .call = REMOTE_LANDED,
                                       .result = result};

    (void)worker;
    copies_landed += !result;
    CHECK(body);
    memcpy(body, &block, sizeof block);
    if (size) {
        memcpy(body + sizeof block, bytes, size);
    }
    CHECK(copies_foreign || !remote_landed(&head, body));
    free(body);
}

void remote_worker_before_answers(void (*before)(struct remote_worker *worker)) {
    (void)before;
}

void copies_land(void) {
    CHECK_EQUAL(copies_driver.cuCtxSynchronize(), CUDA_SUCCESS);
    remote_landings_settle(NULL);
}

int32_t copies_send(const struct copies_words *words) {
    struct remote_call call;

    remote_begin(&call, words->call, words->count);
    call.head.posted = words->posted;
    memcpy(call.words, words->word, 8u * words->count);
    call.pieces[0] = (struct remote_piece){call.words, 8u * words->count};
    if (words->piece) {
        call.head.given = 1;
        call.pieces[call.piece_count++] = (struct remote_piece){words->piece, words->size};
        call.head.size += (uint32_t)remote_padded(words->size);
    }
    remote_send(&call.head, call.pieces, call.piece_count);
    return loopback_outcome == REMOTE_ANSWERED
               ? ((struct remote_answer *)(void *)loopback.answer)->result
               : -1;
}
