/* What copies stand on in one process: an area, descriptors that are passed, ranges that the client knows, and a driver that
 * is loaded. The client's functions have other names than the driver's. */
#ifndef DIVVY_REMOTE_TEST_COPIES_WORLD_H
#define DIVVY_REMOTE_TEST_COPIES_WORLD_H

#include "remote/client/copies.h"
#include "remote/generated/cuda_decode.h"
#include "remote/test/loopback.h"

#define CLIENT(name) stub_##name

/* Whether both sides share memory, and how much; said before the first copy. */
extern bool copies_shared;
extern size_t copies_area_bytes;
/* What descriptor the worker gets in place of the one that the client passed; NULL leaves it. */
extern int (*copies_swap)(int descriptor);

extern struct remote_cuda_driver copies_driver;

/* How many posted copies have brought their bytes. */
extern unsigned long copies_landed;
/* Whether they are of records that the client has not sent. */
extern bool copies_foreign;
/* Has the bytes of posted copies come, as the answer of a wait does. */
void copies_land(void);

/* Makes a machine and a context, on both sides the same. */
void copies_start(void);

struct copies_words {
    enum remote_number call;
    uint32_t count;
    bool posted;
    uint64_t word[REMOTE_SHAPE_WORDS];
    const void *piece;
    size_t size;
};

/* What the worker makes of a record: its answer's result, or -1 where the link ends. */
int32_t copies_send(const struct copies_words *words);

/* The prototypes of the client's functions by hand, under the names they have here. */
#define COPIES_DECLARE(name) extern __typeof__(name) stub_##name;
#define CUDA_BY_HAND(name, manner, reason) COPIES_DECLARE(name)
#include "remote/generated/cuda_by_hand.inc"
#undef CUDA_BY_HAND

#endif
