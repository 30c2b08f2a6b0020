/*
 * The part of an MPS control daemon that a client meets first: a socket, and who listens there.
 */
#ifndef DIVVY_CUDA_TEST_DAEMON_H
#define DIVVY_CUDA_TEST_DAEMON_H

/* What it does with those who connect: the greeting of drivers 535 to 555, nothing, or an end. A
 * stranger greets too, and is another user's, for which the caller has to be root. */
enum manner { GREETS, SILENT, HANGS_UP, STRANGER };

/* Starts the one daemon of the calling process, which ends with it, and returns when it listens. */
void daemon_start(const char *socket_path, enum manner manner);
void daemon_end(void);

#endif
