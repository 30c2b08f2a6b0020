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

/* Finds the path of that cgroup for one controller of the first version of cgroups; "" stands for the
 * second version. */
bool cgroup_under(const char *container, const char *runtime, const char *id,
                  const char *controller, char *out, size_t room);

/* Whether the cgroup with that path lies right in a Kubernetes pod's: "pod" and the pod's UID, or what ends
 * in "-pod", the UID with underscores and ".slice", as systemd's do. */
bool cgroup_in_pod(const char *path);

/* Finds the folder of a cgroup with that path, and where its hierarchy is mounted, in
 * /proc/self/mountinfo. Both have that room. */
bool cgroup_folder(const char *mounts, const char *controller, const char *path, char *mount,
                   char *folder, size_t room);

#endif
