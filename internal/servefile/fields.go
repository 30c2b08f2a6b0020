package servefile

import (
	"fmt"
	"strconv"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// Field is what a manual says of a field.
type Field struct {
	// Path has NAME for the name of a client.
	Path, Type string
	// Default is what counts where the file does not say; empty where nothing does.
	Default string
	// Bounds are the values that are taken, empty for all of the type.
	Bounds string
	// Meaning is in Markdown, without a full stop.
	Meaning string
}

// Fields are those of a file, in the order of a manual.
func Fields() []Field {
	return []Field{
		{"apiVersion", "word", "", v1alpha1.APIVersion, "version of the file, never left out"},
		{"kind", "word", "", Kind, "kind of the file, never left out"},
		{"listen", "address and port", ":" + strconv.Itoa(Port), "`:PORT` is every address", "where clients connect"},
		{"gpus", "list of GPUs, or `" + allGPUs + "`", allGPUs, "an index or a whole UUID", "the GPUs that clients may have shares of"},
		{"clients.NAME", "fields", "", "the name in the client's certificate", "a client that may connect. What is left out bounds nothing"},
		{"clients.NAME.user", "word", "", "a user of the machine", "whose the client's shares are, and who runs its commands. Root's server needs it, a user's takes none"},
		{"clients.NAME.memory", "amount", "", "bytes", "the most memory of all its shares together"},
		{"clients.NAME.cores", "whole number", "", fmt.Sprintf("1 to %d", mostCores), "the most cores that are guaranteed to all its shares together, in percent of one GPU's time"},
		{"clients.NAME.shares", "whole number", "", fmt.Sprintf("1 to %d", mostShares), "the most shares at once; one of two GPUs counts as two. Left out, it is 256 shares and commands"},
		{"clients.NAME.class", "word", "", "`online`, `offline`", "the class that its shares have; requests that name none get it"},
		{"clients.NAME.commands", "true or false", "false", "", "whether it may run commands on the host"},
		{"clients.NAME.environment", "list of names", "", "a name, or the beginning of some with `*` behind", "variables that its commands may bring along, beside those that say where programs are and which language they speak"},
		{"clients.NAME.since", "time", "", "such as `2026-01-31T12:00:00Z`", "certificates that were made before do not count"},
	}
}
