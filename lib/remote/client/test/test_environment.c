/* Before the worker's driver is initialized it learns what the program wants to see, as it is then. */
#include "remote/client/test/setting.h"

#include <pthread.h>
#include <string.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char said[256];
static unsigned told;   /* how often */
static bool begun_late; /* cuInit came before */
static bool begun;

static void note(struct remote_link *link, const struct remote_head *head, const uint64_t *words) {
    pthread_mutex_lock(&lock);
    if (head->call == REMOTE_ENVIRONMENT) {
        CHECK_EQUAL(head->posted, 1);
        CHECK_EQUAL(head->size, sizeof *head + 8 + remote_padded(words[0]));
        CHECK(words[0] < sizeof said);
        memcpy(said, words + 1, words[0]);
        told++;
        begun_late = begun;
    } else {
        begun = true;
        setting_answer(link, head, 0, 0, 0);
    }
    pthread_mutex_unlock(&lock);
}

int main(void) {
    static const char want[] = "CUDA_VISIBLE_DEVICES=3,1\0CUDA_DEVICE_ORDER=PCI_BUS_ID";

    setting_start(REMOTE_LINK_RINGS, note);
    unsetenv("CUDA_DEVICE_ORDER");
    unsetenv("CUDA_VISIBLE_DEVICES");
    CHECK_EQUAL(cuInit(1), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQUAL(setting_connections(), 0);
    CHECK_EQUAL(cuInit(0), 0);
    pthread_mutex_lock(&lock);
    CHECK_EQUAL(told, 0);
    begun = false;
    pthread_mutex_unlock(&lock);
    setenv("CUDA_VISIBLE_DEVICES", "3,1", 1);
    setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID", 1);
    CHECK_EQUAL(cuInit(0), 0);
    pthread_mutex_lock(&lock);
    CHECK_EQUAL(told, 1);
    CHECK(!begun_late);
    CHECK_EQUAL(memcmp(said, want, sizeof want), 0);
    pthread_mutex_unlock(&lock);
    return 0;
}
