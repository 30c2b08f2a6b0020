// Keeps a connection to the agent whose maker has ended: a child connects the socket,
// which both have, and is waited for, so that its pid is free. Arguments: the agent's
// socket and a first request. With a third argument the child ends after the first request
// is answered, else before it is made. Prints the child's pid and then, for each line of its
// input, what the agent answers to that request.
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

// ask sends a line and prints the answer, if it is to be shown.
static int ask(FILE *to, FILE *from, const char *line, int show) {
    static char answer[1 << 16];
    if (fputs(line, to) == EOF || fflush(to) == EOF || fgets(answer, sizeof answer, from) == NULL) {
        return -1;
    }
    return show && (fputs(answer, stdout) == EOF || fflush(stdout) == EOF) ? -1 : 0;
}

int main(int count, char **args) {
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM, 0), let[2], made[2];
    if (count < 3 || fd < 0 || pipe(let) != 0 || pipe(made) != 0 ||
        strlen(args[1]) >= sizeof name.sun_path) {
        return 2;
    }
    strcpy(name.sun_path, args[1]);
    pid_t child = fork();
    char byte = 0;
    if (child == 0) {
        close(let[1]);
        _exit(connect(fd, (struct sockaddr *)&name, sizeof name) != 0 ||
              write(made[1], "", 1) != 1 || read(let[0], &byte, 1) != 0);
    }
    close(made[1]);
    FILE *to = fdopen(dup(fd), "w"), *from = fdopen(fd, "r");
    int late = count > 3, status = 0;
    if (child < 0 || to == NULL || from == NULL || read(made[0], &byte, 1) != 1 ||
        (late && ask(to, from, args[2], 0) != 0)) {
        return 3;
    }
    close(let[1]);
    if (waitpid(child, &status, 0) != child || status != 0 ||
        (!late && ask(to, from, args[2], 0) != 0)) {
        return 4;
    }
    printf("%d\n", child);
    fflush(stdout);
    static char line[1 << 16];
    while (fgets(line, sizeof line, stdin) != NULL) {
        if (ask(to, from, line, 1) != 0) {
            return 5;
        }
    }
    return 0;
}
