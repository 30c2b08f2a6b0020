/*
 * storm: processes race through allocations of mixed sizes in one share. Every call is logged with
 * the moments before and after it, and after each round the logs are merged and judged: a refusal
 * was false when at every moment of its call everything that could have been allocated left room
 * for the most it could take.
 */
#include "storm.h"
#include "driver.h"
#include "options.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define LIVE_MOST 96u
#define STORM_PROCESSES_MOST 256u

struct live {
    CUdeviceptr pointer;
    uint64_t bytes;
};

struct racer {
    struct storm_log *log;
    struct storm_blocks blocks;
    struct live live[LIVE_MOST];
    unsigned count;
    uint64_t random;
};

static uint64_t next_random(struct racer *racer) {
    uint64_t x = racer->random;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    return racer->random = x;
}

/* Half small requests, the rest up to 64 MiB, none of them rounded. */
static uint64_t random_bytes(struct racer *racer) {
    uint64_t draw = next_random(racer);
    uint64_t most = draw % 10 < 5 ? 512u << 10 : draw % 10 < 8 ? 8u << 20 : 64u << 20;
    return (draw >> 8) % most + 1;
}

static int free_one(struct racer *racer) {
    unsigned i = (unsigned)(next_random(racer) % racer->count);
    struct live gone = racer->live[i];
    racer->live[i] = racer->live[--racer->count];
    if (driver.cuMemFree_v2(gone.pointer) != CUDA_SUCCESS) {
        return 0;
    }
    uint64_t bytes = storm_blocks_remove(&racer->blocks, gone.pointer, gone.bytes);
    storm_log_add(racer->log, now_ns(), STORM_FREED, bytes);
    return 1;
}

static int allocate_one(struct racer *racer) {
    CUdeviceptr pointer = 0;
    uint64_t bytes = random_bytes(racer), start = now_ns();
    CUresult result = driver.cuMemAlloc_v2(&pointer, bytes);
    if (result == CUDA_ERROR_OUT_OF_MEMORY) {
        storm_log_add(racer->log, start, STORM_REFUSAL_BEGINS, storm_need(bytes));
        storm_log_add(racer->log, now_ns(), STORM_REFUSAL_ENDS, storm_need(bytes));
        racer->log->small_with_room += storm_blocks_room(&racer->blocks) >= bytes;
        return racer->count == 0 || free_one(racer);
    }
    if (result != CUDA_SUCCESS) {
        return 0;
    }
    uint64_t taken = storm_blocks_add(&racer->blocks, pointer, bytes);
    storm_log_add(racer->log, start, STORM_ALLOCATED, taken);
    racer->live[racer->count++] = (struct live){pointer, bytes};
    return 1;
}

static int run_round(struct racer *racer, uint64_t allocations) {
    for (uint64_t done = 0; done < allocations;) {
        int make_room =
            racer->count == LIVE_MOST || (racer->count > 0 && next_random(racer) % 16 < 7);
        if (make_room ? !free_one(racer) : !allocate_one(racer)) {
            return 0;
        }
        done += !make_room;
    }
    return 1;
}

static int race(struct storm *storm, unsigned index, const struct options *options) {
    struct racer *racer = calloc(1, sizeof *racer);
    int ok = racer != NULL && driver_start(options->device) == CUDA_SUCCESS;
    if (racer != NULL) {
        racer->log = &storm->logs[index];
        racer->random = options->seed * 0x9e3779b97f4a7c15u + index + 1;
    }
    storm->failed |= !ok;
    pthread_barrier_wait(&storm->barrier);
    for (uint64_t round = 0; round < storm->rounds; round++) {
        /* The parent judges between the two waits. A process that failed still waits at the
         * barrier. */
        pthread_barrier_wait(&storm->barrier);
        ok = ok && run_round(racer, storm->round_allocations);
        storm->failed |= !ok;
        pthread_barrier_wait(&storm->barrier);
    }
    while (ok && racer->count > 0) {
        ok = free_one(racer);
    }
    free(racer);
    return ok ? 0 : 1;
}

static struct storm *make_storm(const struct options *options) {
    size_t bytes = sizeof(struct storm) + options->processes * sizeof(struct storm_log);
    struct storm *storm =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (storm == MAP_FAILED) {
        return NULL;
    }
    uint64_t each = (options->count + options->processes - 1) / options->processes;
    storm->processes = options->processes;
    storm->limit = options->limit;
    storm->round_allocations = each < STORM_ROUND ? each : STORM_ROUND;
    storm->rounds = (each + storm->round_allocations - 1) / storm->round_allocations;
    pthread_barrierattr_t shared;
    pthread_barrierattr_init(&shared);
    pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(&storm->barrier, &shared, options->processes + 1);
    return storm;
}

static int report(const struct storm *storm, const struct storm_verdict *verdict, uint64_t wall_ns,
                  int failed) {
    uint64_t with_room = 0;
    for (unsigned i = 0; i < storm->processes; i++) {
        with_room += storm->logs[i].small_with_room;
    }
    printf("{\"command\":\"storm\",\"processes\":%u,\"allocations\":%llu,\"granted\":%llu,"
           "\"refused\":%llu,\"false_refusals\":%llu,\"refused_with_room_in_own_block\":%llu,"
           "\"peak_bytes\":%llu,\"limit_bytes\":%llu,\"wall_ns\":%llu,\"failed\":%s}\n",
           storm->processes,
           (unsigned long long)(storm->rounds * storm->round_allocations * storm->processes),
           (unsigned long long)verdict->granted, (unsigned long long)verdict->refused,
           (unsigned long long)verdict->false_refusals, (unsigned long long)with_room,
           (unsigned long long)verdict->peak, (unsigned long long)storm->limit,
           (unsigned long long)wall_ns, failed ? "true" : "false");
    return failed ? 1 : 0;
}

static pid_t children[STORM_PROCESSES_MOST];
static unsigned started;
static volatile sig_atomic_t ended, broken;

/* Ends the race when a racer dies, because the others would wait for it at the barrier. */
static void on_child(int number) {
    int status;
    (void)number;
    while (waitpid(-1, &status, WNOHANG) > 0) {
        ended++;
        if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
            continue;
        }
        broken = 1;
        if (WIFSIGNALED(status)) {
            for (unsigned i = 0; i < started; i++) {
                kill(children[i], SIGKILL);
            }
            static const char message[] = "gpubench: a process of the race was killed\n";
            _exit(write(2, message, sizeof message - 1) < 0 ? 2 : 1);
        }
    }
}

static int start_racers(struct storm *storm, const struct options *options) {
    struct sigaction action = {.sa_handler = on_child, .sa_flags = SA_RESTART};
    sigaction(SIGCHLD, &action, NULL);
    fflush(stdout);
    for (unsigned i = 0; i < options->processes; i++) {
        pid_t child = fork();
        if (child == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            _exit(race(storm, i, options));
        }
        if (child < 0) {
            perror("gpubench: fork");
            return 0;
        }
        children[started++] = child;
    }
    return 1;
}

int command_storm(const struct options *options) {
    struct storm *storm = options->processes <= STORM_PROCESSES_MOST ? make_storm(options) : NULL;
    if (storm == NULL) {
        fputs("gpubench: too many processes, or no memory for the race's logs\n", stderr);
        return 2;
    }
    if (!start_racers(storm, options)) {
        return 2;
    }
    struct storm_verdict verdict = {0};
    pthread_barrier_wait(&storm->barrier);
    uint64_t start = now_ns();
    for (uint64_t round = 0; round < storm->rounds; round++) {
        pthread_barrier_wait(&storm->barrier);
        pthread_barrier_wait(&storm->barrier);
        storm_judge(storm, &verdict);
    }
    sigset_t child_set, before;
    sigemptyset(&child_set);
    sigaddset(&child_set, SIGCHLD);
    sigprocmask(SIG_BLOCK, &child_set, &before);
    while (ended < (int)started) {
        sigsuspend(&before);
    }
    return report(storm, &verdict, now_ns() - start, storm->failed || broken);
}
