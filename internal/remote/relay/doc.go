// Package relay is the client's side of shares on other hosts: it asks several hosts what they have, chooses one, takes a
// share there and keeps it, and connects each process of the command with a worker of its own.
//
// One process, the relay, does this for one command (docs/design/remote-hosts.md). It has the share's connection, so the
// share ends with it, and it ends with the command and all that the command started. It listens where the command's
// libraries look for a worker, and passes on what they and the worker say without reading it.
package relay
