/* Limits of RDMA adapters, as the kernel writes them in a cgroup's rdma.max. */
#ifndef DIVVY_COVER_QUOTA_H
#define DIVVY_COVER_QUOTA_H

#include <stdbool.h>

/* The largest limit that the kernel takes; it stands for none. */
#define QUOTA_MOST 2147483647LL

/* What may be taken of an adapter. */
struct quota {
    long long handles, objects;
};

/* Finds an adapter's limits in lines such as "mlx5_0 hca_handle=64 hca_object=max", and adds them to
 * what is there. What is not limited counts nothing. The adapter's name ends at a space or at the end.
 * False if no line has the adapter. */
bool quota_add(const char *lines, const char *adapter, struct quota *sum);

#endif
