// Package wire carries what `divvy serve` and its clients say to each other: frames over TLS connections.
//
// Each connection has one purpose, which the client says first (Open). A share is a connection of its own: it is taken by that
// connection and ends with it. Each process that uses the share has one more, a link, which carries the bytes between
// client library and worker as they are. A command that runs on the other host has one connection for its share and its
// streams.
//
// Both sides send a frame without content, a beat, each Beat, so that firewalls keep idle connections and each side knows
// that the other lives. A side from which nothing came for Silence is dead. There is no second connection for the same
// purpose after that: what the worker has done since cannot be known.
package wire
