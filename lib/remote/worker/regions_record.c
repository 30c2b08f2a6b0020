/* Records about memory that both sides see: the area, through which bytes of the program go, and regions. */
#define _GNU_SOURCE
#include "remote/worker/regions.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Where both sides share no memory, the worker has an area of its own, which records fill. */
#define OWN_BYTES (UINT64_C(32) << 20)

static struct {
    unsigned char *at;
    size_t size;
    bool own;
} area;

unsigned char *remote_area(size_t *size) {
    *size = area.size;
    return area.at;
}

bool remote_area_pin(const struct remote_cuda_driver *cuda) {
    return remote_pin(cuda, area.at, area.size);
}

static void find_area(struct remote_worker *worker) {
    size_t size = 0;
    void *at = remote_link_area(remote_worker_link(worker), &size);

    if (area.at) {
        return;
    }
    if (at) {
        area.at = at;
        area.size = size;
    } else {
        at = mmap(NULL, OWN_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (at == MAP_FAILED) {
            return;
        }
        area.at = at;
        area.size = OWN_BYTES;
        area.own = true;
    }
    if (area.size > (size_t)REMOTE_MOST_BLOCKS * REMOTE_BLOCK_BYTES) {
        area.size = (size_t)REMOTE_MOST_BLOCKS * REMOTE_BLOCK_BYTES;
    }
    area.size -= area.size % REMOTE_BLOCK_BYTES;
}

static enum remote_outcome open_area(struct remote_decoder *decoder) {
    if (!remote_taken(decoder, true)) {
        return remote_not_called(decoder);
    }
    find_area(decoder->worker);
    struct remote_area_facts facts = {area.size, area.at && remote_area_pin(decoder->cuda)};
    remote_answer(decoder, area.at ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY);
    remote_give(decoder, 0, &facts, sizeof facts, false);
    return remote_finish(decoder);
}

/* Only memory of the worker's own is written for the client: what both share it writes itself. */
static enum remote_outcome write_area(struct remote_decoder *decoder) {
    uint64_t offset = decoder->words[1], size = decoder->words[2];
    const void *bytes = remote_in(decoder, 0, size, 1);

    decoder->garbled |= !bytes || !area.own || offset > area.size || size > area.size - offset;
    if (!remote_taken(decoder, true) || !bytes) {
        return remote_not_called(decoder);
    }
    memcpy(area.at + offset, bytes, size);
    remote_answer(decoder, CUDA_SUCCESS);
    return remote_finish(decoder);
}

static enum remote_outcome tell_freed(struct remote_decoder *decoder) {
    static uint32_t blocks[REMOTE_MOST_BLOCKS];

    if (!remote_taken(decoder, true)) {
        return remote_not_called(decoder);
    }
    size_t count = remote_chunks_freed(decoder->worker, blocks);
    remote_answer(decoder, CUDA_SUCCESS);
    remote_give_some(decoder, 0, blocks, count, sizeof *blocks, false);
    return remote_finish(decoder);
}

static enum remote_outcome add_or_move(struct remote_decoder *decoder) {
    uint64_t number = decoder->words[1];
    CUdeviceptr device = 0;
    CUresult result;

    if (!remote_taken(decoder, true)) {
        return remote_not_called(decoder);
    }
    if (decoder->words[0] == REMOTE_REGION_ADD) {
        int file = remote_link_receive(remote_worker_link(decoder->worker), number);
        result = remote_copy_may_block(decoder);
        if (result == CUDA_SUCCESS) {
            result = remote_region_add(decoder->cuda, file, number, decoder->words[2], &device);
        } else if (file >= 0) {
            close(file);
        }
    } else {
        result = remote_region_move(decoder->cuda, number, decoder->words[2], &device);
    }
    remote_answer(decoder, (int32_t)result);
    remote_give(decoder, 0, &device, sizeof device, false);
    return remote_finish(decoder);
}

/* When the GPU uses it no more. The driver frees its own host memory so; of memory that is registered it does not say it. While
 * a stream is captured it must not be asked. */
static void end_later(struct remote_worker *worker, const struct remote_head *head,
                      void *argument) {
    const struct remote_region_left *left = argument;

    if (!remote_capture_active()) {
        remote_worker_cuda(worker)->cuCtxSynchronize();
    }
    CUresult result = remote_worker_cuda(worker)->cuMemHostUnregister(left->at);

    munmap(left->at, left->size);
    remote_worker_say(worker, head, (int32_t)result, 0, NULL, 0);
}

static enum remote_outcome end(struct remote_decoder *decoder) {
    struct remote_region_left left;

    decoder->garbled |= decoder->head.posted != 0;
    if (!remote_taken(decoder, true)) {
        return remote_not_called(decoder);
    }
    if (!remote_region_take(decoder->words[1], &left)) {
        remote_answer(decoder, CUDA_ERROR_INVALID_VALUE);
        return remote_finish(decoder);
    }
    if (remote_worker_later(decoder, end_later, &left, sizeof left)) {
        return REMOTE_LATER;
    }
    /* It stays mapped, because here nothing may wait for the GPU. */
    remote_answer(decoder, CUDA_ERROR_OUT_OF_MEMORY);
    return remote_finish(decoder);
}

enum remote_outcome remote_hand_region(struct remote_decoder *decoder) {
    if (!remote_words(decoder, REMOTE_REGION_WORDS)) {
        return REMOTE_GARBLED;
    }
    switch (decoder->words[0]) {
    case REMOTE_AREA_OPEN:
        return open_area(decoder);
    case REMOTE_AREA_WRITE:
        return write_area(decoder);
    case REMOTE_AREA_FREED:
        return tell_freed(decoder);
    case REMOTE_REGION_ADD:
    case REMOTE_REGION_MOVE:
        return add_or_move(decoder);
    case REMOTE_REGION_END:
        return end(decoder);
    default:
        return REMOTE_GARBLED;
    }
}
