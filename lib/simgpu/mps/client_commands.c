#define _GNU_SOURCE
#include "simgpu/machine/visible.h"
#include "simgpu/mps/commands.h"

#include <inttypes.h>
#include <string.h>

#define UUID_BYTES 48
#define COMMAND_BYTES 1024

/* A client of a server. */
struct member {
    struct sg_who who;
    uint32_t slot;
    uint32_t gpus; /* bits of those on which it has a context */
    int32_t pid;   /* as the daemon sees it */
};

/* The clients of a server that the daemon sees; returns how many. */
static unsigned members_of(struct mps_ui *ui, const struct mps_server *server,
                           struct member members[SG_CLIENTS_MAX]) {
    struct sg_instance *in = ui->daemon->machine;
    const struct sg_server *entry = &in->state->servers[server->entry % SG_SERVERS_MAX];
    struct sg_pids pids = {.count = 0};
    unsigned n = 0, seen = 0;

    if (server->entry == SG_SERVERS_MAX) {
        return 0;
    }
    sg_state_lock(in);
    sg_reap(in);
    for (uint32_t i = 0; (i = sg_next_client(in, i)) < SG_CLIENTS_MAX; i++) {
        if (sg_server_of(in, i) != entry) {
            continue;
        }
        const struct sg_client *client = &in->state->clients[i];
        members[n] = (struct member){.who = client->who, .slot = i};
        for (uint32_t gpu = 0; gpu < in->state->gpu_count; gpu++) {
            members[n].gpus |= client->contexts[gpu] ? 1u << gpu : 0;
        }
        n++;
    }
    sg_state_unlock(in);
    for (unsigned i = 0; i < n; i++) {
        members[i].pid = sg_pids_of(&pids, &members[i].who);
        if (members[i].pid) {
            members[seen++] = members[i];
        }
    }
    sg_pids_end(&pids);
    return seen;
}

void get_client_list(struct mps_ui *ui, const struct command *command) {
    struct mps_server *server = command_server(ui, command);
    struct member members[SG_CLIENTS_MAX];

    for (unsigned i = 0, n = server ? members_of(ui, server, members) : 0; i < n; i++) {
        mps_say(ui, "%d", members[i].pid);
    }
}

static void uuid_of(const struct mps_ui *ui, uint32_t gpu, char out[UUID_BYTES]) {
    size_t bytes;
    const sim_machine *machine = sg_state_machine(ui->daemon->machine, &bytes);
    char *at = out + sprintf(out, "GPU-");

    for (unsigned i = 0; i < 16; i++) {
        at += sprintf(at, i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x",
                      machine->gpus[gpu].uuid[i]);
    }
}

static void say_device_clients(struct mps_ui *ui, const struct mps_server *server) {
    struct member members[SG_CLIENTS_MAX];
    unsigned n = command_entry(ui, server) ? members_of(ui, server, members) : 0;
    char uuid[UUID_BYTES];

    for (uint32_t gpu = 0; gpu < ui->daemon->machine->state->gpu_count; gpu++) {
        bool named = false;
        for (unsigned i = 0; i < n; i++) {
            if (!(members[i].gpus >> gpu & 1)) {
                continue;
            }
            if (!named) {
                uuid_of(ui, gpu, uuid);
                mps_say(ui, "%s", uuid);
                named = true;
            }
            mps_say(ui, "%d", members[i].pid);
        }
    }
}

/* Without the number of a server it lists the clients of all. */
void get_device_clients(struct mps_ui *ui, const struct command *command) {
    if (command_number(command->words[1]) != 0) {
        struct mps_server *server = command_server(ui, command);
        if (server) {
            say_device_clients(ui, server);
        }
        return;
    }
    for (uint32_t i = 0; i < SG_SERVERS_MAX; i++) {
        if (ui->daemon->servers[i].pid) {
            say_device_clients(ui, &ui->daemon->servers[i]);
        }
    }
}

/* A process's arguments, with spaces between them. */
static void read_command(int32_t pid, char out[COMMAND_BYTES]) {
    char path[64];
    size_t length = 0;

    snprintf(path, sizeof path, "/proc/%d/cmdline", pid);
    FILE *file = fopen(path, "re");
    if (file) {
        length = fread(out, 1, COMMAND_BYTES - 1, file);
        fclose(file);
    }
    while (length > 0 && out[length - 1] == '\0') {
        length--;
    }
    for (size_t i = 0; i < length; i++) {
        out[i] = out[i] == '\0' ? ' ' : out[i];
    }
    out[length] = '\0';
}

/* The columns and their widths are those of drivers 550 and 555, whose programs have them as texts. */
static void say_processes(struct mps_ui *ui, const struct mps_server *server) {
    struct member members[SG_CLIENTS_MAX];
    unsigned n = members_of(ui, server, members);
    char uuid[UUID_BYTES], text[COMMAND_BYTES];

    for (unsigned i = 0; i < n; i++) {
        read_command(members[i].pid, text);
        for (uint32_t gpu = 0; gpu < ui->daemon->machine->state->gpu_count; gpu++) {
            if (members[i].gpus >> gpu & 1) {
                uuid_of(ui, gpu, uuid);
                mps_say(ui, "%-10d%-10u%-15d%-*s%-15" PRIu64 "%-15s", members[i].pid,
                        members[i].slot, server->pid, UUID_BYTES, uuid, members[i].who.namespace,
                        text);
            }
        }
    }
}

static void say_header(struct mps_ui *ui) {
    mps_say(ui, "%-10s%-10s%-15s%-*s%-15s%-15s", "PID", "ID", "SERVER", UUID_BYTES, "DEVICE",
            "NAMESPACE", "COMMAND");
}

void list_processes(struct mps_ui *ui, const struct command *command) {
    const char *option = command->words[1];
    bool any = false;

    if (option && strncmp(option, "-p", 2) == 0) {
        int pid = command_number(option[2] ? option + 2 : command->words[2]);
        struct mps_server *server = mps_server_find(ui->daemon, pid);
        if (!server) {
            mps_say(ui, "Server %d not found", pid);
        }
        if (server && command_entry(ui, server)) {
            say_header(ui);
            say_processes(ui, server);
        } else {
            mps_say(ui, "Server %d not found", pid);
        }
        mps_say(ui, "%s", ""); /* an empty line ends the list */
        return;
    }
    for (uint32_t i = 0; i < SG_SERVERS_MAX; i++) {
        struct mps_server *server = &ui->daemon->servers[i];
        if (server->pid && command_entry(ui, server)) {
            if (!any) {
                say_header(ui);
            }
            any = true;
            say_processes(ui, server);
        }
    }
    if (!any) {
        mps_say(ui, "Server not found");
    }
}

/* The last line tells whether it was done: 0 or 1. */
void terminate_client(struct mps_ui *ui, const struct command *command) {
    struct mps_server *server = command_server(ui, command);
    struct member members[SG_CLIENTS_MAX];

    if (!server || !command_entry(ui, server)) {
        mps_say(ui, "Server %d not found!", command_number(command->words[1]));
        mps_say(ui, "1");
        return;
    }
    int pid = command_number(command->words[2]);
    unsigned n = members_of(ui, server, members);
    for (unsigned i = 0; i < n; i++) {
        if (members[i].pid == pid) {
            sg_state_lock(ui->daemon->machine);
            sg_server_terminate(ui->daemon->machine, members[i].slot);
            sg_state_unlock(ui->daemon->machine);
            mps_say(ui, "0");
            return;
        }
    }
    mps_say(ui, "Invalid process %d!", pid);
    mps_say(ui, "1");
}
