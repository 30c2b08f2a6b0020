/* Tries to hold more GPU memory than its share, and then waits for the end of its standard input.
 * Prints the bytes that it believes to hold, and the time (CLOCK_REALTIME, ns) at which it passed PASSED, 0 if never.
 *
 *     bypass WAY PASSED MOST AMOUNTS LIMIT
 *
 * It takes pieces until it has MOST bytes. AMOUNTS is the offset of the ledger's word in a state
 * page and LIMIT that of the limit in a config page. Built with PRELOAD it is a library whose
 * open() returns the page that the variable BYPASS_PAGE names.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifdef PRELOAD

int open(const char *path, int flags, ...) {
    const char *end = strrchr(path, '/'), *page = getenv("BYPASS_PAGE");
    va_list args;
    va_start(args, flags);
    mode_t mode = (flags & O_CREAT) ? va_arg(args, mode_t) : 0;
    va_end(args);
    if (end != NULL && strcmp(end, "/config") == 0 && page != NULL) {
        path = page;
    }
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

#else

#define PIECE (256ull << 20)
#define CODE ".version 7.0\n.target sm_80\n.address_size 64\n"

static unsigned long long passed, most, at, total;
static long amounts_offset, limit_offset;
static char directory[4096]; /* the tenant's */

/* The driver's calls that it makes. */
static int (*init)(unsigned);
static int (*retain)(void **, int);
static int (*current)(void *);
static int (*allocate)(unsigned long long *, size_t);
static int (*load)(void **, const void *);
static int (*function)(void **, void *, const char *);
static int (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                     void *, void **, void **);
static int (*synchronize)(void *);
static int (*create)(unsigned long long *, size_t, const void *, unsigned long long);
static int (*export)(void *, unsigned long long, int, unsigned long long);
static int (*release)(unsigned long long);
static int (*make)(void **, unsigned, int), (*set)(int, size_t);

static void die(const char *what) {
    perror(what);
    exit(2);
}

static void find(void *library) {
    const struct {
        void *slot;
        const char *name;
    } all[] = {
        {&init, "cuInit"},
        {&retain, "cuDevicePrimaryCtxRetain"},
        {&current, "cuCtxSetCurrent"},
        {&allocate, "cuMemAlloc_v2"},
        {&load, "cuModuleLoadData"},
        {&function, "cuModuleGetFunction"},
        {&launch, "cuLaunchKernel"},
        {&synchronize, "cuStreamSynchronize"},
        {&create, "cuMemCreate"},
        {&export, "cuMemExportToShareableHandle"},
        {&release, "cuMemRelease"},
        {&make, "cuCtxCreate_v2"},
        {&set, "cuCtxSetLimit"},
    };
    for (unsigned i = 0; i < sizeof all / sizeof all[0]; i++) {
        void *symbol = library != NULL ? dlsym(library, all[i].name) : NULL;
        if (symbol == NULL) {
            fprintf(stderr, "%s is not there: %s\n", all[i].name, dlerror());
            exit(3);
        }
        memcpy(all[i].slot, &symbol, sizeof symbol);
    }
}

/* Finds the directory from which the loader took the driver's own library. */
static void find_directory(void) {
    char line[8192];
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps != NULL && fgets(line, sizeof line, maps) != NULL) {
        char *path = strchr(line, '/'), *end = strstr(line, "/libcuda-real.so.1");
        if (path != NULL && end != NULL) {
            *end = '\0';
            (void)snprintf(directory, sizeof directory, "%s", path);
        }
    }
    if (maps != NULL) {
        fclose(maps);
    }
    if (directory[0] == '\0') {
        fprintf(stderr, "the tenant's directory is not to be found\n");
        exit(2);
    }
}

/* The driver's own library by its name, or where no search finds that, by its path. */
static void *open_real(void) {
    char path[5000];
    void *library = dlopen("libcuda-real.so.1", RTLD_NOW);
    (void)snprintf(path, sizeof path, "%s/libcuda-real.so.1", directory);
    return library != NULL ? library : dlopen(path, RTLD_NOW);
}

/* Says how far it came and waits for the end. */
static void finish(void) {
    printf("%llu %llu\n", total, at);
    fflush(stdout);
    while (getchar() >= 0) {
    }
    exit(0);
}

static void begin(void) {
    void *context;
    int result = init(0);
    if (result != 0 || (result = retain(&context, 0)) != 0 || (result = current(context)) != 0) {
        fprintf(stderr, "the driver answers %d\n", result);
        finish();
    }
}

static void count(void) {
    struct timespec now;
    total += PIECE;
    if (at == 0 && total > passed) {
        clock_gettime(CLOCK_REALTIME, &now);
        at = (unsigned long long)now.tv_sec * 1000000000u + (unsigned long long)now.tv_nsec;
    }
}

/* Takes pieces until one is refused or there are enough. */
static void take(void) {
    unsigned long long pointer;
    while (total < most && allocate(&pointer, PIECE) == 0) {
        count();
    }
}

static volatile uint64_t *ledger(void) {
    char path[5000];
    (void)snprintf(path, sizeof path, "%s/state", directory);
    int file = open(path, O_RDWR);
    char *page = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    page == MAP_FAILED ? die(path) : (void)0;
    return (volatile uint64_t *)(void *)(page + amounts_offset);
}

static void *zero_always(void *word) {
    for (;;) {
        *(volatile uint64_t *)word = 0;
    }
    return NULL;
}

/* Copies the config page with a limit of MOST. */
static const char *forged_page(void) {
    static char page[5000], path[5000], data[1 << 16];
    const char *home = getenv("HOME");
    (void)snprintf(path, sizeof path, "%s/config", directory);
    (void)snprintf(page, sizeof page, "%s/page", home != NULL ? home : "/tmp");
    int from = open(path, O_RDONLY), to = open(page, O_RDWR | O_CREAT | O_TRUNC, 0600);
    ssize_t length = read(from, data, sizeof data);
    uint64_t limit = most + (2ull << 30);
    if (from < 0 || to < 0 || length <= limit_offset) {
        die("copy the config page");
    }
    memcpy(data + limit_offset, &limit, sizeof limit);
    if (write(to, data, (size_t)length) != length) {
        die(page);
    }
    return page;
}

static void become_plain(char **argv) {
    argv[1] = (char[]){"plain"};
    execv("/proc/self/exe", argv);
    die("execute itself");
}

static void write_text(const char *path, const char *text) {
    int file = open(path, O_WRONLY);
    if (file < 0 || write(file, text, strlen(text)) < 0) {
        die(path);
    }
    close(file);
}

static void mount_page(const char *page) {
    char map[64], path[5000];
    unsigned uid = geteuid(), gid = getegid();
    if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) {
        die("unshare");
    }
    write_text("/proc/self/setgroups", "deny");
    (void)snprintf(map, sizeof map, "0 %u 1", uid);
    write_text("/proc/self/uid_map", map);
    (void)snprintf(map, sizeof map, "0 %u 1", gid);
    write_text("/proc/self/gid_map", map);
    (void)snprintf(path, sizeof path, "%s/config", directory);
    if (mount(page, path, NULL, MS_BIND, NULL) != 0) {
        die("mount");
    }
}

static sigjmp_buf out;
static volatile int inside;

static void leave(int signal) {
    (void)signal;
    inside = 1;
    siglongjmp(out, 1);
}

static void take_inside(int signal) {
    (void)signal;
    if (!inside) {
        inside = 1;
        take();
    }
}

/* Waits for a kernel, in which the handler gets a signal. */
static void wait_for_kernel(void (*handler)(int)) {
    static const char image[] = CODE ".visible .entry divvy_busy_ns(.param .u64 a) { ret; }\n";
    void *module, *kernel;
    unsigned long long time = 1000000000;
    void *arguments[] = {&time};
    struct itimerval soon = {.it_value = {.tv_usec = 100000}};
    if (load(&module, image) != 0 || function(&kernel, module, "divvy_busy_ns") != 0 ||
        launch(kernel, 1, 1, 1, 1, 1, 1, 0, NULL, arguments, NULL) != 0) {
        fprintf(stderr, "no kernel\n");
        exit(2);
    }
    signal(SIGALRM, handler);
    setitimer(ITIMER_REAL, &soon, NULL);
    if (sigsetjmp(out, 1) == 0) {
        synchronize(NULL);
    }
}

/* Takes pieces of which only descriptors are kept, here or by another process. */
static void take_descriptors(int other) {
    struct {
        int type, handles, location_type, location;
        void *unused;
        unsigned char flags[8];
    } wanted = {.type = 1, .handles = 1, .location_type = 1};
    unsigned long long handle;
    while (total < most && create(&handle, PIECE, &wanted, 0) == 0) {
        int file = -1;
        if (export(&file, handle, 1, 0) != 0) {
            die("export");
        }
        if (other < 0) {
            (void)dup(file);
        } else {
            char byte = 0, control[CMSG_SPACE(sizeof file)] = {0};
            struct iovec data = {&byte, 1};
            struct msghdr message = {.msg_iov = &data,
                                     .msg_iovlen = 1,
                                     .msg_control = control,
                                     .msg_controllen = sizeof control};
            struct cmsghdr *head = CMSG_FIRSTHDR(&message);
            head->cmsg_level = SOL_SOCKET;
            head->cmsg_type = SCM_RIGHTS;
            head->cmsg_len = CMSG_LEN(sizeof file);
            memcpy(CMSG_DATA(head), &file, sizeof file);
            if (sendmsg(other, &message, 0) < 0) {
                die("pass a descriptor");
            }
        }
        close(file);
        release(handle);
        count();
    }
}

/* Takes memory that no call names: stacks, those that a kernel needs, or variables of code. */
static void take_unnamed(const char *way) {
    static const char room[] = CODE ".global .align 8 .b8 room[256][1024*1024];\n";
    static const char deep[] = CODE ".visible .entry deep()\n"
                                    "{ .local .align 16 .b8 depot[65536]; ret; }\n";
    void *context, *module, *kernel;
    for (int result = 0; total < most && result == 0; total += result == 0 ? PIECE : 0) {
        if (strcmp(way, "code") == 0) {
            result = load(&module, room);
        } else if ((result = make(&context, 0, 0)) == 0) {
            result = strcmp(way, "stack") == 0 ? set(0, 65536)
                     : load(&module, deep) != 0 || function(&kernel, module, "deep") != 0
                         ? 1
                         : launch(kernel, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
        }
    }
}

/* A process without CUDA that keeps what it is sent until nobody sends any more. */
static int keeper(void) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) {
        die("socketpair");
    }
    if (fork() != 0) {
        close(ends[1]);
        return ends[0];
    }
    close(ends[0]);
    for (;;) {
        char byte, control[CMSG_SPACE(sizeof(int))];
        struct iovec data = {&byte, 1};
        struct msghdr message = {.msg_iov = &data,
                                 .msg_iovlen = 1,
                                 .msg_control = control,
                                 .msg_controllen = sizeof control};
        if (recvmsg(ends[1], &message, 0) <= 0) {
            _exit(0);
        }
    }
}

int main(int argc, char **argv) {
    if (argc != 6) {
        return 2;
    }
    const char *way = argv[1];
    passed = strtoull(argv[2], NULL, 10);
    most = strtoull(argv[3], NULL, 10);
    amounts_offset = strtol(argv[4], NULL, 10);
    limit_offset = strtol(argv[5], NULL, 10);
    int other = strcmp(way, "pass") == 0 ? keeper() : -1;
    find(dlopen("libcuda.so.1", RTLD_NOW));
    find_directory();
    if (strcmp(way, "open") == 0) {
        char preload[4096];
        (void)snprintf(preload, sizeof preload, "%s.so", argv[0]);
        setenv("BYPASS_PAGE", forged_page(), 1);
        setenv("LD_PRELOAD", preload, 1);
        become_plain(argv);
    } else if (strcmp(way, "mount") == 0) {
        mount_page(forged_page());
        become_plain(argv);
    }
    begin();
    if (strcmp(way, "name") == 0) {
        find(open_real());
        take();
    } else if (strcmp(way, "zero") == 0) {
        for (unsigned long long before = 1; total != before && total < most;) {
            before = total;
            *ledger() = 0;
            take();
        }
    } else if (strcmp(way, "loop") == 0) {
        pthread_t thread;
        pthread_create(&thread, NULL, zero_always, (void *)(uintptr_t)ledger());
        for (time_t end = time(NULL) + 20; total < most && time(NULL) < end;) {
            take();
        }
    } else if (strcmp(way, "longjmp") == 0) {
        wait_for_kernel(leave);
        take();
    } else if (strcmp(way, "handler") == 0) {
        wait_for_kernel(take_inside);
    } else if (strcmp(way, "dup") == 0 || strcmp(way, "pass") == 0) {
        take_descriptors(other);
    } else if (strcmp(way, "stack") == 0 || strcmp(way, "code") == 0 || strcmp(way, "local") == 0) {
        take_unnamed(way);
    } else {
        take();
    }
    finish();
}

#endif
