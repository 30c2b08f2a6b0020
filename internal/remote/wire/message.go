package wire

import (
	"fmt"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/alloc"
	"github.com/divvy-gpu/divvy/internal/remote/identity"
	"github.com/divvy-gpu/divvy/internal/servefile"
)

// Protocol is what both sides offer in TLS.
const Protocol = identity.Protocol

// Port is where a server listens unless it is told otherwise.
const Port = servefile.Port

// Purpose is what a connection is for.
type Purpose string

// The purposes.
const (
	// PurposeInventory asks what the client could have of the host. The answer is an Inventory, and ends the connection.
	PurposeInventory Purpose = "inventory"
	// PurposeShare takes a share: any number of Queued, then Granted, and Ended if the share ends before the connection.
	PurposeShare Purpose = "share"
	// PurposeLink connects a process to a worker of a share. After Linked both sides send data on stream 0 alone.
	PurposeLink Purpose = "link"
	// PurposeCommand runs a command in a share: Started, then streams, and Exited. What `divvy run` has to say there comes as
	// the command's standard error.
	PurposeCommand Purpose = "command"
)

// Open is the first message of a connection, from its client.
type Open struct {
	// Version is the client's version of Divvy, for people.
	Version string  `json:"version"`
	Purpose Purpose `json:"purpose"`
	// Take is what a share or a command asks for, nil otherwise.
	Take *Take `json:"take,omitempty"`
	// Share is the secret of the share in which a link's worker runs, empty otherwise.
	Share string `json:"share,omitempty"`
	// Command is what is to run, nil for another purpose.
	Command *Command `json:"command,omitempty"`
}

// Take asks for a share.
type Take struct {
	Request v1alpha1.ShareRequest `json:"request"`
	// Wait queues the request until it fits instead of refusing it.
	Wait bool `json:"wait,omitempty"`
	// Host, User and Command are the client's own words for who uses the share and for what. Lists show them.
	Host    string   `json:"host"`
	User    string   `json:"user"`
	Command []string `json:"command,omitempty"`
	// Claim is the claim of a cluster for which the share is, by its UID; empty outside of one.
	Claim string `json:"claim,omitempty"`
}

// Command is a command for the other host.
type Command struct {
	Args Exact `json:"args"`
	// Env are variables that the client passes, as NAME=value.
	Env Exact `json:"env,omitempty"`
	// Directory is where it is to run.
	Directory Directory `json:"directory"`
	// Terminals are the streams that are a terminal on the client's side, of 0, 1 and 2. They are one terminal there.
	Terminals []int `json:"terminals,omitempty"`
	// Term is the type of that terminal, and Window its size.
	Term   string `json:"term,omitempty"`
	Window Window `json:"window,omitzero"`
}

// Directory is a directory and what tells it from any other with the same path. Either there is a file in it that the client
// has made, or it lies on a file system that both hosts have from a third one.
type Directory struct {
	Path ExactText `json:"path"`
	// Proof is the name of the file, and Secret what it has. Both are empty where the client cannot write to the directory.
	Proof  string `json:"proof,omitempty"`
	Secret string `json:"secret,omitempty"`
	// Source and Type are those of its mount, such as "files:/home" and "nfs4", and Inode its number there.
	Source ExactText `json:"source,omitempty"`
	Type   string    `json:"type,omitempty"`
	Inode  uint64    `json:"inode,omitempty"`
}

// Window is the size of a terminal, in characters and pixels.
type Window struct {
	Rows    uint16 `json:"rows"`
	Columns uint16 `json:"columns"`
	Width   uint16 `json:"width,omitempty"`
	Height  uint16 `json:"height,omitempty"`
}

// Answer is a message of a server. One field is set.
type Answer struct {
	// Refused ends the connection.
	Refused   *Refused   `json:"refused,omitempty"`
	Inventory *Inventory `json:"inventory,omitempty"`
	Queued    *Queued    `json:"queued,omitempty"`
	Granted   *Granted   `json:"granted,omitempty"`
	// Linked says that the worker has the connection.
	Linked *Linked `json:"linked,omitempty"`
	Ended  *Ended  `json:"ended,omitempty"`
	// Started, Stopped, Took and Exited are of a command.
	Started *Started `json:"started,omitempty"`
	Stopped *Stopped `json:"stopped,omitempty"`
	Took    *Took    `json:"took,omitempty"`
	Exited  *Exited  `json:"exited,omitempty"`
}

// Refused says why a server does not do what it was asked.
type Refused struct {
	// Code is that of the agent's protocol where its agent refuses, such as full; otherwise one of the constants.
	Code string `json:"code"`
	Text string `json:"text"`
}

// Error implements error.
func (r *Refused) Error() string { return r.Text }

// The codes of refusals that no agent makes.
const (
	// CodeClient is a client that the server's file does not have, or no longer has.
	CodeClient = "client"
	// CodeBounds is a request beyond what the file grants the client.
	CodeBounds = "bounds"
	// CodeMessage is a message that makes no sense to the server.
	CodeMessage = "message"
	// CodeShare is a link to a share that there is not, or not for this client.
	CodeShare = "share"
	// CodeDirectory is a directory that is not the same on both hosts.
	CodeDirectory = "directory"
	// CodeHost is a host that cannot do it now.
	CodeHost = "host"
)

// Inventory is what a client could have of a host.
type Inventory struct {
	// Host is what the host calls itself, Version its version of Divvy.
	Host    string `json:"host"`
	Version string `json:"version"`
	// Driver is the driver's version, and CUDA its version of CUDA, 12040 for 12.4.
	Driver string `json:"driver"`
	CUDA   int    `json:"cuda"`
	// GPUs are those that serve clients, without names of users.
	GPUs []alloc.GPU `json:"gpus"`
	// Lacks are the functions of Divvy's client libraries that the host's driver has not.
	Lacks []string `json:"lacks,omitempty"`
	// Left is what the file still grants the client, nil for what it does not bound.
	Left Left `json:"left"`
	// Commands says whether the client may run commands there.
	Commands bool `json:"commands,omitempty"`
}

// Left is a rest of bounds. Memory is in bytes and Cores in percent, of all its shares together.
type Left struct {
	Memory *uint64 `json:"memory,omitempty"`
	Cores  *int    `json:"cores,omitempty"`
	Shares *int    `json:"shares,omitempty"`
}

// Queued tells who waits their place.
type Queued struct {
	Place  int    `json:"place"`
	Of     int    `json:"of"`
	Reason string `json:"reason"`
}

// String is for people.
func (q Queued) String() string {
	return fmt.Sprintf("waiting, place %d of %d: %s", q.Place, q.Of, q.Reason)
}

// Granted is a share.
type Granted struct {
	// Secret names it to links. Nobody else learns it.
	Secret string `json:"secret"`
	// ID and Name are those of the share in the host's lists.
	ID   string `json:"id"`
	Name string `json:"name"`
	// UUIDs are its GPUs, Memory bytes of each and Cores percent of each.
	UUIDs  []string `json:"uuids"`
	Memory uint64   `json:"memory"`
	Cores  int      `json:"cores"`
	// Lacks is as in Inventory.
	Lacks []string `json:"lacks,omitempty"`
}

// Linked says that a link is made.
type Linked struct{}

// Ended says why a share ended.
type Ended struct {
	Text string `json:"text"`
}

// Exited is how a command ended: by itself with a status, or by a signal with that number.
type Exited struct {
	Status int `json:"status"`
	Signal int `json:"signal,omitempty"`
}

// Started says that a command is about to begin.
type Started struct {
	// Dropped are the names of variables that it does not get, because the host's file does not let them.
	Dropped []string `json:"dropped,omitempty"`
}

// Stopped says that a signal stopped a command, which goes on when it gets SIGCONT.
type Stopped struct {
	Signal int `json:"signal"`
}

// Took says that so many more bytes of a stream were taken from who sent them. A side sends at most Room bytes ahead of that,
// so that messages never wait behind data that nobody reads.
type Took struct {
	Stream uint8 `json:"stream"`
	Bytes  int   `json:"bytes"`
}

// Room is how many bytes of a command's stream may be under way.
const Room = 1 << 20

// Said is a message of a client after Open, to a command that runs. One field is set.
type Said struct {
	// Signal is the number of one that the client got.
	Signal int     `json:"signal,omitempty"`
	Window *Window `json:"window,omitempty"`
	Took   *Took   `json:"took,omitempty"`
	// Away says that the client is about to be stopped, as by Ctrl-Z, and says nothing until it goes on.
	Away bool `json:"away,omitempty"`
}
