/* The program divvy-worker as a test starts it: its socket and its log lie in a folder of the test's own. */
#ifndef DIVVY_REMOTE_TEST_PROGRAM_H
#define DIVVY_REMOTE_TEST_PROGRAM_H

#include <stdbool.h>
#include <sys/types.h>

/* Where it listens, the process, and the end whose closing ends its life. */
extern char program_path[400];
extern pid_t program_listener;
extern int program_life;

/* Makes the folder, which goes when the test ends; makes one in it whose path is longer than an address. */
void program_place(void);
void program_place_deep(void);

/* Starts it with further parameters, NULL at their end; what it tells by `ready` has to be read. */
pid_t program_start(const char *const *more, int *ready);
/* Starts it, and waits until it listens. */
void program_begin(const char *const *more);
#define PROGRAM(...) program_begin((const char *const[]){__VA_ARGS__ NULL})
/* Ends its life, and checks that nothing is left. */
void program_stop(void);
/* The exit status of a process, or 1000 and the signal. */
int program_status(pid_t process);
bool program_log_has(const char *text);
/* How many processes it has, and the first of them if that is asked for. */
unsigned program_workers(pid_t *first);

#endif
