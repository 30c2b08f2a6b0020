#define _GNU_SOURCE
#include "remote/client/test/setting.h"

#include <pthread.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

void (*setting_idle)(struct remote_link *link);

static setting_record *script;
static enum remote_link_kind kind;
static char folder[] = "/tmp/divvy-client-XXXXXX";
static char path[64];
static unsigned connections;
static unsigned long records;
static struct remote_link *latest;
static pthread_mutex_t putting = PTHREAD_MUTEX_INITIALIZER;

static void *serve(void *of) {
    struct remote_link *link = of;
    unsigned char *record = aligned_alloc(128, REMOTE_RECORD_BYTES);
    enum remote_taken taken;
    size_t size;

    CHECK(record);
    int64_t moment = setting_idle ? 1000000 : -1;
    while ((taken = remote_link_take(link, record, &size, moment)) != REMOTE_ENDED) {
        if (taken == REMOTE_NOTHING_YET && setting_idle) {
            setting_idle(link);
        }
        if (taken == REMOTE_TAKEN) {
            __atomic_add_fetch(&records, 1, __ATOMIC_RELEASE);
            script(link, (const struct remote_head *)(const void *)record,
                   (const uint64_t *)(const void *)(record + sizeof(struct remote_head)));
        }
    }
    free(record);
    return NULL;
}

static void *accept_all(void *of) {
    int listening = *(int *)of;

    for (;;) {
        char why[REMOTE_WHY_BYTES];
        pthread_t thread;
        int one = accept4(listening, NULL, NULL, SOCK_CLOEXEC);
        CHECK(one >= 0);
        struct remote_link *link = remote_link_accept(one, why);
        CHECK(link);
        __atomic_store_n(&latest, link, __ATOMIC_RELEASE);
        __atomic_add_fetch(&connections, 1, __ATOMIC_RELEASE);
        CHECK(pthread_create(&thread, NULL, serve, link) == 0);
        pthread_detach(thread);
    }
    return NULL;
}

static void remove_folder(void) {
    unlink(path);
    rmdir(folder);
}

void setting_start(enum remote_link_kind of, setting_record *record) {
    static int listening;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    pthread_t thread;

    kind = of;
    script = record;
    CHECK(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/socket", folder);
    strcpy(address.sun_path, path);
    listening = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(bind(listening, (const struct sockaddr *)&address, sizeof address) == 0);
    CHECK(listen(listening, 8) == 0);
    atexit(remove_folder);
    setenv("DIVVY_REMOTE_SOCKET", path, 1);
    CHECK(pthread_create(&thread, NULL, accept_all, &listening) == 0);
    pthread_detach(thread);
}

int setting_run(void (*test)(enum remote_link_kind)) {
    static const enum remote_link_kind kinds[] = {REMOTE_LINK_RINGS, REMOTE_LINK_STREAM};

    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        pid_t child = fork();
        int status;

        CHECK(child >= 0);
        if (child == 0) {
            alarm(300);
            test(kinds[i]);
            exit(0);
        }
        CHECK(waitpid(child, &status, 0) == child);
        if (status) {
            fprintf(stderr, "link of kind %d: the test ended with 0x%x\n", kinds[i],
                    (unsigned)status);
            return 1;
        }
    }
    return 0;
}

unsigned setting_connections(void) {
    return __atomic_load_n(&connections, __ATOMIC_ACQUIRE);
}

unsigned long setting_records(void) {
    return __atomic_load_n(&records, __ATOMIC_ACQUIRE);
}

struct remote_link *setting_link(void) {
    return __atomic_load_n(&latest, __ATOMIC_ACQUIRE);
}

/* The client connects as its own code does it, but for the kind of link. The linker has its calls come here. */
struct remote_link *__wrap_remote_link_connect(const char *to, char why[REMOTE_WHY_BYTES]);
struct remote_link *__real_remote_link_connect(const char *to, char why[REMOTE_WHY_BYTES]);

struct remote_link *__wrap_remote_link_connect(const char *to, char why[REMOTE_WHY_BYTES]) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    if (strcmp(to, path) != 0) {
        return __real_remote_link_connect(to, why);
    }
    int one = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    strcpy(address.sun_path, to);
    CHECK(connect(one, (const struct sockaddr *)&address, sizeof address) == 0);
    return remote_link_client(one, kind, REMOTE_HELLO_NS, why);
}

static void put(struct remote_link *link, const struct remote_answer *answer, uint64_t value) {
    struct remote_piece piece = {&value, sizeof value};

    pthread_mutex_lock(&putting);
    remote_link_put(link, answer, sizeof *answer, &piece, answer->given ? 1 : 0);
    remote_link_flush(link);
    pthread_mutex_unlock(&putting);
}

void setting_answer(struct remote_link *link, const struct remote_head *head, int32_t result,
                    uint64_t late, uint64_t value) {
    bool given = result == 0 && head->given & 1;
    struct remote_answer answer = {.size = (uint32_t)sizeof answer + (given ? 8 : 0),
                                   .call = head->call,
                                   .sequence = head->sequence,
                                   .result = result,
                                   .given = given,
                                   .late = late};

    put(link, &answer, value);
}

void setting_notify(struct remote_link *link, uint16_t call, uint64_t value) {
    struct remote_answer answer = {.size = sizeof answer + 8, .call = call, .given = 1};

    put(link, &answer, value);
}

int32_t setting_ask(enum remote_number number, uint64_t word, uint64_t *value) {
    struct remote_call call;
    struct remote_reply reply;

    remote_begin(&call, number, 1);
    remote_given(&call, 0, value);
    call.words[0] = word;
    if (remote_ask(&call, &reply)) {
        remote_get(&call, &reply, 0, value, sizeof *value, false);
    }
    return remote_end(&call, &reply);
}

void setting_moment(void) {
    struct timespec moment = {0, 500000};

    nanosleep(&moment, NULL);
}
