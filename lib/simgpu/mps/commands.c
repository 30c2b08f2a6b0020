/* The control language. Arguments are read as strtol and strtod read them, as far as they go, and those that are too many
 * are passed over; the drivers do the same. */
#define _GNU_SOURCE
#include "simgpu/mps/mps.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WORDS 3

/* A command and its first arguments; NULL for those that are missing. */
struct command {
    const char *words[WORDS];
    char arguments[MPS_LINE_BYTES]; /* as they were written */
};

void mps_settings_start(struct mps_settings *settings) {
    *settings = (struct mps_settings){.percentage = 100};
}

/* 0 for no number. What is beyond the range of an int is cut to its low bits. */
static int number(const char *word) {
    return word ? (int)strtol(word, NULL, 10) : 0;
}

static bool is_number(const char *word) {
    char *end = NULL;

    return word && (strtol(word, &end, 10), end != word);
}

/* Who may change what holds for everybody, and end the daemon. */
static bool is_privileged(const struct mps_ui *ui) {
    return ui->user == 0 || ui->user == geteuid();
}

/* Before 550 the default settings are everybody's to change. The wording, "deamon" too, is the driver's. */
static bool may_set(struct mps_ui *ui) {
    if (ui->daemon->driver < MPS_STATUS_SINCE || is_privileged(ui)) {
        return true;
    }
    mps_say(ui,
            "Insufficient privileges for UID %u. Control deamon settings can only be modified by "
            "the user started it or by the root user.",
            ui->user);
    return false;
}

static void get_percentage(struct mps_ui *ui, const struct command *command) {
    (void)command;
    mps_say(ui, "%.1f", ui->daemon->settings.percentage);
}

static void set_percentage(struct mps_ui *ui, const struct command *command) {
    if (!may_set(ui)) {
        return;
    }
    double value = command->words[1] ? strtod(command->words[1], NULL) : 0;
    if (value > 0 && value <= 100) {
        ui->daemon->settings.percentage = value;
    } else {
        mps_note(ui->daemon, "Invalid percentage, expected between (0.0, 100.0]");
    }
    get_percentage(ui, command);
}

/* The limit of a device; NULL for a number that no device has. */
static uint64_t *limit_of(struct mps_ui *ui, int ordinal) {
    if (ordinal < 0 || ordinal >= MPS_DEVICES) {
        mps_note(ui->daemon, "Invalid device ordinal!");
        return NULL;
    }
    return &ui->daemon->settings.limits[ordinal];
}

static void get_limit(struct mps_ui *ui, const struct command *command) {
    const uint64_t *limit = limit_of(ui, number(command->words[1]));

    if (!limit) {
        return;
    }
    if (*limit == 0) {
        mps_note(ui->daemon, "No default pinned memory limit set for the device!");
    } else if (*limit >> 30) {
        mps_say(ui, "%lluG", (unsigned long long)(*limit >> 30));
    } else {
        mps_say(ui, "%lluM", (unsigned long long)(*limit >> 20));
    }
}

/* The size begins where the device's number ends, with no more than space between them: "3a 2G" has none, and sets 0.
 * Without a unit it is MiB, and so is any unit but G. */
static void set_limit(struct mps_ui *ui, const struct command *command) {
    char *size, *unit;
    int ordinal = (int)strtol(command->arguments, &size, 10);
    uint64_t *limit = may_set(ui) ? limit_of(ui, ordinal) : NULL;

    if (limit) {
        *limit = strtoull(size, &unit, 10);
        *limit <<= *unit == 'G' || *unit == 'g' ? 30 : 20;
    }
}

static void get_priority(struct mps_ui *ui, const struct command *command) {
    (void)command;
    mps_say(ui, "%d", ui->daemon->settings.priority);
}

static void set_priority(struct mps_ui *ui, const struct command *command) {
    int value = number(command->words[1]);

    if (!may_set(ui)) {
        return;
    }
    if (value == 0 || value == 1) {
        ui->daemon->settings.priority = value;
    } else {
        mps_say(ui, "Invalid priority value - must be 0 or 1!");
    }
}

/* Every command about one server: there is none. */
static void no_server(struct mps_ui *ui, const struct command *command) {
    mps_say(ui, "Server %d not found", number(command->words[1]));
}

static void get_server_list(struct mps_ui *ui, const struct command *command) {
    (void)ui;
    (void)command;
}

/* Without the number of a server it lists the clients of all. */
static void get_device_clients(struct mps_ui *ui, const struct command *command) {
    if (number(command->words[1]) != 0) {
        no_server(ui, command);
    }
}

static void get_server_status(struct mps_ui *ui, const struct command *command) {
    if (is_number(command->words[1])) {
        no_server(ui, command);
    } else {
        mps_say(ui, "A server PID is required");
    }
}

static void list_processes(struct mps_ui *ui, const struct command *command) {
    const char *option = command->words[1];

    if (!option || strncmp(option, "-p", 2) != 0) {
        mps_say(ui, "Server not found");
        return;
    }
    int server = number(option[2] ? option + 2 : command->words[2]);
    mps_say(ui, "Server %d not found", server);
    mps_say(ui, "Server %d not found", server);
    mps_say(ui, "%s", ""); /* an empty line ends the list */
}

static void terminate_client(struct mps_ui *ui, const struct command *command) {
    no_server(ui, command);
    mps_say(ui, "Server %d not found!", number(command->words[1]));
    mps_say(ui, "1");
}

static void start_server(struct mps_ui *ui, const struct command *command) {
    const char *option = command->words[1];

    if (!option || strcmp(option, "-uid") != 0 || !is_number(command->words[2])) {
        mps_say(ui, "A user id (UID) is required to start a new server");
        return;
    }
    mps_note(ui->daemon, "Failed to start server using uid %d. simgpu has none",
             number(command->words[2]));
}

static void quit(struct mps_ui *ui, const struct command *command) {
    (void)command;
    if (is_privileged(ui)) {
        ui->daemon->ended = true;
    } else {
        mps_say(ui, "Not enough privilege to execute quit command");
    }
}

static const struct {
    const char *name;
    void (*obey)(struct mps_ui *ui, const struct command *command);
    int since; /* the driver's major version */
} commands[] = {
    {"get_server_list", get_server_list, 0},
    {"start_server", start_server, 0},
    {"shutdown_server", no_server, 0},
    {"get_client_list", no_server, 0},
    {"get_device_client_list", get_device_clients, 0},
    {"get_server_status", get_server_status, MPS_STATUS_SINCE},
    {"get_default_active_thread_percentage", get_percentage, 0},
    {"set_default_active_thread_percentage", set_percentage, 0},
    {"get_active_thread_percentage", no_server, 0},
    {"set_active_thread_percentage", no_server, 0},
    {"get_default_device_pinned_mem_limit", get_limit, 0},
    {"set_default_device_pinned_mem_limit", set_limit, 0},
    {"get_device_pinned_mem_limit", no_server, 0},
    {"set_device_pinned_mem_limit", no_server, 0},
    {"get_default_client_priority", get_priority, 0},
    {"set_default_client_priority", set_priority, 0},
    {"ps", list_processes, 0},
    {"terminate_client", terminate_client, 0},
    {"quit", quit, 0},
};

void mps_obey(struct mps_ui *ui, char *line) {
    static const char space[] = " \t\n\v\f\r";
    struct command command;
    char *rest;

    mps_note(ui->daemon, "Cmd:%s", line);
    command.words[0] = strtok_r(line, space, &rest);
    snprintf(command.arguments, sizeof command.arguments, "%s", rest);
    for (int i = 1; i < WORDS; i++) {
        command.words[i] = strtok_r(NULL, space, &rest);
    }
    const char *name = command.words[0] ? command.words[0] : "";
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        if (strcmp(commands[i].name, name) == 0 && ui->daemon->driver >= commands[i].since) {
            commands[i].obey(ui, &command);
            return;
        }
    }
    mps_say(ui, "Unknown command \"%s\"", name);
}
