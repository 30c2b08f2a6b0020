/* A filter of system calls. It lists what is forbidden: the driver is another's, in many versions, and what it needs is
 * nowhere told. A forbidden call answers EPERM and does not end the worker: drivers try some, such as to start a helper
 * that makes device files, and go on without. */
#define _GNU_SOURCE
#include "remote/worker/sandbox.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined __x86_64__
#define ARCHITECTURE AUDIT_ARCH_X86_64
/* Calls of the 32-bit form of this architecture have this bit. */
#define FOREIGN_CALL 0x40000000u
#elif defined __aarch64__
#define ARCHITECTURE AUDIT_ARCH_AARCH64
#define FOREIGN_CALL 0x80000000u
#else
#error "say which architecture a filter of system calls is for"
#endif

#define TIOCSTI_COMMAND 0x5412u
#define TIOCLINUX_COMMAND 0x541cu

#define FIELD(name) (uint32_t)offsetof(struct seccomp_data, name)
#define LOAD(at) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (at))
/* Low half of an argument. */
#define ARGUMENT(n) LOAD(FIELD(args) + 8u * (n))
#define RETURN(what) BPF_STMT(BPF_RET | BPF_K, (what))
#define FORBID RETURN(SECCOMP_RET_ERRNO | EPERM)
#define ALLOW RETURN(SECCOMP_RET_ALLOW)
/* Where the value is equal, the next so many instructions, which are passed over otherwise. */
#define IF_EQUAL(value, then) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (value), 0, (then))
#define IF_NOT_EQUAL(value, then) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (value), (then), 0)
#define IF_SET(bits, then) BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, (bits), 0, (then))
#define IF_NOT_SET(bits, then) BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, (bits), (then), 0)
#define NEVER(name) IF_EQUAL(SYS_##name, 1), FORBID

#ifndef SYS_io_uring_setup
#define SYS_io_uring_setup 425
#endif
#ifndef SYS_open_tree
#define SYS_open_tree 428
#define SYS_move_mount 429
#define SYS_fsopen 430
#define SYS_fsconfig 431
#define SYS_fsmount 432
#define SYS_fspick 433
#endif
#ifndef SYS_pidfd_send_signal
#define SYS_pidfd_send_signal 424
#endif
#ifndef SYS_pidfd_getfd
#define SYS_pidfd_getfd 438
#endif
#ifndef SYS_process_madvise
#define SYS_process_madvise 440
#endif
#ifndef SYS_mount_setattr
#define SYS_mount_setattr 442
#endif
#ifndef SYS_clone3
#define SYS_clone3 435
#endif

#ifndef SECCOMP_RET_KILL_PROCESS
#define SECCOMP_RET_KILL_PROCESS 0x80000000u
#endif

/* Stands for the worker's process in what follows. */
#define ITSELF 0xffffffffu

static const struct sock_filter forbidden[] = {
    LOAD(FIELD(arch)),
    IF_NOT_EQUAL(ARCHITECTURE, 1),
    RETURN(SECCOMP_RET_KILL_PROCESS),
    LOAD(FIELD(nr)),
    IF_SET(FOREIGN_CALL, 1),
    FORBID,
    /* Other programs, and other processes of this user. */
    NEVER(execve),
    NEVER(execveat),
#ifdef SYS_fork
    NEVER(fork),
    NEVER(vfork),
#endif
    NEVER(ptrace),
    NEVER(process_vm_readv),
    NEVER(process_vm_writev),
    NEVER(process_madvise),
    NEVER(kcmp),
    NEVER(pidfd_getfd),
    NEVER(pidfd_send_signal),
    NEVER(rt_sigqueueinfo),
    NEVER(rt_tgsigqueueinfo),
    NEVER(tkill),
    NEVER(perf_event_open),
    /* What is mounted, and namespaces. */
    NEVER(mount),
    NEVER(umount2),
    NEVER(pivot_root),
    NEVER(chroot),
    NEVER(open_tree),
    NEVER(move_mount),
    NEVER(fsopen),
    NEVER(fsconfig),
    NEVER(fsmount),
    NEVER(fspick),
    NEVER(mount_setattr),
    NEVER(unshare),
    NEVER(setns),
    NEVER(name_to_handle_at),
    NEVER(open_by_handle_at),
    NEVER(mknodat),
#ifdef SYS_mknod
    NEVER(mknod),
#endif
    /* The kernel itself. */
    NEVER(bpf),
    NEVER(userfaultfd),
    NEVER(io_uring_setup),
    NEVER(add_key),
    NEVER(request_key),
    NEVER(keyctl),
    NEVER(init_module),
    NEVER(finit_module),
    NEVER(delete_module),
    NEVER(kexec_load),
#ifdef SYS_kexec_file_load
    NEVER(kexec_file_load),
#endif
    NEVER(reboot),
    NEVER(swapon),
    NEVER(swapoff),
    NEVER(acct),
    NEVER(quotactl),
    NEVER(syslog),
    NEVER(personality),
    NEVER(sethostname),
    NEVER(setdomainname),
    NEVER(settimeofday),
    NEVER(clock_settime),
    NEVER(clock_adjtime),
    NEVER(adjtimex),
#ifdef SYS_ioperm
    NEVER(ioperm),
    NEVER(iopl),
    NEVER(modify_ldt),
#endif
    /* Without it the C library makes threads by clone, whose flags can be judged. */
    IF_EQUAL(SYS_clone3, 1),
    RETURN(SECCOMP_RET_ERRNO | ENOSYS),
    IF_EQUAL(SYS_clone, 4),
    ARGUMENT(0),
    IF_SET(CLONE_THREAD, 1),
    ALLOW,
    FORBID,
    /* Local sockets alone: the driver speaks to daemons of its own through them. */
    IF_EQUAL(SYS_socket, 4),
    ARGUMENT(0),
    IF_EQUAL(AF_UNIX, 1),
    ALLOW,
    FORBID,
    /* A thread that aborts signals itself. */
    IF_EQUAL(SYS_tgkill, 4),
    ARGUMENT(0),
    IF_EQUAL(ITSELF, 1),
    ALLOW,
    FORBID,
    /* Whether a process is there may be asked. */
    IF_EQUAL(SYS_kill, 4),
    ARGUMENT(1),
    IF_EQUAL(0, 1),
    ALLOW,
    FORBID,
    /* What would be typed into the terminal that the listener was started from. */
    IF_EQUAL(SYS_ioctl, 5),
    ARGUMENT(1),
    IF_NOT_EQUAL(TIOCSTI_COMMAND, 2),
    IF_NOT_EQUAL(TIOCLINUX_COMMAND, 1),
    ALLOW,
    FORBID,
    ALLOW,
};

static bool refused(char why[REMOTE_WHY_BYTES], const char *what) {
    snprintf(why, REMOTE_WHY_BYTES, "%s: %s", what, strerror(errno));
    return false;
}

bool remote_sandbox_prepare(char why[REMOTE_WHY_BYTES]) {
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) {
        return refused(why, "cannot give up new privileges");
    }
    /* No other process of this user reads what the worker has in memory. */
    if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)) {
        return refused(why, "cannot close the memory to other processes");
    }
    return true;
}

bool remote_sandbox_enter(char why[REMOTE_WHY_BYTES]) {
    struct sock_filter filter[sizeof forbidden / sizeof *forbidden];
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};

    memcpy(filter, forbidden, sizeof filter);
    for (size_t i = 0; i < program.len; i++) {
        if (filter[i].k == ITSELF) {
            filter[i].k = (uint32_t)getpid();
        }
    }
    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program)) {
        return refused(why, "cannot forbid system calls");
    }
    return true;
}
