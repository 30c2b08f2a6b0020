/* Takes bytes of managed memory while GPU 0 is current and as many of GPU 1's own, moves the first to
 * GPU 1, and holds all until its input ends. Prints the result of the move. The arguments are the
 * bytes of both, in MiB. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static void *driver;

/* Calls a function of the driver by name; ends the program where that fails. */
#define DO(name, types, ...)                                                                       \
    do {                                                                                           \
        int(*call) types = (int(*) types)dlsym(driver, name);                                      \
        int result = call == NULL ? -1 : call(__VA_ARGS__);                                        \
        if (result != 0) {                                                                         \
            fprintf(stderr, "%s: %d\n", name, result);                                             \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

int main(int argc, char **argv) {
    void *context[2];
    unsigned long long managed, own = 0;

    driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (driver == NULL || argc != 3) {
        return 2;
    }
    DO("cuInit", (unsigned), 0);
    for (int device = 1; device >= 0; device--) {
        DO("cuDevicePrimaryCtxRetain", (void **, int), &context[device], device);
        DO("cuCtxSetCurrent", (void *), context[device]);
        if (device == 1 && atoi(argv[2]) > 0) {
            DO("cuMemAlloc_v2", (unsigned long long *, size_t), &own, (size_t)atoi(argv[2]) << 20);
        }
    }
    const size_t bytes = (size_t)atoi(argv[1]) << 20;
    DO("cuMemAllocManaged", (unsigned long long *, size_t, unsigned), &managed, bytes, 1);
    DO("cuMemPrefetchAsync", (unsigned long long, size_t, int, void *), managed, bytes, 1, NULL);
    DO("cuCtxSynchronize", (void), );
    puts("moved");
    fflush(stdout);
    getchar();
    return 0;
}
