#define _GNU_SOURCE
#include "simgpu/mps/commands.h"

#include <stdlib.h>
#include <string.h>

struct mps_server *command_server(struct mps_ui *ui, const struct command *command) {
    int pid = command_number(command->words[1]);
    struct mps_server *server = mps_server_find(ui->daemon, pid);

    if (!server) {
        mps_say(ui, "Server %d not found", pid);
    }
    return server;
}

struct sg_server *command_entry(const struct mps_ui *ui, const struct mps_server *server) {
    if (server->entry == SG_SERVERS_MAX) {
        mps_note(ui->daemon, "Server %d is <busy>", server->pid);
        return NULL;
    }
    return &ui->daemon->machine->state->servers[server->entry];
}

void get_server_list(struct mps_ui *ui, const struct command *command) {
    (void)command;
    for (uint32_t i = 0; i < SG_SERVERS_MAX; i++) {
        if (ui->daemon->servers[i].pid) {
            mps_say(ui, "%d", ui->daemon->servers[i].pid);
        }
    }
}

/* Everybody may have a server of one's own, and root any. The wording is the driver's. */
static bool may_start(struct mps_ui *ui, uid_t uid) {
    if (ui->user == 0 || ui->user == uid) {
        return true;
    }
    mps_say(ui,
            ui->daemon->driver < MPS_STATUS_SINCE
                ? "Insufficient privileges for UID %u"
                : "Insufficient privileges for UID %u. Only the root user may start server for "
                  "another user.",
            ui->user);
    return false;
}

/* Answers before the server takes clients. Where another user's is in the way it comes after that one. */
void start_server(struct mps_ui *ui, const struct command *command) {
    const char *option = command->words[1];

    if (!option || strcmp(option, "-uid") != 0 || !command_is_number(command->words[2])) {
        mps_say(ui, "A user id (UID) is required to start a new server");
        return;
    }
    uid_t uid = (uid_t)command_number(command->words[2]);
    if (may_start(ui, uid)) {
        mps_wait(ui->daemon, &(struct mps_ui){.socket = -1, .user = uid}, NULL);
        mps_settle(ui->daemon);
    }
}

void shutdown_server(struct mps_ui *ui, const struct command *command) {
    struct mps_server *server = command_server(ui, command);
    bool forced = command->words[2] && strcmp(command->words[2], "-f") == 0;

    if (server && command_may_set(ui)) {
        mps_server_leave(ui->daemon, server, forced);
    }
}

void get_server_status(struct mps_ui *ui, const struct command *command) {
    static const char *const names[] = {[SG_SERVER_NONE] = "INITIALIZING",
                                        [SG_SERVER_INITIALIZING] = "INITIALIZING",
                                        [SG_SERVER_ACTIVE] = "ACTIVE",
                                        [SG_SERVER_FAULT] = "FAULT"};

    if (!command_is_number(command->words[1])) {
        mps_say(ui, "A server PID is required");
        return;
    }
    struct mps_server *server = command_server(ui, command);
    if (server) {
        const struct sg_server *servers = ui->daemon->machine->state->servers;
        uint32_t status = server->entry < SG_SERVERS_MAX
                              ? __atomic_load_n(&servers[server->entry].status, __ATOMIC_ACQUIRE)
                              : SG_SERVER_INITIALIZING;
        mps_say(ui, "%s", names[status <= SG_SERVER_FAULT ? status : SG_SERVER_NONE]);
    }
}

void get_server_percentage(struct mps_ui *ui, const struct command *command) {
    struct mps_server *server = command_server(ui, command);
    const struct sg_server *entry = server ? command_entry(ui, server) : NULL;

    if (entry) {
        mps_say(ui, "%.1f", entry->percentage);
    }
}

/* Holds for clients that come. */
void set_server_percentage(struct mps_ui *ui, const struct command *command) {
    struct mps_server *server = command_server(ui, command);
    struct sg_server *entry = server ? command_entry(ui, server) : NULL;

    if (!entry || !command_may_set(ui)) {
        return;
    }
    double value = command_percentage(ui, command->words[2]);
    if (value > 0) {
        sg_state_lock(ui->daemon->machine);
        entry->percentage = value;
        sg_state_unlock(ui->daemon->machine);
    }
    mps_say(ui, "%.1f", entry->percentage);
}

/* The limit of a GPU of the server, by CUDA's number; NULL, of which the log tells, for a number that none has. */
static uint64_t *limit_of(struct mps_ui *ui, struct sg_server *entry, int ordinal) {
    uint32_t gpus[SG_GPUS_MAX];
    unsigned n = mps_gpus(ui->daemon->machine, gpus);

    if (ordinal < 0 || (unsigned)ordinal >= n || !(entry->gpus >> gpus[ordinal] & 1)) {
        mps_note(ui->daemon, "Invalid device ordinal!");
        return NULL;
    }
    return &entry->limits[gpus[ordinal]];
}

void get_server_limit(struct mps_ui *ui, const struct command *command) {
    struct mps_server *server = command_server(ui, command);
    struct sg_server *entry = server ? command_entry(ui, server) : NULL;
    const uint64_t *limit = entry ? limit_of(ui, entry, command_number(command->words[2])) : NULL;

    if (limit) {
        command_say_limit(ui, *limit);
    }
}

/* Holds for clients that come. */
void set_server_limit(struct mps_ui *ui, const struct command *command) {
    struct mps_server *server = command_server(ui, command);
    struct sg_server *entry = server ? command_entry(ui, server) : NULL;
    char *rest;

    if (!entry || !command_may_set(ui)) {
        return;
    }
    (void)strtol(command->arguments, &rest, 10);
    int ordinal = (int)strtol(rest, &rest, 10);
    uint64_t *limit = limit_of(ui, entry, ordinal);
    if (limit) {
        sg_state_lock(ui->daemon->machine);
        *limit = command_bytes(rest);
        sg_state_unlock(ui->daemon->machine);
    }
}
