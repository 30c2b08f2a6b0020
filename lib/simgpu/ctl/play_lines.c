/* simgpuctl play: reading lines, and giving work. */
#include "simgpu/ctl/play.h"

#include <stdarg.h>
#include <string.h>

bool play_wrong(const char *format, ...) {
    va_list list;

    fputs("error ", stdout);
    va_start(list, format);
    vprintf(format, list);
    va_end(list);
    putchar('\n');
    return false;
}

bool play_options(char **words, const struct play_option *known, unsigned count) {
    for (; words[0]; words += 2) {
        unsigned i = 0;
        while (i < count && strcmp(words[0], known[i].name) != 0) {
            i++;
        }
        if (i == count) {
            return play_wrong("unknown word %s", words[0]);
        }
        if (!words[1] || !ctl_duration(words[1], known[i].value)) {
            return play_wrong("%s needs a number", words[0]);
        }
    }
    return true;
}

void play_give(struct player *client, uint64_t stream, struct sg_work *work) {
    work->after = client->tails[stream];
    client->tails[stream] = sg_submit(&client->in, 0, sg_time(&client->in), work);
}
