/* The functions of both libraries, in the order of their names in abi/. libcuda.so.1 and libnvidia-ml.so.1 jump through
 * these tables, which are all that the library with the code exports. */
#ifndef DIVVY_REMOTE_NAMES_H
#define DIVVY_REMOTE_NAMES_H

typedef void remote_function(void);

extern remote_function *const divvy_remote_cuda[] __attribute__((visibility("default")));
extern remote_function *const divvy_remote_nvml[] __attribute__((visibility("default")));

#endif
