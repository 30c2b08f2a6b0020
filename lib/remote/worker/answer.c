/* Answers, from whichever thread, and the errors of posted calls that travel with them. */
#include "remote/worker/state.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define MOST_LATE 64u

/* The first error of a context since it was told. */
struct late {
    uint64_t context;
    int32_t result;
};

struct remote_answers {
    pthread_mutex_t lock; /* one frame at a time */
    struct late late[MOST_LATE];
    size_t late_count;
    int32_t rest; /* the first of a context for which there was no room */
};

struct remote_answers *remote_answers_new(void) {
    struct remote_answers *answers = calloc(1, sizeof *answers);

    if (answers) {
        pthread_mutex_init(&answers->lock, NULL);
    }
    return answers;
}

void remote_answers_free(struct remote_answers *answers) {
    if (answers) {
        pthread_mutex_destroy(&answers->lock);
        free(answers);
    }
}

void remote_worker_late(struct remote_worker *worker, const struct remote_head *record,
                        int32_t result) {
    struct remote_answers *answers = worker->answers;
    size_t i = 0;

    if (!result) {
        return;
    }
    pthread_mutex_lock(&answers->lock);
    while (i < answers->late_count && answers->late[i].context != record->context) {
        i++;
    }
    if (i < MOST_LATE && i == answers->late_count) {
        answers->late[answers->late_count++] = (struct late){record->context, result};
    } else if (i == MOST_LATE && !answers->rest) {
        answers->rest = result;
    }
    pthread_mutex_unlock(&answers->lock);
}

/* A context that is none, or has ended, asks nothing any more: anybody is told its error. */
static bool is_heir(struct remote_worker *worker, uint64_t context, uint64_t of) {
    uint64_t handle;

    return context == of || !of ||
           !remote_worker_resolve(worker, REMOTE_KIND_CUcontext, of, &handle);
}

/* The error that an answer to this context tells. */
static int32_t take_late(struct remote_worker *worker, uint64_t context) {
    struct remote_answers *answers = worker->answers;
    int32_t result = answers->rest;

    for (size_t i = 0; i < answers->late_count; i++) {
        if (is_heir(worker, context, answers->late[i].context)) {
            result = answers->late[i].result;
            answers->late_count--;
            memmove(&answers->late[i], &answers->late[i + 1],
                    (answers->late_count - i) * sizeof answers->late[0]);
            return result;
        }
    }
    answers->rest = 0;
    return result;
}

static bool is_nvml(uint16_t call) {
    return call >= REMOTE_NVML && call < REMOTE_SNAPSHOT;
}

static void (*before)(struct remote_worker *worker);

void remote_worker_before_answers(void (*call)(struct remote_worker *worker)) {
    __atomic_store_n(&before, call, __ATOMIC_RELEASE);
}

/* A link that has ended is noticed by whoever takes from it. */
static void put(struct remote_worker *worker, const struct remote_head *record,
                struct remote_answer *answer, size_t size, const struct remote_piece *pieces,
                size_t count) {
    void (*first)(struct remote_worker *) = __atomic_load_n(&before, __ATOMIC_ACQUIRE);

    if (record && first) {
        first(worker);
    }
    pthread_mutex_lock(&worker->answers->lock);
    if (record && !is_nvml(record->call)) {
        answer->late = (uint64_t)take_late(worker, record->context);
    }
    if (remote_link_put(worker->link, answer, size, pieces, count)) {
        remote_link_flush(worker->link);
    }
    pthread_mutex_unlock(&worker->answers->lock);
}

/* Whether the pieces fit into an answer, whose size is then said in it. */
static bool measure(struct remote_answer *answer, const struct remote_piece *pieces, size_t count) {
    size_t size = sizeof *answer;

    for (size_t i = 0; i < count; i++) {
        if (pieces[i].size > REMOTE_RECORD_BYTES - size) {
            return false;
        }
        size += remote_padded(pieces[i].size);
    }
    answer->size = (uint32_t)size;
    return true;
}

void remote_worker_say(struct remote_worker *worker, const struct remote_head *record,
                       int32_t result, uint32_t given, const struct remote_piece *pieces,
                       size_t count) {
    struct remote_answer answer = {
        .call = record->call, .sequence = record->sequence, .result = result, .given = given};

    if (record->posted) {
        remote_worker_late(worker, record, result);
        return;
    }
    if (!measure(&answer, pieces, count)) {
        answer.size = sizeof answer;
        answer.result = is_nvml(record->call) ? NVML_ERROR_NOT_SUPPORTED : CUDA_ERROR_NOT_SUPPORTED;
        answer.given = 0;
        count = 0;
    }
    put(worker, record, &answer, sizeof answer, pieces, count);
}

void remote_worker_answer(const struct remote_decoder *decoder) {
    struct remote_worker *worker = decoder->worker;
    struct remote_answer *answer = (struct remote_answer *)(void *)decoder->answer;

    if (decoder->head.posted) {
        remote_worker_late(worker, &decoder->head, decoder->result);
        return;
    }
    put(worker, &decoder->head, answer, answer->size, NULL, 0);
}

void remote_worker_notify(struct remote_worker *worker, uint16_t call,
                          const struct remote_piece *pieces, size_t count) {
    struct remote_answer notice = {.call = call};

    if (measure(&notice, pieces, count)) {
        put(worker, NULL, &notice, sizeof notice, pieces, count);
    }
}

void remote_worker_land(struct remote_worker *worker, uint64_t block, int32_t result,
                        const void *bytes, size_t size) {
    const struct remote_piece pieces[] = {{&block, sizeof block}, {bytes, size}};
    struct remote_answer notice = {.call = REMOTE_LANDED, .result = result};

    if (measure(&notice, pieces, 2)) {
        pthread_mutex_lock(&worker->answers->lock);
        remote_link_put(worker->link, &notice, sizeof notice, pieces, 2);
        pthread_mutex_unlock(&worker->answers->lock);
    }
}
