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

/* Whether a list divided by commas has a word. */
static bool lists(const char *list, size_t length, const char *word) {
    const size_t word_length = strlen(word);
    for (size_t at = 0; at <= length;) {
        const char *end = memchr(list + at, ',', length - at);
        const size_t one = end == NULL ? length - at : (size_t)(end - list) - at;
        if (one == word_length && memcmp(list + at, word, one) == 0) {
            return true;
        }
        at += one + 1;
    }
    return false;
}

bool cgroup_under(const char *container, const char *runtime, const char *id,
                  const char *controller, char *out, size_t room) {
    struct line line;
    while (*id != '\0' && (container = next_line(container, &line)) != NULL) {
        if (line.path == NULL || !lists(line.controllers, line.controllers_length, controller)) {
            continue;
        }
        const size_t length = own_length(&line, id);
        if (length == 0 || length >= room || inside(runtime, &line, length)) {
            return false;
        }
        memcpy(out, line.path, length);
        out[length] = '\0';
        return true;
    }
    return false;
}

/* Whether a name of that length ends in another text. */
static bool ends(const char *name, size_t length, const char *tail) {
    const size_t tail_length = strlen(tail);
    return length >= tail_length && memcmp(name + length - tail_length, tail, tail_length) == 0;
}

bool cgroup_in_pod(const char *path) {
    static const char slice[] = ".slice", pod[] = "pod";
    const size_t digits_of_uid = 32;
    const char *last = strrchr(path, '/'), *name = last;
    while (name != NULL && name > path && name[-1] != '/') {
        name--;
    }
    if (name == NULL || name == last) {
        return false;
    }
    size_t length = (size_t)(last - name), digits = 0;
    char separator = '-';
    if (ends(name, length, slice)) {
        length -= sizeof slice - 1;
        separator = '_';
        const char *dash = memrchr(name, '-', length);
        if (dash == NULL) {
            return false;
        }
        length -= (size_t)(dash + 1 - name);
        name = dash + 1;
    }
    if (length < sizeof pod - 1 || memcmp(name, pod, sizeof pod - 1) != 0) {
        return false;
    }
    for (size_t at = sizeof pod - 1; at < length; at++) {
        if (strchr("0123456789abcdef", name[at]) != NULL) {
            digits++;
        } else if (name[at] != separator) {
            return false;
        }
    }
    return digits == digits_of_uid;
}

/* Field number of a line, from 0, its length; NULL where the line has fewer. */
static const char *field(const char *line, size_t length, int number, size_t *field_length) {
    const char *end = line + length;
    for (; line < end; number--) {
        const char *space = memchr(line, ' ', (size_t)(end - line));
        const char *stop = space == NULL ? end : space;
        if (number == 0) {
            *field_length = (size_t)(stop - line);
            return line;
        }
        line = space == NULL ? end : stop + 1;
    }
    return NULL;
}

/* The part of a mount's line behind the " - ", NULL where there is none. */
static const char *behind_dash(const char *line, size_t length) {
    for (size_t at = 0; at + 3 <= length; at++) {
        if (memcmp(line + at, " - ", 3) == 0) {
            return line + at + 3;
        }
    }
    return NULL;
}

bool cgroup_folder(const char *mounts, const char *controller, const char *path, char *mount,
                   char *folder, size_t room) {
    for (const char *next; *mounts != '\0'; mounts = next) {
        const size_t length = strcspn(mounts, "\n");
        next = mounts + length + (mounts[length] == '\n');
        size_t root_length = 0, point_length = 0, kind_length = 0, options_length = 0;
        const char *root = field(mounts, length, 3, &root_length);
        const char *point = field(mounts, length, 4, &point_length);
        const char *kind = behind_dash(mounts, length);
        if (root == NULL || point == NULL || kind == NULL) {
            continue;
        }
        const size_t rest = length - (size_t)(kind - mounts);
        const char *options = field(kind, rest, 2, &options_length);
        kind = field(kind, rest, 0, &kind_length);
        const char *wanted = *controller == '\0' ? "cgroup2" : "cgroup";
        if (kind == NULL || kind_length != strlen(wanted) ||
            memcmp(kind, wanted, kind_length) != 0 || options == NULL ||
            (*controller != '\0' && !lists(options, options_length, controller))) {
            continue;
        }
        /* What is mounted may be a part of the hierarchy. */
        root_length = root_length == 1 ? 0 : root_length;
        if (strncmp(path, root, root_length) != 0 || path[root_length] != '/') {
            continue;
        }
        const int one = snprintf(mount, room, "%.*s", (int)point_length, point);
        const int all = snprintf(folder, room, "%s%s", mount, path + root_length);
        return one > 0 && (size_t)one < room && all > 0 && (size_t)all < room;
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
