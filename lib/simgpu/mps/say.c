/* What the daemon says: to its log, and to who asks. */
#define _GNU_SOURCE
#include "simgpu/mps/mps.h"

#include <stdarg.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static void note(struct mps_daemon *daemon, const char *text) {
    struct timespec now;
    struct tm day;
    char stamp[32];

    clock_gettime(CLOCK_REALTIME, &now);
    localtime_r(&now.tv_sec, &day);
    strftime(stamp, sizeof stamp, "%Y-%m-%d %H:%M:%S", &day);
    fprintf(daemon->log, "[%s.%03ld Control %5d] %s\n", stamp, now.tv_nsec / 1000000, getpid(),
            text);
    fflush(daemon->log);
}

void mps_note(struct mps_daemon *daemon, const char *format, ...) {
    char text[MPS_SAID_BYTES + 1];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    note(daemon, text);
}

/* Who asks and does not read is not waited for. */
void mps_send(const struct mps_ui *ui, enum mps_packet kind, const char *text) {
    char packet[MPS_SAID_BYTES + 1];
    size_t length = strnlen(text, MPS_SAID_BYTES);

    packet[0] = (char)kind;
    memcpy(packet + 1, text, length);
    send(ui->socket, packet, length + 1, MSG_NOSIGNAL | MSG_DONTWAIT);
}

void mps_say(struct mps_ui *ui, const char *format, ...) {
    char text[MPS_SAID_BYTES + 1];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (*text) {
        note(ui->daemon, text);
    }
    mps_send(ui, MPS_SAID, text);
}
