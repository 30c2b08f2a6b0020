/* Captures of streams. Whose they are, and under which mode, decides which calls of the program's threads the driver
 * refuses meanwhile. To the driver all are of one thread, the executor. So a record is executed under the mode RELAXED, with
 * which nothing is refused, unless its thread would be refused what it asks: then under GLOBAL, with which all is. */
#include "remote/worker/hand.h"

#include <pthread.h>
#include <string.h>

#define MOST_CAPTURES 64u
#define MOST_MODES 1024u
#define PER_THREAD 2u

static struct capture {
    uint64_t stream; /* number, in which the capture began */
    uint32_t thread;
    uint32_t mode;
} captures[MOST_CAPTURES];
static unsigned capture_count; /* read without the lock */
/* Threads whose mode is not GLOBAL, which it is at first. */
static struct mode {
    uint32_t thread;
    uint32_t mode;
} modes[MOST_MODES];
static unsigned mode_count;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* What the driver has for the calling thread. */
static __thread uint32_t driver_s = CU_STREAM_CAPTURE_MODE_GLOBAL;

bool remote_capture_active(void) {
    return __atomic_load_n(&capture_count, __ATOMIC_RELAXED) != 0;
}

static struct mode *find_mode(uint32_t thread) {
    for (unsigned i = 0; i < mode_count; i++) {
        if (modes[i].thread == thread) {
            return &modes[i];
        }
    }
    return NULL;
}

static uint32_t mode_of(uint32_t thread) {
    const struct mode *mode = find_mode(thread);

    return mode ? mode->mode : CU_STREAM_CAPTURE_MODE_GLOBAL;
}

static void set_mode(uint32_t thread, uint32_t mode) {
    struct mode *at = find_mode(thread);

    if (mode == CU_STREAM_CAPTURE_MODE_GLOBAL) {
        if (at) {
            *at = modes[--mode_count];
        }
    } else if (at) {
        at->mode = mode;
    } else if (mode_count < MOST_MODES) {
        modes[mode_count++] = (struct mode){thread, mode};
    }
}

/* Whether the driver would refuse this thread of the program what is not safe while a stream is captured. */
static bool is_forbidden(uint32_t thread) {
    uint32_t mode = mode_of(thread);

    for (unsigned i = 0; i < capture_count && mode != CU_STREAM_CAPTURE_MODE_RELAXED; i++) {
        const struct capture *c = &captures[i];

        if (c->mode != CU_STREAM_CAPTURE_MODE_RELAXED &&
            (c->thread == thread ||
             (c->mode == CU_STREAM_CAPTURE_MODE_GLOBAL && mode == CU_STREAM_CAPTURE_MODE_GLOBAL))) {
            return true;
        }
    }
    return false;
}

bool remote_capture_forbids(uint32_t thread) {
    if (!remote_capture_active()) {
        return false;
    }
    pthread_mutex_lock(&lock);
    bool forbids = is_forbidden(thread);
    pthread_mutex_unlock(&lock);
    return forbids;
}

static void exchange(const struct remote_cuda_driver *cuda, uint32_t wanted) {
    CUstreamCaptureMode mode = (CUstreamCaptureMode)wanted;

    if (wanted != driver_s && cuda->cuThreadExchangeStreamCaptureMode &&
        cuda->cuThreadExchangeStreamCaptureMode(&mode) == CUDA_SUCCESS) {
        driver_s = wanted;
    }
}

void remote_capture_apply(struct remote_worker *worker, const struct remote_head *head) {
    if (!remote_capture_active()) {
        return;
    }
    pthread_mutex_lock(&lock);
    uint32_t wanted =
        is_forbidden(head->thread) ? CU_STREAM_CAPTURE_MODE_GLOBAL : CU_STREAM_CAPTURE_MODE_RELAXED;
    pthread_mutex_unlock(&lock);
    exchange(remote_worker_cuda(worker), wanted);
}

void remote_capture_relax(struct remote_worker *worker) {
    if (remote_capture_active()) {
        exchange(remote_worker_cuda(worker), CU_STREAM_CAPTURE_MODE_RELAXED);
    }
}

/* What a call is to captures: which of its words has the mode, and the stream as the program means it. */
enum effect { NOTHING, BEGINS, ENDS, DESTROYS };

static enum effect effect_of(uint16_t call, unsigned *mode_word) {
    *mode_word = 0;
    switch (call) {
    case REMOTE_cuStreamBeginCapture:
    case REMOTE_cuStreamBeginCapture_ptsz:
        return BEGINS;
    case REMOTE_cuStreamBeginCapture_v2:
    case REMOTE_cuStreamBeginCapture_v2_ptsz:
        *mode_word = 1;
        return BEGINS;
    case REMOTE_cuStreamBeginCaptureToGraph:
    case REMOTE_cuStreamBeginCaptureToGraph_ptsz:
        *mode_word = 3;
        return BEGINS;
    case REMOTE_cuStreamEndCapture:
    case REMOTE_cuStreamEndCapture_ptsz:
        return ENDS;
    case REMOTE_cuStreamDestroy:
    case REMOTE_cuStreamDestroy_v2:
        return DESTROYS;
    default:
        return NOTHING;
    }
}

/* A stream's number, or one that no stream has for that of a thread. */
static uint64_t stream_of(uint16_t call, uint32_t thread, uint64_t number) {
    return number == PER_THREAD || (number == 0 && remote_is_per_thread(call)) ? UINT64_MAX - thread
                                                                               : number;
}

static struct capture *find(uint64_t stream) {
    for (unsigned i = 0; i < capture_count; i++) {
        if (captures[i].stream == stream) {
            return &captures[i];
        }
    }
    return NULL;
}

int32_t remote_capture_before(struct remote_worker *worker, const void *record, size_t size) {
    struct remote_head head;
    uint64_t number;
    unsigned word;
    int32_t instead = 0;

    if (!remote_capture_active() || size < sizeof head) {
        return 0;
    }
    memcpy(&head, record, sizeof head);
    remote_capture_apply(worker, &head);
    if (size >= sizeof head + sizeof number && effect_of(head.call, &word) == ENDS) {
        memcpy(&number, (const unsigned char *)record + sizeof head, sizeof number);
        pthread_mutex_lock(&lock);
        const struct capture *c = find(stream_of(head.call, head.thread, number));
        if (c && c->thread != head.thread && c->mode != CU_STREAM_CAPTURE_MODE_RELAXED) {
            instead = CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
        }
        pthread_mutex_unlock(&lock);
    }
    return instead;
}

static void begin(const struct remote_decoder *decoder, unsigned word) {
    if (capture_count < MOST_CAPTURES) {
        captures[capture_count] = (struct capture){
            .stream = stream_of(decoder->head.call, decoder->head.thread, decoder->words[0]),
            .thread = decoder->head.thread,
            .mode = word ? (uint32_t)decoder->words[word] : CU_STREAM_CAPTURE_MODE_GLOBAL,
        };
        __atomic_store_n(&capture_count, capture_count + 1, __ATOMIC_RELAXED);
    }
}

static void end(const struct remote_decoder *decoder) {
    struct capture *c =
        find(stream_of(decoder->head.call, decoder->head.thread, decoder->words[0]));

    if (c) {
        *c = captures[capture_count - 1];
        __atomic_store_n(&capture_count, capture_count - 1, __ATOMIC_RELAXED);
    }
}

void remote_capture_after(const struct remote_decoder *decoder) {
    unsigned word;
    enum effect effect = effect_of(decoder->head.call, &word);

    if (effect == NOTHING || decoder->refused) {
        return;
    }
    pthread_mutex_lock(&lock);
    if (effect == BEGINS && decoder->result == 0) {
        begin(decoder, word);
    } else if (effect == ENDS && decoder->result != CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD &&
               decoder->result != CUDA_ERROR_STREAM_CAPTURE_UNMATCHED) {
        end(decoder);
    } else if (effect == DESTROYS && decoder->result == 0) {
        end(decoder);
    }
    pthread_mutex_unlock(&lock);
}

enum remote_outcome remote_hand_capture_mode(struct remote_decoder *decoder) {
    if (!remote_words(decoder, 1) || !remote_taken(decoder, true) ||
        decoder->words[0] > CU_STREAM_CAPTURE_MODE_RELAXED) {
        return REMOTE_GARBLED;
    }
    pthread_mutex_lock(&lock);
    set_mode(decoder->head.thread, (uint32_t)decoder->words[0]);
    pthread_mutex_unlock(&lock);
    return REMOTE_LATER;
}
