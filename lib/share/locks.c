/* A line of these texts, which in fdinfo has a word more in front:
 *
 *     lock:   1: OFDLCK ADVISORY  READ -1 00:06:4 2305843009213706297 2305843009213706297
 *
 * The kernel writes /proc/locks anew for each read, a page of it at most, from the record on at
 * which the last read had ended, by number. If an earlier lock has gone in between, one record is
 * left out. So each read goes back by some records. The kernel writes the first of these to find the
 * place, and all that follows at one moment. Locks keep their order, so if that contains one of the
 * records of the piece before, nothing after it is left out. */
#define _GNU_SOURCE
#include "share/locks.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PIECE_BYTES 4096u /* what a read gives at most where pages are small */
#define LINE_BYTES 192u   /* longer than any line */
#define TRIES 8u
#define MOST_BYTES (1u << 20)
#define MARK_LINE 60u /* a line of a mark is longer: its numbers have 19 digits */

static void visit_line(const char *line, lock_visitor *visit, void *arg) {
    const char *words = strstr(line, "OFDLCK");
    for (int i = 0; words != NULL && i < 5; i++) { /* kind, strength, type, owner, file */
        words = strchr(words, ' ');
        words = words != NULL ? words + strspn(words, " ") : NULL;
    }
    char *end;
    unsigned long long first = words != NULL ? strtoull(words, &end, 10) : 0;
    if (words != NULL && end != words) {
        visit(first, arg);
    }
}

bool locks_of_descriptor(int fd, lock_visitor *visit, void *arg) {
    char path[40], text[PIECE_BYTES + LINE_BYTES];
    size_t kept = 0;
    ssize_t got;
    snprintf(path, sizeof path, "/proc/self/fdinfo/%d", fd);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) {
        return false;
    }
    while ((got = read(file, text + kept, sizeof text - 1 - kept)) > 0) {
        char *line = text, *end;
        text[kept + (size_t)got] = '\0';
        for (; (end = strchr(line, '\n')) != NULL; line = end + 1) {
            *end = '\0';
            visit_line(line, visit, arg);
        }
        kept = strlen(line);
        kept = kept < LINE_BYTES ? kept : 0;
        memmove(text, line, kept);
    }
    close(file);
    return got == 0;
}

#define OVERLAP 12u
#define PIECE_LINES 128u

/* How far the list was read. A record is a lock and those who wait for it: lines that begin with the
 * same number. */
struct reading {
    off_t next;                      /* where the next piece begins */
    unsigned count;                  /* of the lines in it that the last one had too */
    char lines[OVERLAP][LINE_BYTES]; /* those but the first */
};

static unsigned long number_of(const char *line) {
    return strtoul(line, NULL, 10);
}

/* Whether two lines tell of one lock. Its number may have changed, but only marks have lines that no
 * other lock can have. */
static bool is_same(const char *a, const char *b) {
    const char *mark = strstr(a, "OFDLCK"), *other = strstr(b, "OFDLCK");
    return strcmp(a, b) == 0 ||
           (mark != NULL && other != NULL && strlen(mark) > MARK_LINE && strcmp(mark, other) == 0);
}

static bool continues(const struct reading *reading, char *const *lines, unsigned count) {
    bool found = reading->next == 0;
    for (unsigned i = 1; i < count && !found; i++) {
        for (unsigned k = 0; k < reading->count && number_of(lines[i]) != number_of(lines[0]);
             k++) {
            found = found || is_same(lines[i], reading->lines[k]);
        }
    }
    return found;
}

/* Visits the lines of a piece that was read at reading->next, and moves it on. False if the
 * piece does not continue the one before. */
static bool visit_piece(char *text, struct reading *reading, lock_visitor *visit, void *arg) {
    char *lines[PIECE_LINES], *end;
    unsigned count = 0;
    for (char *line = text; (end = strchr(line, '\n')) != NULL && count < PIECE_LINES;
         line = end + 1) {
        *end = '\0';
        visit_line(line, visit, arg);
        lines[count++] = line;
    }
    if (count < 2 || end != NULL || !continues(reading, lines, count)) {
        return false;
    }
    unsigned back = count < OVERLAP ? count : OVERLAP;
    reading->next += lines[count - back] - text;
    reading->count = back - 1;
    for (unsigned i = 0; i < reading->count; i++) {
        strncpy(reading->lines[i], lines[count - reading->count + i], LINE_BYTES - 1);
    }
    return true;
}

static bool read_list(int file, lock_visitor *visit, void *arg) {
    char text[PIECE_BYTES + LINE_BYTES];
    struct reading reading = {.next = 0};
    while (reading.next < MOST_BYTES) {
        ssize_t got = pread(file, text, sizeof text - 1, reading.next);
        if (got < 0 || (got == 0 && reading.next != 0)) {
            return false;
        }
        text[got] = '\0';
        bool whole = visit_piece(text, &reading, visit, arg);
        if ((size_t)got < PIECE_BYTES - LINE_BYTES) {
            /* The kernel had room for more. A list this short needs no second piece. */
            return whole || reading.next == 0;
        }
        if (!whole) {
            return false;
        }
    }
    return false;
}

bool locks_of_all(lock_visitor *visit, void *arg) {
    bool whole = false;
    int file = open("/proc/locks", O_RDONLY | O_CLOEXEC);
    for (unsigned i = 0; i < TRIES && file >= 0 && !whole; i++) {
        whole = read_list(file, visit, arg);
    }
    if (file >= 0) {
        close(file);
    }
    return whole;
}
