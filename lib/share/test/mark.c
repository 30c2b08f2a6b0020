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
    CHECK(!held(files, other, &file));
    int copy = dup(fd);
    pid_t child = spawn(hold_until_killed, NULL);
    close(fd);
    CHECK_EQUAL(mark_of(copy), mark);
    close(copy);
    CHECK(held(files, mark, &file));
    CHECK(held(NULL, mark, &file));
    CHECK(kill(child, SIGKILL) == 0);
    wait_killed(child);
    CHECK(!held(files, mark, &file));
    CHECK(!held(NULL, mark, &file));
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

/* More locks than the kernel tells in one piece. */
static void a_long_list_is_read_whole(void) {
    static int fds[300];
    static uint64_t marks[300];
    struct stat file;
    for (unsigned i = 0; i < 300; i++) {
        fds[i] = eventfd(0, EFD_CLOEXEC);
        marks[i] = mark_new();
        CHECK(mark_put(fds[i], marks[i]));
    }
    CHECK(fstat(fds[0], &file) == 0);
    for (unsigned i = 0; i < 300; i += 23) {
        CHECK(held(NULL, marks[i], &file));
        close(fds[i]);
        CHECK(!held(NULL, marks[i], &file));
    }
    for (unsigned i = 0; i < 300; i++) {
        if (i % 23 != 0) {
            close(fds[i]);
        }
    }
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
    return 0;
}
