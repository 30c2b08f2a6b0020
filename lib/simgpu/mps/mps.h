/* nvidia-cuda-mps-control of the simulated driver: the daemon that MPS is set by, and the program that asks it.
 *
 * It answers word for word as NVIDIA's programs of the drivers 535, 550 and 555 do on a machine whose servers cannot
 * start: it has no servers. test/drivers compares it with them. What they leave to chance (who waits while another
 * asks, what follows quit) is decided here: each command is answered when it comes, and nothing is after quit.
 */
#ifndef SIMGPU_MPS_MPS_H
#define SIMGPU_MPS_MPS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

/* The first packet to everybody who connects, with its zero byte, as drivers 535, 550 and 555 send
 * and await it (traced with strace). */
#define MPS_GREETING "OUTBHELL"
#define MPS_LINE_BYTES                                                                             \
    4096u /* of a command with the zero that ends it; a longer line is several commands */
#define MPS_SAID_BYTES 4096u /* of one line of an answer; more is cut off */
#define MPS_DEVICES 32
#define MPS_PATH_BYTES 108u /* of a socket, unix(7) */

/* Drivers whose control language differs, by their major versions. */
enum {
    MPS_STATUS_SINCE =
        550, /* get_server_status, a file with the daemon's pid, settings for its user alone */
    MPS_OPTIONS_SINCE = 555, /* several options, -multiuser-server among them; others are refused */
};

/* The first byte of a packet from the daemon. */
enum mps_packet {
    MPS_SAID = 's', /* a line of the answer follows */
    MPS_DONE = 'd', /* the answer is complete */
};

/* What commands set. */
struct mps_settings {
    double percentage;
    uint64_t limits[MPS_DEVICES]; /* bytes; 0 is none */
    int priority;
};

struct mps_daemon {
    int driver; /* the machine's major version */
    FILE *log;
    struct mps_settings settings;
    bool ended;
};

/* Somebody who asks. */
struct mps_ui {
    struct mps_daemon *daemon;
    int socket;
    uid_t user;
};

/* directories.c: where daemons are. */
const char *mps_pipe_directory(void);
const char *mps_log_directory(void);
/* Writes the path of an entry of the pipe directory; false when it is too long. */
bool mps_entry(char path[MPS_PATH_BYTES], const char *name);

/* commands.c */
void mps_settings_start(struct mps_settings *settings);
/* Obeys one command, which it changes. */
void mps_obey(struct mps_ui *ui, char *line);

/* say.c */
/* Writes a line to the daemon's log, and mps_say to who asks as well; an empty one to them alone. */
void mps_note(struct mps_daemon *daemon, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void mps_say(struct mps_ui *ui, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Sends one packet to who asks. */
void mps_send(const struct mps_ui *ui, enum mps_packet kind, const char *text);

/* serve.c */
/* Answers on the listening sockets until the daemon has ended. */
void mps_serve(struct mps_daemon *daemon, const int listeners[2]);

/* daemon.c: starts a daemon, in the background or not; returns the exit status. */
int mps_start(int driver, bool background);

/* ask.c: gives the commands of standard input to the daemon; returns the exit status. */
int mps_ask(void);

#endif
