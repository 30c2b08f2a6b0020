#include "cover/cgroup.h"

#include <stdio.h>
#include <string.h>

/* A line of the table: the controllers and the path, neither ended by a zero. */
struct line {
    const char *controllers, *path;
    size_t controllers_length, path_length;
};

/* Reads the line at text and returns the next one; NULL at the end. */
static const char *next_line(const char *text, struct line *line) {
    if (*text == '\0') {
        return NULL;
    }
    size_t length = strcspn(text, "\n");
    const char *first = memchr(text, ':', length);
    const char *second =
        first == NULL ? NULL : memchr(first + 1, ':', length - (size_t)(first + 1 - text));
    *line = (struct line){0};
    if (second != NULL) {
        *line = (struct line){first + 1, second + 1, (size_t)(second - first - 1),
                              length - (size_t)(second + 1 - text)};
    }
    return text + length + (text[length] == '\n');
}

/* Whether a name of that length is what a runtime calls the cgroup of a container. */
static bool names(const char *name, size_t length, const char *id) {
    static const char scope[] = ".scope";
    const size_t id_length = strlen(id), scope_length = sizeof scope - 1;
    if (length == id_length) {
        return memcmp(name, id, length) == 0;
    }
    if (length <= id_length + scope_length) {
        return false;
    }
    const char *tail = name + length - scope_length - id_length;
    return tail[-1] == '-' && memcmp(tail, id, id_length) == 0 &&
           memcmp(tail + id_length, scope, scope_length) == 0;
}

/* How long the path is up to the container's cgroup, 0 if that is not in it. */
static size_t own_length(const struct line *line, const char *id) {
    for (size_t at = 0; at < line->path_length && line->path[at] == '/';) {
        const char *name = line->path + at + 1;
        size_t length = 0;
        while (at + 1 + length < line->path_length && name[length] != '/') {
            length++;
        }
        at += 1 + length;
        if (names(name, length, id)) {
            return at;
        }
    }
    return 0;
}

/* Whether somebody with that table is in the cgroup or below it. */
static bool inside(const char *table, const struct line *cgroup, size_t length) {
    struct line line;
    while ((table = next_line(table, &line)) != NULL) {
        if (line.controllers_length == cgroup->controllers_length && line.path_length >= length &&
            memcmp(line.controllers, cgroup->controllers, line.controllers_length) == 0 &&
            memcmp(line.path, cgroup->path, length) == 0 &&
            (line.path_length == length || line.path[length] == '/')) {
            return true;
        }
    }
    return false;
}

bool cgroup_own(const char *container, const char *runtime, const char *id, char *out,
                size_t room) {
    struct line line;
    while (*id != '\0' && (container = next_line(container, &line)) != NULL) {
        const size_t length = line.path == NULL ? 0 : own_length(&line, id);
        if (length == 0) {
            continue;
        }
        const int written = snprintf(out, room, "%.*s:%.*s", (int)line.controllers_length,
                                     line.controllers, (int)length, line.path);
        return written > 0 && (size_t)written < room && !inside(runtime, &line, length);
    }
    return false;
}
