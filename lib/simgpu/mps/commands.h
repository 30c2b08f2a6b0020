/* What the commands of the control language have in common. */
#ifndef SIMGPU_MPS_COMMANDS_H
#define SIMGPU_MPS_COMMANDS_H

#include "simgpu/mps/mps.h"

#define WORDS 4

/* A command and its first arguments; NULL for those that are missing. */
struct command {
    const char *words[WORDS];
    char arguments[MPS_LINE_BYTES]; /* as they were written */
};

/* arguments.c */
/* 0 for no number. What is beyond the range of an int is cut to its low bits. */
int command_number(const char *word);
bool command_is_number(const char *word);
/* Who may change what holds for everybody, and end the daemon. */
bool command_privileged(const struct mps_ui *ui);
/* The same, said to who may not. Before 550 settings are everybody's to change. */
bool command_may_set(struct mps_ui *ui);
/* A percentage of multiprocessors; 0, and a line in the log, for none. */
double command_percentage(struct mps_ui *ui, const char *word);
/* Says a limit of memory in bytes; 0 is none, of which the log tells. */
void command_say_limit(struct mps_ui *ui, uint64_t limit);
/* The bytes that a text begins with. */
uint64_t command_bytes(const char *text);

/* server_commands.c: commands about one server. */
void get_server_list(struct mps_ui *ui, const struct command *command);
void start_server(struct mps_ui *ui, const struct command *command);
void shutdown_server(struct mps_ui *ui, const struct command *command);
void get_server_status(struct mps_ui *ui, const struct command *command);
void get_server_percentage(struct mps_ui *ui, const struct command *command);
void set_server_percentage(struct mps_ui *ui, const struct command *command);
void get_server_limit(struct mps_ui *ui, const struct command *command);
void set_server_limit(struct mps_ui *ui, const struct command *command);

/* client_commands.c: commands about the clients of servers. */
void get_client_list(struct mps_ui *ui, const struct command *command);
void get_device_clients(struct mps_ui *ui, const struct command *command);
void list_processes(struct mps_ui *ui, const struct command *command);
void terminate_client(struct mps_ui *ui, const struct command *command);
/* Finds the server of a command's first argument, of which it says when there is none. */
struct mps_server *command_server(struct mps_ui *ui, const struct command *command);
/* The server's entry in the machine's table; NULL, and a line in the log, before it is ready. */
struct sg_server *command_entry(const struct mps_ui *ui, const struct mps_server *server);

#endif
