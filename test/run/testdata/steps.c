/* Prints 0 when it has a context on GPU 0, and then does what each line of its input says: a number allocates so many
 * bytes, "fork" does that once in a child, "exec" begins again as another program. It prints the result of each step. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int (*alloc)(unsigned long long *, size_t);

static int take(size_t bytes) {
    unsigned long long pointer;
    return alloc(&pointer, bytes);
}

static int begin(void) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (driver == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        exit(3);
    }
    int (*init)(unsigned) = (int (*)(unsigned))dlsym(driver, "cuInit");
    int (*make)(void **, unsigned, int) =
        (int (*)(void **, unsigned, int))dlsym(driver, "cuCtxCreate_v2");
    alloc = (int (*)(unsigned long long *, size_t))dlsym(driver, "cuMemAlloc_v2");
    void *context;
    int result = init(0);
    return result != 0 ? result : make(&context, 0, 0);
}

int main(int argc, char **argv) {
    char line[64];
    (void)argc;
    setvbuf(stdin, NULL, _IONBF, 0); /* what is not read belongs to the next program */
    setvbuf(stdout, NULL, _IOLBF, 0);
    printf("%d\n", begin());
    while (fgets(line, sizeof line, stdin) != NULL) {
        line[strcspn(line, "\n")] = 0;
        if (strcmp(line, "exec") == 0) {
            execv("/proc/self/exe", argv);
            return 4;
        }
        if (strcmp(line, "fork") != 0) {
            printf("%d\n", take((size_t)strtoull(line, NULL, 10)));
            continue;
        }
        int status = 0;
        pid_t child = fork();
        if (child == 0) {
            _exit(take(1 << 20));
        }
        waitpid(child, &status, 0);
        printf("%d\n", WEXITSTATUS(status));
    }
    return 0;
}
