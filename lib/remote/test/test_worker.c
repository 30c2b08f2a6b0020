/* The program divvy-worker with the simulated driver: who is served, how many, and what ends when something else does. */
#define _GNU_SOURCE
#include "remote/generated/numbers/numbers.h"
#include "remote/link.h"
#include "remote/test/program.h"
#include "simgpu/machine/test/setting.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define CUDA_OUT_OF_DATE 803

static char why[REMOTE_WHY_BYTES];

static struct remote_link *join(void) {
    return remote_link_connect(program_path, why);
}

static unsigned char frame[REMOTE_RECORD_BYTES];

/* The answer to a record with these words; false if the link has ended. */
static bool try_ask(struct remote_link *link, uint16_t call, uint64_t context, uint32_t given,
                    const uint64_t *words, size_t count, struct remote_answer *answer) {
    static uint64_t sequence;
    struct remote_head head = {.size = (uint32_t)(sizeof head + 8 * count),
                               .call = call,
                               .sequence = ++sequence,
                               .context = context,
                               .thread = 1,
                               .given = given};
    struct remote_piece piece = {words, 8 * count};
    size_t size;

    if (!remote_link_put(link, &head, sizeof head, &piece, 1)) {
        return false;
    }
    remote_link_flush(link);
    if (remote_link_take(link, frame, &size, -1) != REMOTE_TAKEN) {
        return false;
    }
    memcpy(answer, frame, sizeof *answer);
    CHECK_EQUAL(answer->sequence, sequence);
    return true;
}

#define WORDS(...) (const uint64_t[]){__VA_ARGS__}, sizeof((const uint64_t[]){__VA_ARGS__}) / 8

static int32_t ask(struct remote_link *link, uint16_t call, uint64_t context, uint32_t given,
                   const uint64_t *words, size_t count) {
    struct remote_answer answer;

    CHECK(try_ask(link, call, context, given, words, count, &answer));
    return answer.result;
}

static uint64_t body(void) {
    uint64_t value;

    memcpy(&value, frame + sizeof(struct remote_answer), sizeof value);
    return value;
}

static struct remote_link *begin(void) {
    struct remote_link *link = join();

    if (!link) {
        fprintf(stderr, "no link: %s\n", why);
        exit(1);
    }
    CHECK_EQUAL(ask(link, REMOTE_cuInit, 0, 0, WORDS(0)), 0);
    return link;
}

static bool is_alive(struct remote_link *link) {
    struct remote_answer answer;

    return try_ask(link, REMOTE_cuDriverGetVersion, 0, 1, NULL, 0, &answer) && answer.result == 0;
}

static uint64_t free_memory(struct remote_link *link, uint64_t context) {
    CHECK_EQUAL(ask(link, REMOTE_cuMemGetInfo_v2, context, 3, NULL, 0), 0);
    return body();
}

static void check_served(void) {
    PROGRAM();
    struct remote_link *one = begin(), *other = begin();

    CHECK_EQUAL(ask(one, REMOTE_cuDeviceGetCount, 0, 1, NULL, 0), 0);
    CHECK_EQUAL(body() & 0xffffffff, GPU_COUNT);
    CHECK_EQUAL(ask(one, REMOTE_nvmlInit_v2, 0, 0, NULL, 0), 0);
    CHECK_EQUAL(ask(one, REMOTE_nvmlDeviceGetCount_v2, 0, 1, NULL, 0), 0);
    CHECK_EQUAL(body() & 0xffffffff, GPU_COUNT);
    /* Each has a worker of its own. */
    CHECK_EQUAL(program_workers(NULL), 2);
    CHECK_EQUAL(ask(one, REMOTE_cuCtxCreate_v2, 0, 1, WORDS(10, 0, 0)), 0);
    CHECK_EQUAL(ask(other, REMOTE_cuCtxDestroy_v2, 0, 0, WORDS(10)), 201);
    remote_link_free(one);
    remote_link_free(other);
    EVENTUALLY(program_workers(NULL) == 0);
    program_stop();
    CHECK(!program_log_has("worker"));
}

/* What a client held is free when it is gone. */
static void check_death_of_client(void) {
    PROGRAM();
    struct remote_link *one = begin(), *other = begin();

    CHECK_EQUAL(ask(other, REMOTE_cuCtxCreate_v2, 0, 1, WORDS(10, 0, 0)), 0);
    uint64_t before = free_memory(other, 10);
    CHECK_EQUAL(ask(one, REMOTE_cuCtxCreate_v2, 0, 1, WORDS(10, 0, 0)), 0);
    CHECK_EQUAL(ask(one, REMOTE_cuMemAlloc_v2, 10, 1, WORDS(16 * MIB)), 0);
    CHECK(free_memory(other, 10) <= before - 16 * MIB);
    remote_link_free(one);
    EVENTUALLY(free_memory(other, 10) == before);
    EVENTUALLY(program_workers(NULL) == 1);
    remote_link_free(other);
    program_stop();
}

static void check_death_of_worker(void) {
    pid_t worker = 0;

    PROGRAM();
    struct remote_link *link = begin();
    CHECK_EQUAL(program_workers(&worker), 1);
    kill(worker, SIGKILL);
    EVENTUALLY(!is_alive(link));
    remote_link_free(link);
    EVENTUALLY(program_log_has("was ended by signal 9"));
    link = begin();
    CHECK(is_alive(link));
    /* With the listener its workers end. */
    kill(program_listener, SIGKILL);
    EVENTUALLY(!is_alive(link));
    remote_link_free(link);
    CHECK_EQUAL(program_status(program_listener), 1000 + SIGKILL);
}

/* The life ends: nobody comes any more, and who is there stays. The socket of a listener that was killed is in nobody's
 * way. */
static void check_life(void) {
    CHECK(access(program_path, F_OK) == 0);
    PROGRAM();
    struct remote_link *link = begin();

    CHECK_EQUAL(write(program_life, "x", 1), 1);
    CHECK(is_alive(link));
    close(program_life);
    program_life = -1;
    EVENTUALLY(access(program_path, F_OK) != 0);
    CHECK(!join());
    CHECK(is_alive(link));
    CHECK_EQUAL(waitpid(program_listener, NULL, WNOHANG), 0);
    remote_link_free(link);
    CHECK_EQUAL(program_status(program_listener), 0);
}

/* A program that stops its worker, and what listens for it, keeps nothing of the GPU when it ends. */
static void check_stopped(void) {
    const char *const none[] = {NULL};
    int said[2];
    char byte;
    pid_t worker = 0;

    CHECK(pipe2(said, O_CLOEXEC) == 0);
    program_begin(none);
    pid_t client = fork();
    CHECK(client >= 0);
    if (client == 0) {
        close(program_life);
        begin();
        CHECK_EQUAL(write(said[1], "x", 1), 1);
        for (;;) {
            pause();
        }
    }
    CHECK_EQUAL(read(said[0], &byte, 1), 1);
    CHECK_EQUAL(program_workers(&worker), 1);
    kill(worker, SIGSTOP);
    kill(program_listener, SIGSTOP);
    CHECK_EQUAL(waitpid(program_listener, NULL, WUNTRACED), program_listener);
    kill(client, SIGKILL);
    CHECK_EQUAL(program_status(client), 1000 + SIGKILL);
    program_stop();
    close(said[0]);
    close(said[1]);
}

static void check_signal(void) {
    PROGRAM();
    struct remote_link *link = begin();

    kill(program_listener, SIGTERM);
    CHECK_EQUAL(program_status(program_listener), 0);
    CHECK(access(program_path, F_OK) != 0);
    EVENTUALLY(!is_alive(link));
    remote_link_free(link);
}

static void check_place(void) {
    const char *const none[] = {NULL};
    pid_t first;
    int ready, first_life;

    PROGRAM();
    first = program_listener;
    first_life = program_life;
    program_life = -1;
    /* Somebody listens there. */
    pid_t second = program_start(none, &ready);
    CHECK_EQUAL(program_status(second), 1);
    CHECK(program_log_has("Address already in use"));
    close(ready);
    close(program_life);
    program_listener = first;
    program_life = first_life;
    remote_link_free(begin());
    program_stop();
    /* Something else is there. */
    int file = open(program_path, O_WRONLY | O_CREAT | O_EXCL, 0600);
    CHECK(file >= 0);
    close(file);
    CHECK_EQUAL(program_status(program_start(none, &ready)), 1);
    close(ready);
    CHECK_EQUAL(unlink(program_path), 0);
}

static void check_bound(void) {
    PROGRAM("--workers", "2", );
    struct remote_link *one = begin(), *other = begin();

    CHECK(!join());
    CHECK(program_log_has("turned away"));
    CHECK(is_alive(one) && is_alive(other));
    remote_link_free(one);
    EVENTUALLY(program_workers(NULL) == 1);
    one = begin();
    remote_link_free(one);
    remote_link_free(other);
    program_stop();
}

/* Clients that only come and say nothing. */
static void check_crowd(void) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int sockets[100];

    PROGRAM("--workers", "4", );
    CHECK(strlen(program_path) < sizeof address.sun_path);
    memcpy(address.sun_path, program_path, strlen(program_path));
    for (int round = 0; round < 10; round++) {
        for (int i = 0; i < 100; i++) {
            sockets[i] = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
            CHECK(connect(sockets[i], (struct sockaddr *)&address, sizeof address) == 0);
        }
        CHECK(program_workers(NULL) <= 4);
        for (int i = 0; i < 100; i++) {
            close(sockets[i]);
        }
    }
    EVENTUALLY(program_workers(NULL) == 0);
    struct remote_link *link = begin();
    remote_link_free(link);
    program_stop();
}

/* Only processes of one user. Another user's cannot be played without being root. */
static void check_user(void) {
    struct stat made;

    PROGRAM();
    CHECK(stat(program_path, &made) == 0 && (made.st_mode & 07777) == 0600);
    program_stop();
    if (geteuid()) {
        printf("not root: no other user is turned away\n");
        return;
    }
    PROGRAM("--uid", "12345", );
    CHECK(stat(program_path, &made) == 0 && made.st_uid == 12345);
    CHECK(!join());
    CHECK(program_log_has("of user 0 is turned away: this worker is of user 12345"));
    CHECK_EQUAL(program_workers(NULL), 0);
    program_stop();
}

static void check_garbled(void) {
    struct remote_answer answer;

    PROGRAM();
    struct remote_link *one = begin(), *other = begin();
    CHECK(!try_ask(one, 0x7eff, 0, 0, NULL, 0, &answer));
    EVENTUALLY(program_log_has("is none that this version sends"));
    CHECK(is_alive(other));
    remote_link_free(one);
    remote_link_free(other);
    program_stop();
}

/* A log that nobody reads, a pipe that is full: neither a worker that has something to say nor the listener waits for room. */
static void check_unread_log(void) {
    struct remote_answer answer;
    char log[sizeof program_path];
    pid_t worker = 0;

    snprintf(log, sizeof log, "%.*s/log", (int)(strrchr(program_path, '/') - program_path),
             program_path);
    unlink(log);
    CHECK_EQUAL(mkfifo(log, 0600), 0);
    int unread = open(log, O_RDWR | O_NONBLOCK | O_CLOEXEC);
    CHECK(unread >= 0);
    while (write(unread, log, 1) == 1) {
    }
    PROGRAM();
    struct remote_link *link = begin(), *other = begin();
    CHECK(!try_ask(link, 0x7eff, 0, 0, NULL, 0, &answer));
    remote_link_free(link);
    EVENTUALLY(program_workers(&worker) == 1);
    kill(worker, SIGKILL);
    EVENTUALLY(!is_alive(other));
    remote_link_free(other);
    link = begin();
    CHECK(is_alive(link));
    remote_link_free(link);
    program_stop();
    close(unread);
    unlink(log);
}

/* A driver that cannot say where the parameters of a kernel lie. */
static void check_old_driver(sim_machine *machine) {
    machine->cuda_version = 12030;
    setting_make(machine);
    PROGRAM();
    struct remote_link *link = join();

    CHECK(link);
    CHECK_EQUAL(ask(link, REMOTE_cuInit, 0, 0, WORDS(0)), CUDA_OUT_OF_DATE);
    CHECK(program_log_has(
        "the driver here is of CUDA 12.3, and programs of another machine need one of "
        "12.4 or later"));
    remote_link_free(link);
    program_stop();
}

int main(void) {
    sim_machine machine;

    setting_describe(&machine);
    setting_make(&machine);
    program_place();
    check_served();
    check_death_of_client();
    check_death_of_worker();
    check_life();
    check_stopped();
    check_signal();
    check_place();
    check_bound();
    check_crowd();
    check_user();
    check_garbled();
    check_unread_log();
    check_old_driver(&machine);
    /* A path that is longer than an address. */
    program_place_deep();
    machine.cuda_version = 12040;
    setting_make(&machine);
    check_served();
    return 0;
}
