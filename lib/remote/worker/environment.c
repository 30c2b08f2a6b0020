/* Variables of the program that the driver reads in cuInit, which comes after this record. The worker has those of the
 * command that it was started for; the program may have others by now. */
#include "remote/worker/hand.h"

#include <stdlib.h>
#include <string.h>

static const char *const allowed[] = {"CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"};

/* Sets one variable; false for one that nobody may send. */
static bool set(const char *entry) {
    size_t length = strcspn(entry, "=");

    for (size_t i = 0; i < sizeof allowed / sizeof *allowed; i++) {
        if (entry[length] == '=' && strlen(allowed[i]) == length &&
            strncmp(entry, allowed[i], length) == 0) {
            setenv(allowed[i], entry + length + 1, 1);
            return true;
        }
    }
    return false;
}

enum remote_outcome remote_hand_environment(struct remote_decoder *d) {
    if (!remote_words(d, 1) || d->words[0] == 0 || d->words[0] > REMOTE_ENVIRONMENT_BYTES) {
        return REMOTE_GARBLED;
    }
    size_t size = d->words[0];
    const char *text = remote_in(d, 0, size, 1);
    if (!text || !remote_taken(d, true) || text[size - 1] != '\0') {
        return REMOTE_GARBLED;
    }
    for (size_t at = 0; at < size; at += strlen(text + at) + 1) {
        if (!set(text + at)) {
            return REMOTE_GARBLED;
        }
    }
    d->head.given = 0;
    remote_answer(d, 0);
    return remote_finish(d);
}
