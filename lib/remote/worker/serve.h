/* A worker's process: one client, from its connection to its end. */
#ifndef DIVVY_REMOTE_SERVE_H
#define DIVVY_REMOTE_SERVE_H

/* Serves the client on this socket. Does not return: with the process the driver frees what the client had. */
_Noreturn void remote_serve(int socket);

/* unserved.c: notes where the client's socket is, before the driver or the client can have a say. */
void remote_unserved_beside(int socket);

/* A line on standard error, for the log. */
void remote_log(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
