/* Prints the memory of GPU 0 and what comes of an allocation of 2 GiB, through the driver found in
 * one of the ways programs find it: by the name or path given, or, built with LINKED, by direct
 * link. Exit status 3: no driver. */
#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>

typedef int (*init_fn)(unsigned);
typedef int (*device_get_fn)(int *, int);
typedef int (*total_fn)(size_t *, int);
typedef int (*retain_fn)(void **, int);
typedef int (*set_fn)(void *);
typedef int (*alloc_fn)(unsigned long long *, size_t);

#ifdef LINKED
int cuInit(unsigned);
#endif

int main(int argc, char **argv) {
    void *driver = dlopen(argc > 1 ? argv[1] : "libcuda.so.1", RTLD_NOW);
#ifdef LINKED
    driver = RTLD_DEFAULT;
    if (cuInit(0) == 3) {
        return 3;
    }
#endif
    if (driver == NULL && argc > 1) {
        fprintf(stderr, "%s\n", dlerror());
        return 3;
    }
    init_fn init = (init_fn)dlsym(driver, "cuInit");
    device_get_fn get = (device_get_fn)dlsym(driver, "cuDeviceGet");
    total_fn total = (total_fn)dlsym(driver, "cuDeviceTotalMem_v2");
    retain_fn retain = (retain_fn)dlsym(driver, "cuDevicePrimaryCtxRetain");
    set_fn set = (set_fn)dlsym(driver, "cuCtxSetCurrent");
    alloc_fn alloc = (alloc_fn)dlsym(driver, "cuMemAlloc_v2");
    if (init == NULL || get == NULL || total == NULL || retain == NULL || set == NULL ||
        alloc == NULL) {
        return 3;
    }
    int device = 0, result = init(0);
    size_t bytes = 0;
    void *context = NULL;
    unsigned long long pointer = 0;
    result = result != 0 ? result : get(&device, 0);
    result = result != 0 ? result : total(&bytes, device);
    result = result != 0 ? result : retain(&context, device);
    result = result != 0 ? result : set(context);
    result = result != 0 ? result : alloc(&pointer, (size_t)2 << 30);
    printf("%zu %d\n", bytes, result);
    return 0;
}
