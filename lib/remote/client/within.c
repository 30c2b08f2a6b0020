/* Whether a thread is inside a function of the program that a stream has called: the gate asks, and what calls such
 * functions says so. */
#include "remote/client/client.h"

static __thread bool within __attribute__((tls_model("initial-exec")));

bool remote_in_callback(void) {
    return within;
}

void remote_callback_enters(bool enters) {
    within = enters;
}
