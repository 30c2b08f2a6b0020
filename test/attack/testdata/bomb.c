/* Forks without end, each child in a session of its own, and ignores requests to end. In way
   "grow" everybody stays, and in way "orphan" each parent ends when it has forked. So that
   nobody but the test has a bomb, it stops after a number of forks, given as second argument;
   how many processes there may be at once its starter limits (RLIMIT_NPROC). */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <unistd.h>

int main(int argc, char **argv) {
    if (argc != 3) {
        return 2;
    }
    int orphan = strcmp(argv[1], "orphan") == 0;
    int *left = mmap(NULL, sizeof *left, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (left == MAP_FAILED) {
        return 1;
    }
    *left = atoi(argv[2]);
    signal(SIGTERM, SIG_IGN);
    signal(SIGCHLD, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    puts("up");
    fflush(stdout);
    for (;;) {
        if (__atomic_load_n(left, __ATOMIC_RELAXED) <= 0) {
            pause();
        }
        pid_t child = fork();
        if (child == 0) {
            __atomic_fetch_sub(left, 1, __ATOMIC_RELAXED);
            setsid();
        } else if (child < 0) {
            usleep(1000);
        } else if (orphan) {
            _exit(0);
        }
    }
}
