/* Through a socket what is posted is gathered, but for the first launch after a wait, which brings what is before it. */
#include "remote/client/test/setting.h"

#define RECORD sizeof(struct remote_head)

static void answer(struct remote_link *link, const struct remote_head *head,
                   const uint64_t *words) {
    (void)words;
    if (!head->posted) {
        setting_answer(link, head, 0, 0, 5);
    }
}

static void post(enum remote_number number, unsigned count) {
    const struct remote_head head = {.size = sizeof head, .call = (uint16_t)number, .posted = 1};

    for (unsigned i = 0; i < count; i++) {
        CHECK(remote_send(&head, NULL, 0));
    }
}

static void wait(void) {
    uint64_t value;

    CHECK_EQUAL(setting_ask(REMOTE_cuEventQuery, 0, &value), 0);
}

/* Bytes that nobody can have seen yet. */
static size_t gathered(void) {
    return remote_session_link()->gathered;
}

static void test(enum remote_link_kind kind) {
    size_t each = kind == REMOTE_LINK_STREAM ? RECORD : 0;

    remote_gather_for = INT64_C(3600) * 1000000000;
    setting_start(kind, answer);
    CHECK_EQUAL(cuInit(0), 0);
    wait();
    unsigned long before = setting_records();
    post(REMOTE_cuGraphDestroy, 3);
    CHECK_EQUAL(gathered(), 3 * each);
    post(REMOTE_cuLaunchKernel, 1);
    CHECK_EQUAL(gathered(), 0);
    UNTIL(setting_records() == before + 4);
    post(REMOTE_cuLaunchKernel, 10);
    CHECK_EQUAL(gathered(), 10 * each);
    wait();
    CHECK_EQUAL(gathered(), 0);
    CHECK_EQUAL(setting_records(), before + 15);
    post(REMOTE_cuGraphLaunch, 1);
    CHECK_EQUAL(gathered(), 0);
    UNTIL(setting_records() == before + 16);
}

int main(void) {
    return setting_run(test);
}
