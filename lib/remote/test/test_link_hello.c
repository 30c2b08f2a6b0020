/* What both sides say first, and descriptors: a side that says something else is refused in words, and nothing is left. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <inttypes.h>
#include <linux/memfd.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "remote/generated/numbers/numbers.h"
#include "remote/test/sides.h"
#include "test/check.h"

/* As a relay would write it: these bytes are a promise. */
struct hello {
    char magic[8];
    uint64_t protocol;
    uint32_t kind, process;
    uint64_t zero;
};
static const struct hello right = {.magic = {'D', 'I', 'V', 'V', 'Y', 'R', 'L', '1'},
                                   .protocol = REMOTE_PROTOCOL,
                                   .kind = REMOTE_LINK_STREAM};

static int pair[2];

static void open_pair(void) {
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
}

/* Sends bytes and descriptors from the other side's place. */
static void utter(const void *bytes, size_t size, const int *descriptors, size_t count) {
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(16 * sizeof(int))] = {0};
    struct iovec part = {.iov_base = (void *)(uintptr_t)bytes, .iov_len = size};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};

    if (count) {
        message.msg_control = control;
        message.msg_controllen = CMSG_SPACE(count * sizeof(int));
        struct cmsghdr *head = CMSG_FIRSTHDR(&message);
        head->cmsg_level = SOL_SOCKET;
        head->cmsg_type = SCM_RIGHTS;
        head->cmsg_len = CMSG_LEN(count * sizeof(int));
        memcpy(CMSG_DATA(head), descriptors, count * sizeof(int));
    }
    CHECK_EQUAL(sendmsg(pair[1], &message, MSG_NOSIGNAL), size);
}

/* The worker, or the client if it wanted this, refuses what the other side uttered, with these words. `closed`: the other
 * side ends then; else it says no more, and is waited for no longer than a moment. */
static void check_refused(enum remote_link_kind client, bool closed, const char *words) {
    char why[REMOTE_WHY_BYTES] = "";
    int64_t span = closed ? -1 : 20000000;

    if (closed) {
        shutdown(pair[1], SHUT_WR);
    }
    CHECK(!(client ? remote_link_client(pair[0], client, span, why)
                   : remote_link_worker(pair[0], span, why)));
    if (!strstr(why, words)) {
        fprintf(stderr, "it says \"%s\", not \"%s\"\n", why, words);
        exit(1);
    }
    close(pair[1]);
}

static void check_words(enum remote_link_kind client) {
    struct hello hello = right;
    char words[128];

    open_pair();
    check_refused(client, false, "said nothing in time");
    open_pair();
    check_refused(client, true, "ended the connection before its hello");
    open_pair();
    utter(&right, 31, NULL, 0);
    check_refused(client, false, "said nothing more in time");
    open_pair();
    utter(&right, 31, NULL, 0);
    check_refused(client, true, "ended the connection in the middle of its hello");
    open_pair();
    utter("GET / HTTP/1.1\r\n", 16, NULL, 0);
    check_refused(client, false, "speaks something else");
    open_pair();
    utter("x", 1, NULL, 0);
    check_refused(client, false, "speaks something else");
    open_pair();
    hello.protocol ^= 1;
    utter(&hello, sizeof hello, NULL, 0);
    snprintf(words, sizeof words,
             client ? "the worker speaks protocol %016" PRIx64 ", this program %016" PRIx64
                    : "the program speaks protocol %016" PRIx64 ", this worker %016" PRIx64,
             hello.protocol, (uint64_t)REMOTE_PROTOCOL);
    check_refused(client, false, words);
    open_pair();
    utter(&hello, sizeof hello, NULL, 0);
    check_refused(client, false, "install the same version of Divvy on both");
    for (uint32_t kind = 0; kind < 4; kind += 3) {
        hello = right;
        hello.kind = kind;
        open_pair();
        utter(&hello, sizeof hello, NULL, 0);
        check_refused(client, false, "hello is wrong");
    }
    hello = right;
    hello.zero = 1;
    open_pair();
    utter(&hello, sizeof hello, NULL, 0);
    check_refused(client, false, "hello is wrong");
}

/* A worker that refuses says who it is, so that the client can say why. */
static void check_told(void) {
    struct hello hello = right, answer;
    char why[REMOTE_WHY_BYTES] = "";

    open_pair();
    hello.protocol++;
    utter(&hello, sizeof hello, NULL, 0);
    CHECK(!remote_link_worker(pair[0], -1, why));
    CHECK_EQUAL(recv(pair[1], &answer, sizeof answer, 0), sizeof answer);
    CHECK(memcmp(answer.magic, right.magic, sizeof right.magic) == 0);
    CHECK_EQUAL(answer.protocol, REMOTE_PROTOCOL);
    CHECK_EQUAL(answer.process, getpid());
    CHECK_EQUAL(recv(pair[1], &answer, sizeof answer, 0), 0);
    close(pair[1]);
}

/* In small pieces, as a slow network brings it; a relay answers a wish for rings with a stream. */
static void check_slow(void) {
    char why[REMOTE_WHY_BYTES] = "";
    size_t size;

    open_pair();
    for (size_t i = 0; i < sizeof right; i++) {
        utter((const char *)&right + i, 1, NULL, 0);
    }
    struct remote_link *link = remote_link_client(pair[0], REMOTE_LINK_RINGS, -1, why);
    CHECK(link && link->kind == REMOTE_LINK_STREAM && !remote_link_area(link, &size));
    remote_link_free(link);
    close(pair[1]);
}

static int memory(size_t size, int seals) {
    int descriptor = memfd_create("divvy-test", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    CHECK(descriptor >= 0 && ftruncate(descriptor, (off_t)size) == 0);
    CHECK(fcntl(descriptor, F_ADD_SEALS, seals) == 0);
    return descriptor;
}

/* What the worker passes with its hello. */
static void check_passed(int first, size_t count, const char *words) {
    struct hello hello = right;
    const int descriptors[16] = {first, 1, 1, 1, 1, 1, 1, 1, 1};

    hello.kind = REMOTE_LINK_RINGS;
    open_pair();
    utter(&hello, sizeof hello, descriptors, count);
    check_refused(REMOTE_LINK_RINGS, false, words);
    close(first);
}

static void check_memory(void) {
    const int all = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
    const size_t size = sizeof(struct remote_shared);
    const char *not_sealed = "not sealed, or of another size", *others = "other descriptors";

    check_passed(memory(size, F_SEAL_GROW | F_SEAL_SEAL), 3, not_sealed);
    check_passed(memory(size, F_SEAL_SHRINK | F_SEAL_SEAL), 3, not_sealed);
    check_passed(memory(size, F_SEAL_SHRINK | F_SEAL_GROW), 3, not_sealed);
    check_passed(memory(size - 4096, all), 3, not_sealed);
    check_passed(memory(size + 4096, all), 3, not_sealed);
    check_passed(memory(0, all), 3, not_sealed);
    check_passed(memory(size, all | F_SEAL_WRITE), 3, "mapping the rings");
    check_passed(open("/dev/zero", O_RDWR | O_CLOEXEC), 3, not_sealed);
    check_passed(dup(1), 3, not_sealed);
    check_passed(memory(size, all), 0, "does not fit what it passed");
    check_passed(memory(size, all), 1, others);
    check_passed(memory(size, all), 2, others);
    check_passed(memory(size, all), 4, others);
    check_passed(memory(size, all), 9, others);
    /* With a hello that needs none. */
    open_pair();
    utter(&right, sizeof right, (const int[]){1, 1, 1}, 3);
    check_refused(REMOTE_LINK_RINGS, false, "does not fit what it passed");
    open_pair();
    utter(&right, sizeof right, (const int[]){1, 1, 1}, 3);
    check_refused(REMOTE_LINK_STREAM, false, "does not fit what it passed");
    /* Rings that nobody wanted. */
    struct hello hello = right;
    hello.kind = REMOTE_LINK_RINGS;
    int first = memory(size, all);
    open_pair();
    utter(&hello, sizeof hello, (const int[]){first, 1, 1}, 3);
    check_refused(REMOTE_LINK_STREAM, false, "does not fit what it passed");
    close(first);
}

static void *accept_one(void *unused) {
    char why[REMOTE_WHY_BYTES] = "";

    (void)unused;
    return remote_link_worker(pair[0], REMOTE_HELLO_NS, why);
}

/* A client that keeps the descriptor of the rings can do nothing with it but what it can do in its mapping. */
static void check_resized(void) {
    int descriptors[REMOTE_HELLO_DESCRIPTORS] = {-1, -1, -1};
    enum remote_link_kind kind = REMOTE_LINK_RINGS;
    char why[REMOTE_WHY_BYTES] = "";
    pthread_t thread;
    void *worker;
    size_t size;

    open_pair();
    CHECK(pthread_create(&thread, NULL, accept_one, NULL) == 0);
    CHECK(remote_hello_client(pair[1], &kind, INT64_MAX, descriptors, why));
    CHECK(pthread_join(thread, &worker) == 0 && worker);
    int rings = descriptors[REMOTE_HELLO_MEMORY];
    CHECK(ftruncate(rings, 0) != 0 && ftruncate(rings, 1 << 30) != 0);
    CHECK(fcntl(rings, F_ADD_SEALS, F_SEAL_WRITE) != 0);
    /* Holes read as zeros: a frame of no size. */
    CHECK(fallocate(rings, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
                    (off_t)sizeof(struct remote_shared)) == 0);
    static unsigned char taken[REMOTE_RECORD_BYTES];
    CHECK_EQUAL(remote_link_take(worker, taken, &size, 0), REMOTE_NOTHING_YET);
    for (size_t i = 0; i < REMOTE_HELLO_DESCRIPTORS; i++) {
        close(descriptors[i]);
    }
    close(pair[1]);
    remote_link_await_end(worker);
    remote_link_free(worker);
}

/* Whether a descriptor is the file of this size; it is closed. */
static void check_is(int descriptor, off_t size) {
    struct stat status;

    CHECK(descriptor >= 0 && fstat(descriptor, &status) == 0);
    CHECK_EQUAL(status.st_size, size);
    CHECK(fcntl(descriptor, F_GETFD) & FD_CLOEXEC);
    close(descriptor);
}

static void give(struct remote_link *link, uint64_t number, size_t size) {
    int descriptor = memory(size, 0);

    CHECK(remote_link_give(link, number, descriptor));
    close(descriptor);
}

static void check_given(void) {
    struct remote_link *client, *worker;

    sides_both(REMOTE_LINK_RINGS, &client, &worker);
    CHECK_EQUAL(remote_link_receive(worker, 1), -1);
    give(client, 1, 101);
    give(client, 2, 102);
    give(client, UINT64_MAX, 103);
    check_is(remote_link_receive(worker, 2), 102);
    CHECK_EQUAL(remote_link_receive(worker, 2), -1);
    check_is(remote_link_receive(worker, 1), 101);
    give(worker, 1, 104);
    check_is(remote_link_receive(client, 1), 104);
    check_is(remote_link_receive(worker, UINT64_MAX), 103);
    /* As many as are kept; the rest of the run is asked for at once. */
    for (uint64_t i = 0; i < REMOTE_MOST_KEPT - 1; i++) {
        give(client, i, 0);
        CHECK_EQUAL(remote_link_receive(worker, 1000), -1);
    }
    give(client, 1000, 105);
    check_is(remote_link_receive(worker, 1000), 105);
    CHECK(!remote_link_give(client, 1, -1) && !remote_link_ended(client));
    CHECK(!remote_link_ended(worker));
    /* One more than is kept. */
    give(client, 2000, 0);
    CHECK_EQUAL(remote_link_receive(worker, 1000), -1);
    CHECK(!remote_link_ended(worker));
    give(client, 2001, 0);
    CHECK_EQUAL(remote_link_receive(worker, 1000), -1);
    CHECK(remote_link_ended(worker) && strstr(remote_link_why(worker), "too many"));
    CHECK(!remote_link_give(client, 3000, 1));
    remote_link_free(client);
    remote_link_free(worker);
}

/* Messages that are no descriptor under a number. */
static void check_lie(const void *bytes, size_t size, size_t count) {
    struct remote_link *client, *worker;
    int mine[2] = {pair[0], pair[1]};

    sides_both(REMOTE_LINK_RINGS, &client, &worker);
    pair[1] = client->socket;
    utter(bytes, size, (const int[]){1, 1, 1}, count);
    CHECK_EQUAL(remote_link_receive(worker, 0), -1);
    CHECK_EQUAL(remote_link_ended(worker), size != 8 || count > 1);
    remote_link_free(client);
    remote_link_free(worker);
    memcpy(pair, mine, sizeof pair);
}

/* Where the process has no room for a descriptor there is none, and no harm. */
static void check_no_room(void) {
    struct remote_link *client, *worker;
    struct rlimit most, none;

    sides_both(REMOTE_LINK_RINGS, &client, &worker);
    give(client, 1, 1);
    CHECK(getrlimit(RLIMIT_NOFILE, &most) == 0);
    none = most;
    none.rlim_cur = 3;
    CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0);
    CHECK_EQUAL(remote_link_receive(worker, 1), -1);
    CHECK(setrlimit(RLIMIT_NOFILE, &most) == 0);
    CHECK(!remote_link_ended(worker));
    give(client, 2, 2);
    check_is(remote_link_receive(worker, 2), 2);
    remote_link_free(client);
    remote_link_free(worker);
}

int main(void) {
    size_t before = sides_descriptors();

    alarm(600);
    check_words((enum remote_link_kind)0);
    check_words(REMOTE_LINK_RINGS);
    check_told();
    check_slow();
    check_memory();
    check_resized();
    check_given();
    for (size_t count = 0; count < 4; count++) {
        check_lie("12345678", 8, count);
        check_lie("1234567", 7, count);
    }
    check_no_room();
    CHECK_EQUAL(sides_descriptors(), before);
    return 0;
}
