/* What a worker forbids itself. Each question is asked in a process of its own, as nobody leaves the sandbox. */
#define _GNU_SOURCE
#include "remote/worker/sandbox.h"
#include "test/check.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/keyctl.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

static pid_t parent;

static void enter(void) {
    char why[REMOTE_WHY_BYTES];

    if (!remote_sandbox_prepare(why) || !remote_sandbox_enter(why)) {
        fprintf(stderr, "no sandbox: %s\n", why);
        _exit(1);
    }
}

#define FORBIDDEN(call)                                                                            \
    do {                                                                                           \
        errno = 0;                                                                                 \
        long got_ = (long)(call);                                                                  \
        if (got_ != -1 || errno != EPERM) {                                                        \
            fprintf(stderr, "%s:%d: %s answers %ld, errno %d\n", __FILE__, __LINE__, #call, got_,  \
                    errno);                                                                        \
            _exit(1);                                                                              \
        }                                                                                          \
    } while (0)
#define ALLOWED(call)                                                                              \
    do {                                                                                           \
        if (!(call)) {                                                                             \
            fprintf(stderr, "%s:%d: %s: errno %d\n", __FILE__, __LINE__, #call, errno);            \
            _exit(1);                                                                              \
        }                                                                                          \
    } while (0)

static void other_processes(void) {
    char *const nothing[] = {NULL};
    struct iovec none = {&parent, sizeof parent};
    int status;

    enter();
    FORBIDDEN(execve("/bin/true", nothing, nothing));
    FORBIDDEN(syscall(SYS_execveat, AT_FDCWD, "/bin/true", nothing, nothing, 0));
    FORBIDDEN(fork());
    FORBIDDEN(syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL));
    FORBIDDEN(syscall(SYS_ptrace, 0, 0, 0, 0));
    FORBIDDEN(syscall(SYS_process_vm_readv, parent, &none, 1, &none, 1, 0));
    FORBIDDEN(syscall(SYS_process_vm_writev, parent, &none, 1, &none, 1, 0));
    FORBIDDEN(kill(parent, SIGTERM));
    FORBIDDEN(syscall(SYS_tgkill, parent, parent, SIGTERM));
    FORBIDDEN(syscall(SYS_tkill, parent, SIGTERM));
    FORBIDDEN(syscall(SYS_rt_sigqueueinfo, parent, SIGTERM, NULL));
    ALLOWED(kill(parent, 0) == 0);
    ALLOWED(waitpid(-1, &status, WNOHANG) == -1 && errno == ECHILD);
}

static void kernel(void) {
    enter();
    FORBIDDEN(syscall(SYS_mount, "none", "/tmp", "tmpfs", 0, NULL));
    FORBIDDEN(syscall(SYS_umount2, "/tmp", 0));
    FORBIDDEN(syscall(SYS_chroot, "/tmp"));
    FORBIDDEN(unshare(CLONE_NEWUSER));
    FORBIDDEN(setns(0, 0));
    FORBIDDEN(syscall(SYS_bpf, 0, NULL, 0));
    FORBIDDEN(syscall(SYS_userfaultfd, 0));
    FORBIDDEN(syscall(SYS_perf_event_open, NULL, 0, 0, 0, 0));
    FORBIDDEN(syscall(SYS_keyctl, KEYCTL_GET_KEYRING_ID, 0, 0, 0, 0));
    FORBIDDEN(syscall(SYS_add_key, "user", "a", "b", 1, 0));
    FORBIDDEN(syscall(SYS_init_module, NULL, 0, ""));
    FORBIDDEN(syscall(SYS_finit_module, 0, "", 0));
    FORBIDDEN(syscall(SYS_kexec_load, 0, 0, NULL, 0));
    FORBIDDEN(syscall(SYS_open_by_handle_at, 0, NULL, 0));
    FORBIDDEN(syscall(SYS_name_to_handle_at, 0, "", NULL, NULL, 0));
    FORBIDDEN(syscall(SYS_reboot, 0, 0, 0, NULL));
    FORBIDDEN(syscall(425, 1, NULL)); /* io_uring_setup */
    FORBIDDEN(ioctl(0, TIOCSTI, "x"));
#ifdef __x86_64__
    FORBIDDEN(syscall(0x40000000L | SYS_getpid));
    FORBIDDEN(syscall(SYS_iopl, 0));
#endif
}

static void sockets(void) {
    int pair[2];

    enter();
    FORBIDDEN(socket(AF_INET, SOCK_STREAM, 0));
    FORBIDDEN(socket(AF_INET6, SOCK_DGRAM, 0));
    FORBIDDEN(socket(AF_NETLINK, SOCK_RAW, 0));
    FORBIDDEN(socket(AF_PACKET, SOCK_RAW, 0));
    ALLOWED(socket(AF_UNIX, SOCK_STREAM, 0) >= 0);
    ALLOWED(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
}

static sem_t begun;

static void *ask(void *forbidden) {
    sem_wait(&begun);
    *(int *)forbidden = socket(AF_INET, SOCK_STREAM, 0) == -1 && errno == EPERM;
    return NULL;
}

/* A thread from before, such as the driver's, is in the sandbox too, and others can be made. */
static void threads(void) {
    int earlier = 0, later = 0;
    pthread_t before, after;

    sem_init(&begun, 0, 0);
    ALLOWED(pthread_create(&before, NULL, ask, &earlier) == 0);
    enter();
    ALLOWED(pthread_create(&after, NULL, ask, &later) == 0);
    sem_post(&begun);
    sem_post(&begun);
    ALLOWED(pthread_join(before, NULL) == 0 && pthread_join(after, NULL) == 0);
    ALLOWED(earlier && later);
}

/* What drivers need. */
static void driver(void) {
    int size = 0;

    enter();
    int file = open("/dev/null", O_RDWR | O_CLOEXEC);
    ALLOWED(file >= 0);
    ALLOWED(ioctl(file, FIONREAD, &size) == -1 && errno == ENOTTY);
    ALLOWED(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0) !=
            MAP_FAILED);
    ALLOWED(mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) !=
            MAP_FAILED);
    ALLOWED(eventfd(0, EFD_CLOEXEC) >= 0);
    ALLOWED(syscall(SYS_memfd_create, "a", 1) >= 0);
    ALLOWED(access("/proc/self/maps", R_OK) == 0);
    ALLOWED(open("/proc/self/maps", O_RDONLY) >= 0);
    ALLOWED(sched_yield() == 0);
    ALLOWED(dlopen("libm.so.6", RTLD_NOW));
    ALLOWED(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1);
    ALLOWED(prctl(PR_GET_DUMPABLE, 0, 0, 0, 0) == 0);
}

/* A thread that aborts ends as ever. */
static void aborting(void) {
    enter();
    raise(SIGUSR1);
}

static int run(void (*question)(void)) {
    int status;
    pid_t child = fork();

    CHECK(child >= 0);
    if (child == 0) {
        question();
        _exit(0);
    }
    CHECK_EQUAL(waitpid(child, &status, 0), child);
    return status;
}

int main(void) {
    parent = getpid();
    CHECK_EQUAL(run(other_processes), 0);
    CHECK_EQUAL(run(kernel), 0);
    CHECK_EQUAL(run(sockets), 0);
    CHECK_EQUAL(run(threads), 0);
    CHECK_EQUAL(run(driver), 0);
    CHECK_EQUAL(run(aborting), SIGUSR1);
    return 0;
}
