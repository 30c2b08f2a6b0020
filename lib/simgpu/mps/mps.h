/* nvidia-cuda-mps-control of the simulated driver: the daemon that MPS is set by, and the program that asks it.
 *
 * It answers word for word as NVIDIA's programs of the drivers 535, 550 and 555 do where no server runs: test/drivers
 * compares it with them. What they leave to chance (what a program reads that is refused, what follows quit) is decided
 * here: nothing is after quit. Servers are processes of the same program, see
 * server.c.
 */
#ifndef SIMGPU_MPS_MPS_H
#define SIMGPU_MPS_MPS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "simgpu/machine/join.h"
#include "simgpu/machine/state.h"

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

/* What the daemon knows of a server that it started. */
struct mps_server {
    pid_t pid; /* 0: none */
    uid_t uid;
    int socket;     /* to it */
    uint32_t entry; /* in the machine's table; SG_SERVERS_MAX until it is ready */
    bool leaving;   /* it takes no clients any more and ends with its last */
    bool ending;    /* it was killed */
};

/* A process that asked for a server and has not been answered, or a command that wants one. */
struct mps_waiter {
    int socket; /* -1: a command, which was answered */
    uid_t uid;
    pid_t pid;
    struct sg_join_request request;
    bool told; /* the log says that it waits */
};

#define MPS_WAITERS 128u

struct mps_daemon {
    int driver; /* the machine's major version */
    struct sg_instance *machine;
    bool any_user; /* one server serves all */
    uint32_t most; /* clients of a server */
    FILE *log;
    struct mps_settings settings;
    struct mps_server servers[SG_SERVERS_MAX];
    struct mps_waiter waiters[MPS_WAITERS]; /* in order of asking */
    uint32_t waiting;
    int quitter;      /* who said quit waits at this socket; -1: nobody did */
    uint64_t quit_at; /* when servers are ended whatever their clients do; 0 is never */
    bool ended;
};

/* Somebody who asks. */
struct mps_ui {
    struct mps_daemon *daemon;
    int socket;
    uid_t user;
    pid_t pid;
};

/* directories.c: where daemons are. */
const char *mps_pipe_directory(void);
const char *mps_log_directory(void);
/* Writes the path of an entry of the pipe directory; false when it is too long. */
bool mps_entry(char path[MPS_PATH_BYTES], const char *name);

/* servers.c: the daemon's servers and those who wait for them. */
/* Starts a server for a user; false, and a line in the log, when that cannot be. */
bool mps_server_begin(struct mps_daemon *daemon, uid_t uid);
/* The running server of that pid; NULL without. One that is not ready yet counts. */
struct mps_server *mps_server_find(struct mps_daemon *daemon, int pid);
/* Has a server end with its last client, or at once. */
void mps_server_leave(struct mps_daemon *daemon, struct mps_server *server, bool at_once);
/* Does what can be done for servers and waiters; returns in how many milliseconds it is to be done again, -1 when
 * only a packet changes something. */
int mps_settle(struct mps_daemon *daemon);
/* Keeps somebody who asks for a server; the connection is the daemon's from then on. Without a socket and a request
 * it is a command that wants one for the user. False when there are too many. */
bool mps_wait(struct mps_daemon *daemon, const struct mps_ui *ui,
              const struct sg_join_request *request);

/* instance.c: which GPUs, or which part of one, they serve. */
/* The MIG device that the environment names first; 0 where it names none. */
uint32_t mps_own_place(struct sg_instance *in);
/* How many clients a server there has at most, where one of a whole GPU has so many. */
uint32_t mps_clients_of(struct sg_instance *in, uint32_t place, uint32_t most);
/* The GPUs that the environment shows; returns how many. */
unsigned mps_gpus(struct sg_instance *in, uint32_t gpus[SG_GPUS_MAX]);

/* server.c: is the server that the daemon started; returns the exit status. */
int mps_server_main(void);

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

/* How a daemon is started. */
struct mps_options {
    int driver; /* the machine's major version */
    struct sg_instance *machine;
    uint32_t most;
    bool any_user;
    bool background;
};

/* daemon.c: starts a daemon; returns the exit status. */
int mps_start(const struct mps_options *options);

/* ask.c: gives the commands of standard input to the daemon; returns the exit status. */
int mps_ask(void);

#endif
