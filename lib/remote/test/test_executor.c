/* The worker's executor: which context is current, errors of posted calls, waits that others answer, streams of threads,
 * and records that end the link. */
#include "remote/test/served.h"

#include <string.h>

#define OWN (UINT64_C(1) << 62)

static struct remote_answer ask_version(void) {
    return served_ask(REMOTE_cuDriverGetVersion, 1, NULL, 0);
}

/* A context with this number, current from here on. */
static void enter(uint64_t number, uint64_t flags) {
    CHECK_EQUAL(served_ask(REMOTE_cuCtxCreate_v2, 1, WORDS(number, flags, 0)).result, 0);
    served_context = number;
}

static void free_later(uint64_t result) {
    served_send(REMOTE_cuMemFree_v2, true, 0, WORDS(0x10000 | result));
}

static void check_context(void) {
    CHECK_EQUAL(ask_version().result, 0);
    CHECK_CALLS("current 0;version;");
    enter(10, 1);
    CHECK_CALLS("create;pop;");
    enter(11, 2);
    CHECK_CALLS("current c001;create;pop;");
    ask_version();
    ask_version();
    CHECK_CALLS("current c002;version;version;");
    served_context = 10;
    ask_version();
    CHECK_CALLS("current c001;version;");
    CHECK_EQUAL(served_ask(REMOTE_cuCtxDestroy_v2, 0, WORDS(10)).result, 0);
    ask_version();
    CHECK_CALLS("current c001;destroy c001;current 0;version;");
    CHECK_EQUAL(served_ask(REMOTE_cuCtxDestroy_v2, 0, WORDS(10)).result,
                CUDA_ERROR_INVALID_CONTEXT);
    CHECK_EQUAL(served_ask(REMOTE_cuCtxCreate_v2, 1, WORDS(12, 99, 0)).result,
                CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_CALLS("current 0;create;");
    served_context = 12;
    ask_version();
    CHECK_CALLS("current 0;version;");
    /* A number that names nothing costs nothing. */
    CHECK_EQUAL(served_ask(REMOTE_cuStreamSynchronize, 0, WORDS(77)).result,
                CUDA_ERROR_INVALID_HANDLE);
    served_end();
}

static void check_late(void) {
    enter(10, 1);
    enter(11, 2);
    CHECK_EQUAL(ask_version().late, 0);
    free_later(5);
    free_later(6);
    served_context = 10;
    free_later(7);
    served_context = 11;
    free_later(0);
    /* NVML has no contexts and tells none. */
    CHECK_EQUAL(served_ask(REMOTE_nvmlDeviceGetCount_v2, 1, NULL, 0).late, 0);
    CHECK_EQUAL(ask_version().late, 5);
    CHECK_EQUAL(ask_version().late, 0);
    served_context = 10;
    CHECK_EQUAL(ask_version().late, 7);
    free_later(8);
    served_context = 11;
    CHECK_EQUAL(ask_version().late, 0);
    /* Of a context that has ended anybody is told. */
    CHECK_EQUAL(served_ask(REMOTE_cuCtxDestroy_v2, 0, WORDS(10)).late, 8);
    CHECK_EQUAL(ask_version().late, 0);
    /* More contexts than have room: nothing is lost. */
    for (uint64_t i = 0; i < 100; i++) {
        served_context = 11;
        enter(100 + i, i + 100);
        free_later(20);
    }
    unsigned told = 0;
    for (uint64_t i = 0; i < 100; i++) {
        served_context = 100 + i;
        told += ask_version().late == 20;
    }
    CHECK_EQUAL(told, 64 + 1);
    /* A posted call answers nothing, even if it succeeds and writes. */
    served_send(REMOTE_cuDriverGetVersion, true, 1, NULL, 0);
    CHECK_EQUAL(ask_version().result, 0);
    served_end();
}

static void check_wait(void) {
    enter(10, 0);
    CHECK(remote_worker_bind(served_worker, REMOTE_KIND_CUstream, 20, (uint64_t)SERVED_HELD));
    CHECK(remote_worker_bind(served_worker, REMOTE_KIND_CUstream, 21, 0x7777));
    /* What has ended is answered at once. */
    CHECK_EQUAL(served_ask(REMOTE_cuStreamSynchronize, 0, WORDS(21)).result, 0);
    uint64_t held = served_send(REMOTE_cuStreamSynchronize, false, 0, WORDS(20));
    served_thread = 2;
    for (int i = 0; i < 3; i++) {
        CHECK_EQUAL(ask_version().result, 0);
    }
    uint64_t other = served_send(REMOTE_cuStreamSynchronize, false, 0, WORDS(20));
    CHECK_EQUAL(ask_version().result, 0);
    sem_post(&served_release);
    sem_post(&served_release);
    uint64_t first = served_take().sequence, second = served_take().sequence;
    CHECK((first == held && second == other) || (first == other && second == held));
    /* A late error is told also by an answer that another thread gives. */
    free_later(9);
    served_send(REMOTE_cuStreamSynchronize, false, 0, WORDS(20));
    sem_post(&served_release);
    CHECK_EQUAL(served_take().late, 9);
    served_end();
}

/* The threads that wait have a bound. */
static void check_many_waits(void) {
    enter(10, 0);
    CHECK(remote_worker_bind(served_worker, REMOTE_KIND_CUstream, 20, (uint64_t)SERVED_HELD));
    uint64_t first = served_sequence + 1;
    for (int i = 0; i < 256; i++) {
        served_thread = (uint32_t)i;
        served_send(REMOTE_cuStreamSynchronize, false, 0, WORDS(20));
    }
    CHECK_EQUAL(served_ask(REMOTE_cuStreamSynchronize, 0, WORDS(20)).result,
                CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQUAL(ask_version().result, 0);
    for (int i = 0; i < 256; i++) {
        sem_post(&served_release);
        struct remote_answer answer = served_take();
        CHECK(answer.sequence >= first && answer.sequence < first + 256 && answer.result == 0);
    }
    served_end();
}

static void check_threads(void) {
    CHECK_EQUAL(served_ask(REMOTE_cuEventRecord, 0, WORDS(0, 2)).result,
                CUDA_ERROR_INVALID_CONTEXT);
    enter(10, 0);
    CHECK(remote_worker_bind(served_worker, REMOTE_KIND_CUevent, 30, 0xe));
    CHECK_CALLS("current 0;create;pop;");
    served_ask(REMOTE_cuEventRecord, 0, WORDS(30, 2));
    CHECK_CALLS("current c000;stream 5010;record 5010;");
    served_ask(REMOTE_cuEventRecord_ptsz, 0, WORDS(30, 0));
    served_ask(REMOTE_cuEventRecord_ptsz, 0, WORDS(30, 1));
    served_ask(REMOTE_cuEventRecord, 0, WORDS(30, 0));
    CHECK_CALLS("record 5010;record 1;record 0;");
    served_thread = 2;
    served_ask(REMOTE_cuEventRecord, 0, WORDS(30, 2));
    CHECK_CALLS("stream 5020;record 5020;");
    /* The program cannot end it, and sees no other handle in its place. */
    CHECK_EQUAL(served_ask(REMOTE_cuStreamDestroy_v2, 0, WORDS(2)).result,
                CUDA_ERROR_INVALID_HANDLE);
    CHECK_CALLS("current c000;end 2;");
    CHECK_EQUAL(remote_worker_number(served_worker, REMOTE_KIND_CUstream, 0x5020), 2);
    /* What takes no stream comes after what the thread has, and before what it does next. */
    served_ask(REMOTE_cuMemcpyDtoD_v2_ptds, 0, WORDS(1, 2, 3));
    CHECK_CALLS("record 5020;wait 2;copy;record 2;wait 5020;");
    /* With its context it goes. */
    enter(11, 1);
    served_ask(REMOTE_cuCtxDestroy_v2, 0, WORDS(10));
    enter(10, 2);
    CHECK_CALLS("create;pop;current c001;current c001;destroy c000;current c001;create;pop;");
    served_ask(REMOTE_cuEventRecord, 0, WORDS(30, 2));
    CHECK_CALLS("current c002;stream 5040;record 5040;");
    served_end();
}

/* The streams in a primary context end when that does. */
static void check_primary(void) {
    uint64_t number;

    CHECK_EQUAL(served_ask(REMOTE_cuDevicePrimaryCtxRetain, 1, WORDS(0)).given, 1);
    memcpy(&number, served_frame + sizeof(struct remote_answer), sizeof number);
    CHECK(number >= OWN);
    CHECK(remote_worker_bind(served_worker, REMOTE_KIND_CUevent, 30, 0xe));
    served_context = number;
    served_ask(REMOTE_cuEventRecord, 0, WORDS(30, 2));
    served_ask(REMOTE_cuEventRecord, 0, WORDS(30, 2));
    CHECK_CALLS("current 0;current c000;stream 5010;record 5010;record 5010;");
    CHECK_EQUAL(served_ask(REMOTE_cuDevicePrimaryCtxReset_v2, 0, WORDS(0)).result, 0);
    served_ask(REMOTE_cuEventRecord, 0, WORDS(30, 2));
    CHECK_CALLS("current c000;stream 5020;record 5020;");
    served_end();
}

/* The worker ends the link, and has called nothing. */
static void check_refused(uint16_t call, uint32_t given, const uint64_t *words, size_t count) {
    size_t size;

    served_send(call, false, given, words, count);
    CHECK_EQUAL(remote_link_take(served_client, served_frame, &size, -1), REMOTE_ENDED);
    CHECK_CALLS("current 0;");
    CHECK(strstr(served_stop(), "record 1, call"));
}

/* A call that has no decoder, as the client makes another of it: a file is read there. */
static void check_by_hand(void) {
    CHECK(!remote_hand_decoder(REMOTE_cuModuleLoad));
    CHECK_EQUAL(served_ask(REMOTE_cuModuleLoad, 0, NULL, 0).result, CUDA_ERROR_NOT_SUPPORTED);
    served_end();
}

/* A sign of life means nothing. */
static void check_beat(void) {
    served_send(REMOTE_BEAT, true, 0, NULL, 0);
    CHECK_EQUAL(ask_version().late, 0);
    CHECK_EQUAL(served_ask(REMOTE_BEAT, 0, NULL, 0).result, 0);
    served_end();
}

int main(void) {
    SERVED_EACH(check_context());
    SERVED_EACH(check_late());
    SERVED_EACH(check_wait());
    SERVED_EACH(check_many_waits());
    SERVED_EACH(check_threads());
    SERVED_EACH(check_primary());
    SERVED_EACH(check_by_hand());
    SERVED_EACH(check_beat());
    /* What the driver never makes, because it could not be named. */
    SERVED_EACH(check_refused(REMOTE_cuCtxCreate_v2, 1, WORDS(0, 0, 0)));
    SERVED_EACH(check_refused(REMOTE_cuCtxCreate_v2, 1, WORDS(OWN, 0, 0)));
    /* Too long, too short, and calls that are none. */
    SERVED_EACH(check_refused(REMOTE_cuDriverGetVersion, 0, WORDS(0)));
    SERVED_EACH(check_refused(REMOTE_cuEventRecord, 0, WORDS(0)));
    SERVED_EACH(check_refused(0x7eff, 0, NULL, 0));
    SERVED_EACH(check_refused(0xffff, 0, NULL, 0));
    return 0;
}
