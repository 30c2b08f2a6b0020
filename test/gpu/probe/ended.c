/*
 * The command `ended`: what the driver says to a handle whose object has ended. That is not
 * defined, and a driver may crash, so each question is asked by a process of its own.
 */
#include "probe.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PATIENCE_S = 20 };

/* What a function answers about a stream that was destroyed. */
static CUresult after_stream(CUresult (*ask)(CUstream)) {
    CUstream stream = NULL;
    CUresult result = cuda.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
    (void)cuda.cuStreamDestroy_v2(stream);
    return result == CUDA_SUCCESS ? ask(stream) : result;
}

static CUresult query_stream(CUdevice device) {
    (void)device;
    return after_stream(cuda.cuStreamQuery);
}

static CUresult synchronize_stream(CUdevice device) {
    (void)device;
    return after_stream(cuda.cuStreamSynchronize);
}

static CUresult query_event(CUdevice device) {
    (void)device;
    CUevent event = NULL;
    CUresult result = cuda.cuEventCreate(&event, CU_EVENT_DEFAULT);
    (void)cuda.cuEventDestroy_v2(event);
    return result == CUDA_SUCCESS ? cuda.cuEventQuery(event) : result;
}

/* A stream ends with its context. */
static CUresult query_after_context(CUdevice device) {
    CUcontext context = NULL;
    CUstream stream = NULL;
    if (cuda.cuCtxCreate_v2 == NULL || cuda.cuCtxDestroy_v2 == NULL) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    CUresult result = cuda.cuCtxCreate_v2(&context, 0, device);
    if (result == CUDA_SUCCESS) {
        result = cuda.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
    }
    (void)cuda.cuCtxDestroy_v2(context);
    return result == CUDA_SUCCESS ? cuda.cuStreamQuery(stream) : result;
}

/* Not a dead handle: whether the next stream gets the number of one that ended. CUDA_SUCCESS means
 * that it does. */
static CUresult reuse_number(CUdevice device) {
    (void)device;
    CUstream first = NULL, second = NULL;
    CUresult result = cuda.cuStreamCreate(&first, CU_STREAM_NON_BLOCKING);
    (void)cuda.cuStreamDestroy_v2(first);
    if (result == CUDA_SUCCESS) {
        result = cuda.cuStreamCreate(&second, CU_STREAM_NON_BLOCKING);
    }
    if (result == CUDA_SUCCESS && first != second) {
        result = CUDA_ERROR_NOT_FOUND;
    }
    return result;
}

/* In the child: writes the answer's name, or "start: " and why there is none. */
static void answer(CUresult (*question)(CUdevice), int out) {
    CUdevice device;
    char text[128];
    alarm(PATIENCE_S);
    CUresult result = start_cuda(&device);
    if (result != CUDA_SUCCESS) {
        snprintf(text, sizeof text, "start: %s", result_name(result));
    } else {
        snprintf(text, sizeof text, "%s", result_name(question(device)));
    }
    ssize_t written = write(out, text, strlen(text));
    _exit(written < 0);
}

static void ask(const char *name, CUresult (*question)(CUdevice)) {
    int ends[2], status = 0;
    char text[128] = "";
    fflush(stdout);
    pid_t child = pipe(ends) == 0 ? fork() : -1;
    if (child == 0) {
        answer(question, ends[1]);
    }
    if (child < 0) {
        printf(",\"%s\":\"not asked\"", name);
        return;
    }
    close(ends[1]);
    ssize_t length = read(ends[0], text, sizeof text - 1);
    close(ends[0]);
    (void)waitpid(child, &status, 0);
    if (length > 0) {
        printf(",\"%s\":\"%.*s\"", name, (int)length, text);
    } else if (WIFSIGNALED(status)) {
        printf(",\"%s\":\"ended by signal %d%s\"", name, WTERMSIG(status),
               WTERMSIG(status) == SIGALRM ? ", no answer in 20 s" : "");
    } else {
        printf(",\"%s\":\"ended with status %d\"", name, WEXITSTATUS(status));
    }
}

int command_ended(void) {
    if (!open_cuda()) {
        return 3;
    }
    printf("{\"command\":\"ended\",\"result\":\"CUDA_SUCCESS\"");
    ask("stream_query", query_stream);
    ask("stream_synchronize", synchronize_stream);
    ask("event_query", query_event);
    ask("stream_query_after_context", query_after_context);
    ask("number_used_again", reuse_number);
    puts("}");
    return 0;
}
