/* A control daemon and processes that are its clients, for tests. */
#ifndef SIMGPU_MPS_TEST_DAEMON_H
#define SIMGPU_MPS_TEST_DAEMON_H

#include "simgpu/cuda/test/cuda.h"
#include "simgpu/mps/server.h"

/* To be called first in main: the program is the server too, which the daemon starts. */
#define DAEMON_MAIN(argv)                                                                          \
    do {                                                                                           \
        if (strcmp((argv)[0], MPS_SERVER_PROGRAM) == 0) {                                          \
            return mps_server_main();                                                              \
        }                                                                                          \
    } while (0)

/* Makes a machine, and starts a daemon for it at directories below it, of which the environment tells.
 * The machine has at most so many clients on a server. */
void daemon_machine(void (*change)(sim_machine *machine), uint32_t most);
pid_t daemon_start(void);
pid_t daemon_start_for_all(void);
/* The daemon's answer to a line; what an earlier call answered is gone. */
const char *daemon_ask(const char *line);
/* The one server's process, 0 when there is none. */
int daemon_server(void);
/* A connection that says nothing; -1 where nobody listens. */
int daemon_connect(void);
/* A connection that has begun to give commands. */
int daemon_console(void);
/* Whether the last line of the log has this. */
bool daemon_logged_last(const char *text);
/* Whether the log of the last daemon has this. */
bool daemon_logged(const char *text);
/* Ends the daemon by a command and waits for it. */
void daemon_end(pid_t daemon);

/* A process of the test's. */
struct worker {
    pid_t pid;
    int channel;
};
/* Runs body, which gets the other end of the channel. With another uid than 0, as that user. */
struct worker worker_start(int (*body)(int channel), uid_t uid);
/* Passes a number; the last one that came. */
void worker_tell(int channel, uint64_t number);
uint64_t worker_hear(int channel);
/* Closes the channel and waits for the process's end; its wait status. */
int worker_end(struct worker *worker);
/* Ends it as SIGKILL does. */
void worker_kill(struct worker *worker);

#endif
