/* Functions of the program that a worker says are due: those that were given, as often as they may be called, in the order
 * of the notices; each ticket is returned once, also for a function that is none. */
#include "abi/generated/cuda_functions.h"
#include "remote/client/test/setting.h"
#include "remote/due.h"

#include <pthread.h>
#include <string.h>

#define MOST 64u

static uint64_t given[MOST], returned[MOST];
static unsigned given_count, returned_count, calls;
static int order[MOST];

/* Frames are put by one thread at a time. */
static pthread_mutex_t putting = PTHREAD_MUTEX_INITIALIZER;

static void put_notice(struct remote_link *link, struct due_notice of) {
    struct remote_answer head = {.size = sizeof head + sizeof of, .call = REMOTE_CALLBACK};
    const struct remote_piece piece = {&of, sizeof of};

    CHECK(remote_link_put(link, &head, sizeof head, &piece, 1));
    remote_link_flush(link);
}

static void notice(struct remote_link *link, struct due_notice of) {
    pthread_mutex_lock(&putting);
    put_notice(link, of);
    pthread_mutex_unlock(&putting);
}

/* A success that writes nothing. */
static void succeed(struct remote_link *link, const struct remote_head *head) {
    const struct remote_answer answer = {
        .size = sizeof answer, .call = head->call, .sequence = head->sequence};

    CHECK(remote_link_put(link, &answer, sizeof answer, NULL, 0));
    remote_link_flush(link);
}

static void take_one(struct remote_link *link, const struct remote_head *head,
                     const uint64_t *words) {
    switch (head->call) {
    case REMOTE_CALLBACK:
        CHECK(!head->posted && returned_count < MOST);
        returned[returned_count] = words[0];
        __atomic_add_fetch(&returned_count, 1, __ATOMIC_RELEASE);
        return;
    case REMOTE_cuLaunchHostFunc:
        CHECK(given_count < MOST);
        given[given_count] = words[DUE_FUNCTION];
        __atomic_add_fetch(&given_count, 1, __ATOMIC_RELEASE);
        if (!head->posted) {
            succeed(link, head);
        }
        return;
    case REMOTE_cuUserObjectCreate:
        /* The object's destructor, of which nobody waits for the end; told twice, as no worker of ours does. */
        for (unsigned i = 0; i < 2; i++) {
            put_notice(link, (struct due_notice){.function = words[DUE_DESTROY], .last = 1});
        }
        succeed(link, head);
        return;
    default:
        setting_answer(link, head, 0, 0, 0);
    }
}

static void take(struct remote_link *link, const struct remote_head *head, const uint64_t *words) {
    pthread_mutex_lock(&putting);
    take_one(link, head, words);
    pthread_mutex_unlock(&putting);
}

static void called(void *number) {
    CUdevice device;

    CHECK_EQUAL(cuDeviceGet(&device, 0), CUDA_ERROR_NOT_PERMITTED);
    CHECK(calls < MOST);
    order[calls] = *(int *)number;
    __atomic_add_fetch(&calls, 1, __ATOMIC_RELEASE);
}

static void test(enum remote_link_kind kind) {
    int numbers[] = {0, 1, 2};
    CUuserObject object;

    given_count = returned_count = calls = 0;
    setting_start(kind, take);
    CHECK_EQUAL(cuLaunchHostFunc(0, called, numbers), CUDA_ERROR_NOT_INITIALIZED);
    CHECK_EQUAL(cuInit(0), CUDA_SUCCESS);
    for (int i = 0; i < 3; i++) {
        CHECK_EQUAL(cuLaunchHostFunc(0, called, &numbers[i]), CUDA_SUCCESS);
    }
    UNTIL(__atomic_load_n(&given_count, __ATOMIC_ACQUIRE) == 3);
    CHECK_EQUAL(__atomic_load_n(&calls, __ATOMIC_ACQUIRE), 0);
    /* The last one first and twice, as a node's; the others once; one that the driver did not take; none. */
    notice(setting_link(), (struct due_notice){.ticket = 1, .function = given[2]});
    notice(setting_link(), (struct due_notice){.ticket = 2, .function = given[0], .last = 1});
    notice(setting_link(), (struct due_notice){.ticket = 3, .function = given[0], .last = 1});
    notice(setting_link(), (struct due_notice){.ticket = 4, .function = given[2], .last = 1});
    notice(setting_link(), (struct due_notice){.function = given[1], .last = 1, .unused = 1});
    notice(setting_link(), (struct due_notice){.ticket = 5, .function = given[1]});
    notice(setting_link(), (struct due_notice){.ticket = 6, .function = UINT64_MAX});
    UNTIL(__atomic_load_n(&returned_count, __ATOMIC_ACQUIRE) == 6);
    for (unsigned i = 0; i < 6; i++) {
        CHECK_EQUAL(returned[i], i + 1);
    }
    CHECK_EQUAL(__atomic_load_n(&calls, __ATOMIC_ACQUIRE), 3);
    CHECK(order[0] == 2 && order[1] == 0 && order[2] == 2);
    CHECK_EQUAL(cuUserObjectCreate(&object, &numbers[1], called, 1, 1), CUDA_SUCCESS);
    UNTIL(__atomic_load_n(&calls, __ATOMIC_ACQUIRE) == 4);
    CHECK_EQUAL(order[3], 1);
    notice(setting_link(), (struct due_notice){.ticket = 7, .function = given[0]});
    UNTIL(__atomic_load_n(&returned_count, __ATOMIC_ACQUIRE) == 7);
    CHECK_EQUAL(__atomic_load_n(&calls, __ATOMIC_ACQUIRE), 4);
}

int main(void) {
    return setting_run(test);
}
