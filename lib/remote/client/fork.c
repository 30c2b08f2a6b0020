/* What becomes of the client in the child of a fork: it forgets what is the parent's and sends nothing. Locks are made
 * free, because the thread that held one may not be in the child. A child after vfork shares its parent's memory until it
 * calls exec, and runs no handler: it must change nothing, and does not. */
#include "remote/client/inside.h"

#include <pthread.h>

void remote_forked(void) {
    remote_session_forked();
    remote_stream_forked();
    remote_wait_forked();
    remote_late_forked();
    remote_numbers_forked();
}

void remote_fork_watch(void) {
    static bool watched;

    if (!watched) {
        watched = pthread_atfork(NULL, NULL, remote_forked) == 0;
    }
}
