/* Marks on descriptors: who still has a copy of one. */
#define _GNU_SOURCE
#include "share/mark.h"
#include "share/test/tenant.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

/* Whether a mark is anywhere; with `files` by asking the file, else by the kernel's list. */
static bool held(const struct mark_file *files, uint64_t mark, const struct stat *file) {
    struct mark_search search = {
        .mark = mark, .filesystem = file->st_dev, .inode = files != NULL ? file->st_ino : 0};
    struct mark_file none[MARK_FILES] = {{0}};
    marks_look(files != NULL ? files : none, &search, 1);
    return search.held;
}

#define LOCKS 300u /* more than the kernel tells in one piece */

static int fds[LOCKS];
static uint64_t marks[LOCKS];
static struct stat of_fds;

/* While others on the machine change their locks, nobody may be able to tell. */
static void become_gone(uint64_t mark) {
    while (held(NULL, mark, &of_fds)) {
        usleep(1000);
    }
}

static void mark_many(void) {
    for (unsigned i = 0; i < LOCKS; i++) {
        fds[i] = eventfd(0, EFD_CLOEXEC);
        marks[i] = mark_new();
        CHECK(mark_put(fds[i], marks[i]));
    }
    CHECK(fstat(fds[0], &of_fds) == 0);
}

static void hold_until_killed(void *arg) {
    (void)arg;
    pause();
}

/* Through dup, fork and an unread message, and no longer. */
static void lives_as_long_as_copies(int fd, bool by_path) {
    struct mark_file learnt[MARK_FILES] = {{0}};
    struct stat file;
    uint64_t mark = mark_new(), other = mark_new();
    CHECK(mark != 0 && other != 0 && mark != other && fstat(fd, &file) == 0);
    CHECK_EQUAL(mark_of(fd), 0);
    CHECK(mark_put(fd, mark));
    CHECK(mark_put(fd, mark));
    CHECK_EQUAL(mark_of(fd), mark);
    mark_learn(learnt, fd);
    mark_learn(learnt, fd);
    CHECK_EQUAL(learnt[0].path[0] != '\0', by_path);
    CHECK(learnt[1].path[0] == '\0');
    const struct mark_file *files = by_path ? learnt : NULL;
    CHECK(!by_path || !held(files, other, &file));
    int copy = dup(fd);
    pid_t child = spawn(hold_until_killed, NULL);
    close(fd);
    CHECK_EQUAL(mark_of(copy), mark);
    close(copy);
    CHECK(held(files, mark, &file));
    CHECK(held(NULL, mark, &file));
    CHECK(kill(child, SIGKILL) == 0);
    wait_killed(child);
    if (by_path) {
        CHECK(!held(files, mark, &file));
    }
    become_gone(mark);
}

static void one_inode_is_enough(void) {
    struct mark_file learnt[MARK_FILES] = {{0}};
    struct stat file;
    int first = open("/dev/null", O_RDWR | O_CLOEXEC),
        second = open("/dev/null", O_RDWR | O_CLOEXEC);
    uint64_t a = mark_new(), b = mark_new();
    CHECK(fstat(first, &file) == 0);
    mark_learn(learnt, first);
    CHECK(mark_put(first, a) && mark_put(second, b));
    CHECK_EQUAL(mark_of(second), b);
    close(first);
    CHECK(!held(learnt, a, &file));
    CHECK(held(learnt, b, &file));
    close(second);
    CHECK(!held(learnt, b, &file));
}

/* Locks of the program's own are no marks. */
static void other_locks_are_none(void) {
    int fd = memfd_create("divvy-test", MFD_CLOEXEC);
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 7, .l_len = 1};
    CHECK(fcntl(fd, F_OFD_SETLK, &lock) == 0);
    CHECK_EQUAL(mark_of(fd), 0);
    CHECK_EQUAL(mark_of(-1), 0);
    uint64_t mark = mark_new();
    CHECK(!mark_put(-1, mark));
    CHECK(mark_put(fd, mark));
    CHECK_EQUAL(mark_of(fd), mark);
    close(fd);
    fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
    CHECK(!mark_put(fd, mark)); /* a read lock needs a descriptor for reading */
    close(fd);
}

static void a_long_list_is_read_whole(void) {
    mark_many();
    for (unsigned i = 0; i < LOCKS; i += 23) {
        CHECK(held(NULL, marks[i], &of_fds));
        close(fds[i]);
        become_gone(marks[i]);
    }
    for (unsigned i = 0; i < LOCKS; i++) {
        if (i % 23 != 0) {
            close(fds[i]);
        }
    }
}

/* Makes locks come and go at other places of the list. */
static void change_the_list(void *arg) {
    int own[8];
    (void)arg;
    for (unsigned i = 0; i < 8; i++) {
        own[i] = memfd_create("divvy-test", MFD_CLOEXEC);
    }
    for (unsigned n = 0;; n++) {
        short type = n / 8 % 2 == 0 ? F_WRLCK : F_UNLCK;
        struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = n % 3, .l_len = 1};
        CHECK(fcntl(own[n % 8], F_OFD_SETLK, &lock) == 0);
    }
}

static void no_lock_is_missed_while_the_list_changes(void) {
    mark_many();
    pid_t first = spawn(change_the_list, NULL), second = spawn(change_the_list, NULL);
    for (unsigned i = 0; i < LOCKS; i += 20) {
        CHECK(held(NULL, marks[i], &of_fds));
    }
    CHECK(kill(first, SIGKILL) == 0 && kill(second, SIGKILL) == 0);
    wait_killed(first);
    wait_killed(second);
    for (unsigned i = 0; i < LOCKS; i++) {
        close(fds[i]);
    }
    become_gone(marks[LOCKS / 2]);
}

int main(void) {
    char path[] = "/tmp/divvy-mark-XXXXXX";
    lives_as_long_as_copies(open("/dev/null", O_RDWR | O_CLOEXEC), true); /* as the driver's */
    lives_as_long_as_copies(eventfd(0, EFD_CLOEXEC), false);              /* an anonymous inode */
    lives_as_long_as_copies(memfd_create("divvy-test", MFD_CLOEXEC), false);
    lives_as_long_as_copies(mkstemp(path), true);
    CHECK(unlink(path) == 0);
    one_inode_is_enough();
    other_locks_are_none();
    a_long_list_is_read_whole();
    no_lock_is_missed_while_the_list_changes();
    return 0;
}
