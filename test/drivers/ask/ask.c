/* Asks a driver's libraries all that they answer on a machine without a GPU, and prints the answers as
 * lines that can be compared: ask QUESTION LIBRARY [REAL] < NAMES. The questions are
 *
 *     version   the version of CUDA that it claims
 *     names     which of the names it has
 *     lookups   cuGetProcAddress for every name, version and meaning of the default stream
 *     late      the same after cuInit
 *     errors    the name and text of every status (libcuda), the text (NVML)
 *     status    what each function answers before initialisation, given zeros
 *     outputs   the same, given addresses, and what it leaves there
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
#include <sys/mman.h>
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

static void ask_version(void) {
    void *symbol = find("cuDriverGetVersion");
    int (*version_of)(int *), version = 0;
    memcpy(&version_of, &symbol, sizeof version_of);
    if (version_of(&version) != 0) {
        exit(1);
    }
    printf("%d\n", version);
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

/* Memory that arguments point to: text of one letter, so that it is no valid handle, structure or
 * name. Some functions take these for numbers, so each lies at the same place in every process. */
enum { ARGUMENTS = 12, ARGUMENT_BYTES = 4096, LETTER = 'Z' };
static char (*pointed)[ARGUMENT_BYTES] = (void *)0x10000000;

static void make_pointed(void) {
    if (mmap(pointed, ARGUMENTS * ARGUMENT_BYTES, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) != pointed) {
        perror("ask: memory for arguments");
        exit(1);
    }
}

/* Prints which bytes behind an argument were changed, and whether to zero alone. */
static void print_changes(int argument) {
    int first = -1, last = -1, zero = 1;
    for (int i = 0; i < ARGUMENT_BYTES - 1; i++) {
        if (pointed[argument][i] != LETTER) {
            first = first < 0 ? i : first;
            last = i;
            zero = zero && pointed[argument][i] == 0;
        }
    }
    if (first >= 0) {
        printf(" %d:%d-%d%s", argument, first, last, zero ? " zero" : "");
    }
}

static void call_with(int i, int addresses_too) {
    any_fn call;
    long a[ARGUMENTS] = {0};
    memcpy(&call, &addresses[i], sizeof call);
    memset(pointed, LETTER, ARGUMENTS * sizeof *pointed);
    for (int k = 0; k < ARGUMENTS; k++) {
        pointed[k][ARGUMENT_BYTES - 1] = 0;
        a[k] = addresses_too ? (long)pointed[k] : 0;
    }
    int status =
        (int)call(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11]);
    printf("%s %d", names[i], status);
    for (int k = 0; k < ARGUMENTS; k++) {
        print_changes(k);
    }
    printf("\n");
}

/* Calls a function in a process of its own: some do not survive what they are given. */
static void ask_one(int i, int addresses_too) {
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        alarm(CALL_SECONDS);
        /* What a function prints is not its answer. */
        if (freopen("/dev/null", "w", stderr) == NULL) {
            _exit(1);
        }
        call_with(i, addresses_too);
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

static void ask_status(int addresses_too) {
    for (int i = 0; i < count; i++) {
        if (addresses[i] != NULL) {
            ask_one(i, addresses_too);
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
    make_pointed();
    if (strcmp(argv[1], "version") == 0) {
        ask_version();
    } else if (strcmp(argv[1], "names") == 0) {
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
        ask_status(0);
    } else if (strcmp(argv[1], "outputs") == 0) {
        ask_status(1);
    } else {
        fprintf(stderr, "ask: no question %s\n", argv[1]);
        return 2;
    }
    return 0;
}
