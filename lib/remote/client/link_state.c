/* The linker of code. What it is begun with is written by its later calls too, and what it makes belongs to it. */
#include "remote/client/module.h"
#include "remote/generated/cuda_stubs.h"
#include "remote/image.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* What the linker has made, in the order of its calls; a program may still use the first. */
struct made {
    struct made *before;
    size_t size;
    unsigned char bytes[];
};

struct linker {
    struct linker *next;
    uint64_t number;
    struct made *made;
    struct remote_options options;
};

static struct linker *linkers;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static struct linker *find(uint64_t number) {
    pthread_mutex_lock(&lock);
    struct linker *linker = linkers;
    while (linker && linker->number != number) {
        linker = linker->next;
    }
    pthread_mutex_unlock(&lock);
    return linker;
}

static void end(uint64_t number) {
    pthread_mutex_lock(&lock);
    struct linker **at = &linkers;
    while (*at && (*at)->number != number) {
        at = &(*at)->next;
    }
    struct linker *linker = *at;
    if (linker) {
        *at = linker->next;
    }
    pthread_mutex_unlock(&lock);
    while (linker && linker->made) {
        struct made *made = linker->made;
        linker->made = made->before;
        free(made);
    }
    free(linker);
}

/* Puts the linker into the record, and gives what is kept of it; NULL for one that the program does not have. */
static struct linker *use(struct remote_call *call, CUlinkState state) {
    remote_use(call, 0, REMOTE_KIND_CUlinkState, (uint64_t)state);
    struct linker *linker = call->fault ? NULL : find((uint64_t)state);
    if (linker) {
        remote_options_want(call, &linker->options);
    }
    return linker;
}

CUresult cuLinkCreate_v2(unsigned int count, CUjit_option *options, void **values,
                         CUlinkState *state) {
    struct remote_call call;
    struct remote_reply reply;
    struct linker *linker = calloc(1, sizeof *linker);
    CUresult result = (CUresult)remote_gate(REMOTE_cuLinkCreate_v2);

    result = result == CUDA_SUCCESS ? remote_current_result() : result;
    result = result == CUDA_SUCCESS && !linker ? CUDA_ERROR_OUT_OF_MEMORY : result;
    result = result == CUDA_SUCCESS ? remote_options_read(&linker->options, count, options, values)
                                    : result;
    if (result != CUDA_SUCCESS) {
        free(linker);
        return result;
    }
    remote_begin(&call, REMOTE_cuLinkCreate_v2, 1 + REMOTE_OPTION_WORDS);
    remote_make(&call, 3, 0, REMOTE_KIND_CUlinkState, state);
    linker->number = call.words[0];
    remote_options_put(&call, 1, &linker->options);
    if (remote_ask(&call, &reply)) {
        remote_options_get(&call, &reply, REMOTE_GIVEN_VALUES, REMOTE_GIVEN_LOGS, &linker->options);
    }
    remote_get_made(&call, &reply, 3, 0, REMOTE_KIND_CUlinkState, state);
    result = (CUresult)remote_end(&call, &reply);
    if (result != CUDA_SUCCESS) {
        free(linker);
        return result;
    }
    pthread_mutex_lock(&lock);
    linker->next = linkers;
    linkers = linker;
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

CUresult cuLinkCreate(unsigned int count, CUjit_option *options, void **values,
                      CUlinkState *state) {
    return cuLinkCreate_v2(count, options, values, state);
}

CUresult cuLinkAddData_v2(CUlinkState state, CUjitInputType type, void *data, size_t size,
                          const char *name, unsigned int count, CUjit_option *options,
                          void **values) {
    struct remote_options o;
    struct remote_call call;
    struct remote_reply reply;

    remote_begin(&call, REMOTE_cuLinkAddData_v2, 5 + REMOTE_OPTION_WORDS);
    struct linker *linker = state ? use(&call, state) : NULL;
    if (!linker) {
        return call.fault ? (CUresult)call.fault : CUDA_ERROR_INVALID_HANDLE;
    }
    CUresult result =
        data && size ? remote_options_read(&o, count, options, values) : CUDA_ERROR_INVALID_VALUE;
    if (result != CUDA_SUCCESS) {
        return result;
    }
    call.words[1] = (uint64_t)type;
    remote_bulk(&call, 2, 2, data, size);
    remote_text(&call, 4, 4, name);
    remote_options_put(&call, 5, &o);
    if (remote_ask(&call, &reply)) {
        remote_options_get(&call, &reply, REMOTE_GIVEN_VALUES, REMOTE_GIVEN_LOGS, &o);
        remote_options_get(&call, &reply, REMOTE_GIVEN_STATE_VALUES, REMOTE_GIVEN_STATE_LOGS,
                           &linker->options);
    }
    return (CUresult)remote_end(&call, &reply);
}

CUresult cuLinkAddData(CUlinkState state, CUjitInputType type, void *data, size_t size,
                       const char *name, unsigned int count, CUjit_option *options, void **values) {
    return cuLinkAddData_v2(state, type, data, size, name, count, options, values);
}

CUresult cuLinkAddFile_v2(CUlinkState state, CUjitInputType type, const char *path,
                          unsigned int count, CUjit_option *options, void **values) {
    CUresult result = (CUresult)remote_gate(REMOTE_cuLinkAddFile_v2);
    char *bytes = NULL;
    size_t size = 0;

    if (result == CUDA_SUCCESS && (!state || !find((uint64_t)state))) {
        result = CUDA_ERROR_INVALID_HANDLE;
    }
    if (result == CUDA_SUCCESS && (!path || (count && (!options || !values)))) {
        result = CUDA_ERROR_INVALID_VALUE;
    }
    result = result == CUDA_SUCCESS ? remote_file_read(path, &bytes, &size) : result;
    if (result == CUDA_SUCCESS) {
        result = size ? cuLinkAddData_v2(state, type, bytes, size, path, count, options, values)
                      : CUDA_ERROR_INVALID_IMAGE;
    }
    free(bytes);
    return result;
}

CUresult cuLinkAddFile(CUlinkState state, CUjitInputType type, const char *path, unsigned int count,
                       CUjit_option *options, void **values) {
    return cuLinkAddFile_v2(state, type, path, count, options, values);
}

/* Fetches what the linker has made, in as many answers as it needs. */
static CUresult fetch(CUlinkState state, struct made *made) {
    CUresult result = CUDA_SUCCESS;

    for (size_t at = 0; result == CUDA_SUCCESS && at < made->size;) {
        size_t left = made->size - at, some = left < REMOTE_LENT_BYTES ? left : REMOTE_LENT_BYTES;
        struct remote_call call;
        struct remote_reply reply;

        remote_begin(&call, (enum remote_number)REMOTE_LENT, 3);
        remote_use(&call, 0, REMOTE_KIND_CUlinkState, (uint64_t)state);
        call.words[1] = at;
        call.words[2] = some;
        remote_given(&call, 0, made);
        if (remote_ask(&call, &reply)) {
            remote_get(&call, &reply, 0, made->bytes + at, some, false);
        }
        result = (CUresult)remote_end(&call, &reply);
        at += some;
    }
    return result;
}

/* Keeps what was made, or gives what was made before where it is the same. */
static void keep(struct linker *linker, struct made *made, void **to) {
    pthread_mutex_lock(&lock);
    if (linker->made && linker->made->size == made->size &&
        memcmp(linker->made->bytes, made->bytes, made->size) == 0) {
        free(made);
    } else {
        made->before = linker->made;
        linker->made = made;
    }
    remote_code_made(linker->made->bytes,
                     remote_image_size_within(linker->made->bytes, linker->made->size));
    *to = linker->made->bytes;
    pthread_mutex_unlock(&lock);
}

CUresult cuLinkComplete(CUlinkState state, void **image, size_t *size) {
    struct remote_call call;
    struct remote_reply reply;
    uint64_t bytes = 0;

    remote_begin(&call, REMOTE_cuLinkComplete, 1);
    struct linker *linker = state ? use(&call, state) : NULL;
    if (!linker || !image) {
        return call.fault ? (CUresult)call.fault
               : linker   ? CUDA_ERROR_INVALID_VALUE
                          : CUDA_ERROR_INVALID_HANDLE;
    }
    remote_given(&call, 2, &bytes);
    if (remote_ask(&call, &reply)) {
        remote_get(&call, &reply, 2, &bytes, sizeof bytes, false);
        remote_options_get(&call, &reply, REMOTE_GIVEN_STATE_VALUES, REMOTE_GIVEN_STATE_LOGS,
                           &linker->options);
    }
    CUresult result = (CUresult)remote_end(&call, &reply);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    struct made *made = bytes <= REMOTE_MOST_MADE ? malloc(sizeof *made + bytes) : NULL;
    if (!made) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    made->size = bytes;
    result = fetch(state, made);
    if (result != CUDA_SUCCESS) {
        free(made);
        return result;
    }
    keep(linker, made, image);
    if (size) {
        *size = bytes;
    }
    return CUDA_SUCCESS;
}

CUresult cuLinkDestroy(CUlinkState state) {
    CUresult result =
        state ? remote_call_cuLinkDestroy(state) : (CUresult)remote_gate(REMOTE_cuLinkDestroy);

    if (!state) {
        return result == CUDA_SUCCESS ? CUDA_ERROR_INVALID_HANDLE : result;
    }
    if (result == CUDA_SUCCESS) {
        end((uint64_t)state);
    }
    return result;
}
