/* A call in which the driver holds its caller holds nobody else: records of other threads go on, the answer comes when the driver
 * gives it, and what ends, or is read, is nobody else's meanwhile. */
#include "remote/test/served.h"

#include <string.h>
#include <unistd.h>

static void enter(uint64_t number, uint64_t flags) {
    CHECK_EQUAL(served_ask(REMOTE_cuCtxCreate_v2, 1, WORDS(number, flags, 0)).result, 0);
    served_context = number;
}

static void bind(enum remote_kind kind, uint64_t number, const void *handle) {
    CHECK(remote_worker_bind(served_worker, kind, number, (uint64_t)handle));
}

/* Waits until the driver holds somebody. */
static void await_inside(void) {
    while (sem_wait(&served_inside)) {
    }
}

/* While a thread is held another one asks, about the same context and about none. */
static void ask_beside(uint64_t context) {
    uint32_t thread = served_thread;
    uint64_t before = served_context;

    served_thread = 2;
    served_context = context;
    CHECK_EQUAL(served_ask(REMOTE_cuDriverGetVersion, 1, NULL, 0).result, 0);
    CHECK_EQUAL(served_ask(REMOTE_cuEventRecord, 0, WORDS(30, 0)).result, 0);
    served_context = 0;
    CHECK_EQUAL(served_ask(REMOTE_cuDriverGetVersion, 1, NULL, 0).result, 0);
    served_context = before;
    served_thread = thread;
}

/* Lets go who is held: its answer, which is the next. */
static int32_t let_go(uint64_t held) {
    sem_post(&served_release);
    struct remote_answer answer = served_take();
    CHECK_EQUAL(answer.sequence, held);
    return answer.result;
}

static void check_free(void) {
    enter(10, 0);
    bind(REMOTE_KIND_CUevent, 30, (void *)0xe);
    uint64_t held = served_send(REMOTE_cuMemFree_v2, false, 0, WORDS(SERVED_HELD_MEMORY));
    await_inside();
    ask_beside(10);
    /* Another one that is held, which ends first or not. */
    served_thread = 3;
    uint64_t other = served_send(REMOTE_cuMemFree_v2, false, 0, WORDS(SERVED_HELD_MEMORY | 5));
    await_inside();
    ask_beside(10);
    sem_post(&served_release);
    sem_post(&served_release);
    for (int i = 0; i < 2; i++) {
        struct remote_answer answer = served_take();
        CHECK(answer.sequence == held || answer.sequence == other);
        CHECK_EQUAL(answer.result, answer.sequence == other ? 5 : 0);
    }
    served_end();
}

/* A posted one comes before all that follows, of whichever thread. */
static void check_posted(void) {
    enter(10, 0);
    served_send(REMOTE_cuMemFree_v2, true, 0, WORDS(SERVED_HELD_MEMORY));
    served_thread = 2;
    uint64_t behind = served_send(REMOTE_cuDriverGetVersion, false, 1, NULL, 0);
    await_inside();
    CHECK_CALLS("current 0;create;pop;current c000;free;");
    sem_post(&served_release);
    CHECK_EQUAL(served_take().sequence, behind);
    CHECK_CALLS("version;");
    served_end();
}

static void check_stream(void) {
    enter(10, 0);
    bind(REMOTE_KIND_CUevent, 30, (void *)0xe);
    bind(REMOTE_KIND_CUstream, 20, SERVED_HELD);
    uint64_t held = served_send(REMOTE_cuStreamDestroy_v2, false, 0, WORDS(20));
    await_inside();
    ask_beside(10);
    CHECK_EQUAL(served_ask(REMOTE_cuEventRecord, 0, WORDS(30, 20)).result,
                CUDA_ERROR_INVALID_HANDLE);
    /* The driver may have given the handle to another one already, which stays. */
    bind(REMOTE_KIND_CUstream, 21, SERVED_HELD);
    CHECK_EQUAL(let_go(held), 0);
    CHECK_EQUAL(remote_worker_known(served_worker, REMOTE_KIND_CUstream, (uint64_t)SERVED_HELD),
                21);
    served_end();
}

static void check_context(void) {
    enter(10, 0);
    enter(11, 7);
    bind(REMOTE_KIND_CUevent, 30, (void *)0xe);
    uint64_t held = served_send(REMOTE_cuCtxDestroy_v2, false, 0, WORDS(11));
    await_inside();
    CHECK_CALLS(
        "current 0;create;pop;current c000;create;pop;current c007;current c007;destroy c007;");
    /* One that has its handle by now is another, and is made current though that handle was. */
    bind(REMOTE_KIND_CUcontext, 12, SERVED_HELD_CONTEXT);
    served_context = 12;
    CHECK_EQUAL(served_ask(REMOTE_cuDriverGetVersion, 1, NULL, 0).result, 0);
    CHECK_CALLS("current c007;version;");
    ask_beside(10);
    ask_beside(11);
    CHECK_CALLS("current c000;version;record 0;current 0;version;version;record 0;version;");
    CHECK_EQUAL(let_go(held), 0);
    CHECK_EQUAL(served_ask(REMOTE_cuDriverGetVersion, 1, NULL, 0).result, 0);
    CHECK_CALLS("current c007;version;");
    served_end();
}

/* The function of a module that is there. */
static int32_t ask_function(uint64_t module) {
    static const char name[8] = "name";
    uint64_t text;

    memcpy(&text, name, sizeof text);
    return served_ask(REMOTE_cuModuleGetFunction, 5, WORDS(module, 5, text)).result;
}

static void check_unload(void) {
    enter(10, 0);
    bind(REMOTE_KIND_CUevent, 30, (void *)0xe);
    bind(REMOTE_KIND_CUmodule, 40, (void *)0xd00);
    bind(REMOTE_KIND_CUmodule, 41, SERVED_KEPT_MODULE);
    for (uint64_t number = 40; number < 42; number++) {
        uint64_t held = served_send(REMOTE_cuModuleUnload, false, 0, WORDS(number));
        await_inside();
        ask_beside(10);
        CHECK_EQUAL(ask_function(number), CUDA_ERROR_INVALID_HANDLE);
        /* What the driver did not end is there again. */
        CHECK_EQUAL(let_go(held), number == 41 ? CUDA_ERROR_INVALID_HANDLE : 0);
        CHECK_EQUAL(ask_function(number), number == 41 ? 0 : CUDA_ERROR_INVALID_HANDLE);
    }
    served_end();
}

static void send_code(uint64_t number, const char code[8]) {
    uint64_t bytes;

    memcpy(&bytes, code, sizeof bytes);
    served_send(REMOTE_BULK, true, 1, WORDS(number, 8, 0, bytes));
}

/* The driver reads the code for as long as it likes, however much comes meanwhile. */
static void check_load(void) {
    enter(10, 0);
    bind(REMOTE_KIND_CUevent, 30, (void *)0xe);
    send_code(1, "kernels");
    uint64_t held = served_send(REMOTE_cuModuleLoadData, false, 3, WORDS(50, 1, 8));
    await_inside();
    for (uint64_t number = 2; number < 200; number++) {
        send_code(number, "another");
    }
    ask_beside(10);
    CHECK_CALLS(
        "current 0;create;pop;current c000;current c000;version;record 0;current 0;version;");
    CHECK_EQUAL(let_go(held), 0);
    CHECK_CALLS("load kernels;");
    CHECK_EQUAL(remote_worker_known(served_worker, REMOTE_KIND_CUmodule, 0xd010), 50);
    served_end();
}

/* More than there are threads: the executor makes the call itself, and nothing is lost. */
static void check_many(void) {
    enter(10, 0);
    uint64_t first = served_sequence + 1;
    for (uint32_t i = 0; i < 256; i++) {
        served_thread = i;
        served_send(REMOTE_cuMemFree_v2, false, 0, WORDS(SERVED_HELD_MEMORY | 3));
        await_inside();
    }
    uint64_t last = served_send(REMOTE_cuMemFree_v2, false, 0, WORDS(SERVED_HELD_MEMORY | 3));
    await_inside();
    for (uint64_t i = first; i <= last; i++) {
        sem_post(&served_release);
    }
    for (uint64_t i = first; i <= last; i++) {
        struct remote_answer answer = served_take();
        CHECK(answer.sequence >= first && answer.sequence <= last && answer.result == 3);
    }
    served_end();
}

/* What is judged ends the link, or is answered, as by the executor; and the driver is not called. */
static void check_refused(void) {
    size_t size;

    CHECK_EQUAL(served_ask(REMOTE_cuStreamDestroy_v2, 0, WORDS(77)).result,
                CUDA_ERROR_INVALID_HANDLE);
    served_send(REMOTE_cuModuleLoadData, false, 3, WORDS(50, 999, 8));
    CHECK_EQUAL(remote_link_take(served_client, served_frame, &size, -1), REMOTE_ENDED);
    CHECK(strstr(served_stop(), "record 2, call"));
}

int main(void) {
    alarm(300); /* who is held for ever is not let go */
    SERVED_EACH(check_free());
    SERVED_EACH(check_posted());
    SERVED_EACH(check_stream());
    SERVED_EACH(check_context());
    SERVED_EACH(check_unload());
    SERVED_EACH(check_load());
    SERVED_EACH(check_many());
    SERVED_EACH(check_refused());
    return 0;
}
