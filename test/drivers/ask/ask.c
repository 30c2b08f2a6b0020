/* Asks a driver's libraries all that they answer on a machine without a GPU, and prints the answers as
 * lines that can be compared: ask QUESTION LIBRARY [REAL] < NAMES. The questions are
 *
 *     names     which of the names it has
 *     lookups   cuGetProcAddress for every name, version and meaning of the default stream
 *     late      the same after cuInit
 *     errors    the name and text of every status (libcuda), the text (NVML)
 *     status    what each function answers before initialisation, given zeros
 *
 * An address is told by the first name in the list under which the library has it, else as "inner". A
 * function that ours passes through is the one in REAL, the library that it stands in front of. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define NAMES_MAX 4096
#define CALL_SECONDS 20

typedef int (*lookup_fn)(const char *, void **, int, uint64_t);
typedef int (*lookup2_fn)(const char *, void **, int, uint64_t, int *);
typedef long (*any_fn)(long, long, long, long, long, long, long, long, long, long, long, long);

static void *library, *real;
static char *names[NAMES_MAX];
static void *addresses[NAMES_MAX], *behind[NAMES_MAX];
static int count;

static void *find(const char *name) {
    return dlsym(library, name);
}

static void read_names(void) {
    char line[256];
    while (count < NAMES_MAX && fgets(line, sizeof line, stdin) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        names[count] = strdup(line);
        addresses[count] = find(line);
        behind[count] = real != NULL ? dlsym(real, line) : NULL;
        count++;
    }
}

static const char *owner(const void *address) {
    if (address == NULL) {
        return "null";
    }
    for (int i = 0; i < count; i++) {
        if (addresses[i] == address || behind[i] == address) {
            return names[i];
        }
    }
    return "inner";
}

static void ask_names(void) {
    for (int i = 0; i < count; i++) {
        printf("%s %s\n", names[i], addresses[i] != NULL ? "yes" : "no");
    }
}

/* Every release of CUDA from 11.0 to 13.2, what lies between them and outside. */
static const int versions[] = {0,     1000,  2000,  3020,  4000,  6050,  8000,  9000,
                               10000, 10020, 11000, 11010, 11020, 11030, 11040, 11050,
                               11060, 11070, 11080, 12000, 12010, 12020, 12030, 12040,
                               12050, 12060, 12080, 12090, 13000, 13020, 99000};

static void ask_lookups(void) {
    void *symbol = find("cuGetProcAddress"), *symbol2 = find("cuGetProcAddress_v2");
    lookup_fn lookup;
    lookup2_fn lookup2;
    memcpy(&lookup, &symbol, sizeof lookup);
    memcpy(&lookup2, &symbol2, sizeof lookup2);
    for (int i = 0; i < count; i++) {
        for (size_t v = 0; v < sizeof versions / sizeof versions[0]; v++) {
            for (uint64_t flags = 0; flags < 4; flags++) {
                void *found = NULL;
                int word = -1;
                if (lookup != NULL) {
                    int status = lookup(names[i], &found, versions[v], flags);
                    printf("%s %d %d: %d %s\n", names[i], versions[v], (int)flags, status,
                           owner(found));
                }
                found = NULL;
                if (lookup2 != NULL) {
                    int status = lookup2(names[i], &found, versions[v], flags, &word);
                    printf("%s %d %d v2: %d %s %d\n", names[i], versions[v], (int)flags, status,
                           owner(found), word);
                    found = NULL;
                    status = lookup2(names[i], &found, versions[v], flags, NULL);
                    printf("%s %d %d v2 alone: %d %s\n", names[i], versions[v], (int)flags, status,
                           owner(found));
                }
            }
        }
    }
}

static void ask_errors(void) {
    void *symbols[2] = {find("cuGetErrorName"), find("cuGetErrorString")};
    void *nvml_symbol = find("nvmlErrorString");
    for (int status = -1; status < 1100; status++) {
        for (int i = 0; i < 2 && symbols[i] != NULL; i++) {
            int (*text_of)(int, const char **);
            const char *text = NULL;
            memcpy(&text_of, &symbols[i], sizeof text_of);
            int result = text_of(status, &text);
            printf("%d %d: %d %s\n", status, i, result, text != NULL ? text : "null");
        }
        if (nvml_symbol != NULL) {
            const char *(*text_of)(int);
            memcpy(&text_of, &nvml_symbol, sizeof text_of);
            const char *text = text_of(status);
            printf("%d: %s\n", status, text != NULL ? text : "null");
        }
    }
}

/* Calls a function in a process of its own: some do not survive zeros. */
static void ask_one(int i) {
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        alarm(CALL_SECONDS);
        /* What a function prints is not its answer. */
        if (freopen("/dev/null", "w", stderr) == NULL) {
            _exit(1);
        }
        any_fn call;
        memcpy(&call, &addresses[i], sizeof call);
        int status = (int)call(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
        printf("%s %d\n", names[i], status);
        fflush(stdout);
        _exit(0);
    }
    int end = 0;
    if (child < 0 || waitpid(child, &end, 0) != child) {
        perror("ask");
        exit(1);
    }
    if (WIFSIGNALED(end)) {
        printf("%s signal %d\n", names[i], WTERMSIG(end));
    }
}

static void ask_status(void) {
    for (int i = 0; i < count; i++) {
        if (addresses[i] != NULL) {
            ask_one(i);
        }
    }
}

int main(int argc, char **argv) {
    if (argc != 3 && argc != 4) {
        fprintf(stderr, "usage: ask QUESTION LIBRARY [REAL] < NAMES\n");
        return 2;
    }
    library = dlopen(argv[2], RTLD_NOW | RTLD_LOCAL);
    if (library != NULL && argc == 4) {
        real = dlopen(argv[3], RTLD_NOW | RTLD_LOCAL);
    }
    if (library == NULL || (argc == 4 && real == NULL)) {
        fprintf(stderr, "ask: %s\n", dlerror());
        return 1;
    }
    read_names();
    if (strcmp(argv[1], "names") == 0) {
        ask_names();
    } else if (strcmp(argv[1], "lookups") == 0) {
        ask_lookups();
    } else if (strcmp(argv[1], "late") == 0) {
        void *symbol = find("cuInit");
        int (*init)(unsigned);
        memcpy(&init, &symbol, sizeof init);
        printf("cuInit %d\n", init(0));
        ask_lookups();
    } else if (strcmp(argv[1], "errors") == 0) {
        ask_errors();
    } else if (strcmp(argv[1], "status") == 0) {
        ask_status();
    } else {
        fprintf(stderr, "ask: no question %s\n", argv[1]);
        return 2;
    }
    return 0;
}
