/* Which cgroup is a container's alone. */
#ifndef DIVVY_COVER_CGROUP_H
#define DIVVY_COVER_CGROUP_H

#include <stdbool.h>
#include <stddef.h>

/* Finds the cgroup that a runtime made for the container with that id, in /proc/PID/cgroup of the
 * container's first process and of the runtime (cgroups(7)), and writes "CONTROLLERS:PATH". A cgroup
 * is the container's if its name is the id, or ends in "-", the id and ".scope", as systemd's do.
 * False if there is none, if the runtime is in it too, or if it does not fit. */
bool cgroup_own(const char *container, const char *runtime, const char *id, char *out, size_t room);

#endif
