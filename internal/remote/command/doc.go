// Package command runs a command on another host as if it ran here: with its streams and its terminal, its signals, its
// directory and its exit status.
//
// Three processes take part. The client (Run) has the terminal. The server (Serve) has the connection. The attendant (Attend)
// is a process of the local user that the server's file gives to the client; it is the parent of `divvy run`, which becomes the
// command, and it ends all that the command started when the command has ended or the client is gone.
package command
