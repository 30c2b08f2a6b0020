/* The control language. Arguments are read as strtol and strtod read them, as far as they go, and those that are too many
 * are passed over; the drivers do the same. */
#define _GNU_SOURCE
#include "simgpu/mps/commands.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void mps_settings_start(struct mps_settings *settings) {
    *settings = (struct mps_settings){.percentage = 100};
}

static void get_percentage(struct mps_ui *ui, const struct command *command) {
    (void)command;
    mps_say(ui, "%.1f", ui->daemon->settings.percentage);
}

static void set_percentage(struct mps_ui *ui, const struct command *command) {
    if (!command_may_set(ui)) {
        return;
    }
    double value = command_percentage(ui, command->words[1]);
    if (value > 0) {
        ui->daemon->settings.percentage = value;
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
    const uint64_t *limit = limit_of(ui, command_number(command->words[1]));

    if (limit) {
        command_say_limit(ui, *limit);
    }
}

/* The size begins where the device's number ends, with no more than space between them: "3a 2G" has none, and sets 0. */
static void set_limit(struct mps_ui *ui, const struct command *command) {
    char *size;
    int ordinal = (int)strtol(command->arguments, &size, 10);
    uint64_t *limit = command_may_set(ui) ? limit_of(ui, ordinal) : NULL;

    if (limit) {
        *limit = command_bytes(size);
    }
}

static void get_priority(struct mps_ui *ui, const struct command *command) {
    (void)command;
    mps_say(ui, "%d", ui->daemon->settings.priority);
}

static void set_priority(struct mps_ui *ui, const struct command *command) {
    int value = command_number(command->words[1]);

    if (!command_may_set(ui)) {
        return;
    }
    if (value == 0 || value == 1) {
        ui->daemon->settings.priority = value;
    } else {
        mps_say(ui, "Invalid priority value - must be 0 or 1!");
    }
}

/* Ends the daemon with its servers, which end with their last clients, or after the seconds of -t at the latest. */
static void quit(struct mps_ui *ui, const struct command *command) {
    const char *option = command->words[1];

    if (!command_privileged(ui)) {
        mps_say(ui, "Not enough privilege to execute quit command");
        return;
    }
    ui->daemon->quitter = ui->socket;
    if (option && strcmp(option, "-t") == 0 && command_is_number(command->words[2])) {
        int seconds = command_number(command->words[2]);
        mps_note(ui->daemon, "quit command issued with timeout of %d", seconds);
        ui->daemon->quit_at = sg_now() + (uint64_t)(seconds > 0 ? seconds : 0) * 1000000000u + 1;
    }
}

static const struct {
    const char *name;
    void (*obey)(struct mps_ui *ui, const struct command *command);
    int since; /* the driver's major version */
} commands[] = {
    {"get_server_list", get_server_list, 0},
    {"start_server", start_server, 0},
    {"shutdown_server", shutdown_server, 0},
    {"get_client_list", get_client_list, 0},
    {"get_device_client_list", get_device_clients, 0},
    {"get_server_status", get_server_status, MPS_STATUS_SINCE},
    {"get_default_active_thread_percentage", get_percentage, 0},
    {"set_default_active_thread_percentage", set_percentage, 0},
    {"get_active_thread_percentage", get_server_percentage, 0},
    {"set_active_thread_percentage", set_server_percentage, 0},
    {"get_default_device_pinned_mem_limit", get_limit, 0},
    {"set_default_device_pinned_mem_limit", set_limit, 0},
    {"get_device_pinned_mem_limit", get_server_limit, 0},
    {"set_device_pinned_mem_limit", set_server_limit, 0},
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
