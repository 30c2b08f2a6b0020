#include "cuda/fork.h"

#include <pthread.h>

static void tell(void) {
    TELL(forked, ());
}

void fork_watch(void) {
    pthread_atfork(NULL, NULL, tell);
}
