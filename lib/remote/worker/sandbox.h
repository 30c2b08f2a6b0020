/* What a worker must not do, whoever talks to it. */
#ifndef DIVVY_REMOTE_SANDBOX_H
#define DIVVY_REMOTE_SANDBOX_H

#include "remote/link.h"

/* Gives up new privileges, for this process and all that it becomes. False, and why, if the kernel refuses. */
bool remote_sandbox_prepare(char why[REMOTE_WHY_BYTES]);
/* Forbids all threads what no worker needs, once the driver is loaded. */
bool remote_sandbox_enter(char why[REMOTE_WHY_BYTES]);

#endif
