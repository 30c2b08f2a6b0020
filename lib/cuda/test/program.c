#include "cuda/test/program.h"

struct setting program;
watch_enter_type *program_enter;
watch_leave_type *program_leave;

static void *watch(const char *name) {
    void *found = setting_real(&program, name);
    CHECK(found != NULL);
    return found;
}

void program_make(const char *driver) {
    sim_driver = driver;
    busy_make(&program, 1);
    program_enter = __extension__(watch_enter_type *) watch("watch_enter");
    program_leave = __extension__(watch_leave_type *) watch("watch_leave");
}

unsigned program_wrong(void) {
    return (__extension__(watch_wrong_type *) watch("watch_wrong"))();
}

unsigned program_inserted(const char *name) {
    return (__extension__(watch_inserted_type *) watch("watch_inserted"))(name);
}

unsigned program_order(CUstream *streams, unsigned most) {
    return (__extension__(watch_order_type *) watch("watch_order"))(streams, most);
}

void program_refuse(bool refuses) {
    (__extension__(watch_refuse_type *) watch("watch_refuse"))(refuses);
}

CUfunction program_kernel(void) {
    CUmodule module;
    CUfunction kernel;
    DO(cuModuleLoadData, &module, busy_image);
    DO(cuModuleGetFunction, &kernel, module, "divvy_busy_ns");
    return kernel;
}

void program_launch(CUfunction kernel, CUstream stream, uint64_t ns) {
    void *parameters[] = {&ns};
    IN(stream, cuLaunchKernel, kernel, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL);
}
