package remote

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strconv"

	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/process"
)

var _ backend.Proxy = (*Backend)(nil)

// clientFlag comes before the number of a worker's client on its command line (lib/remote/worker/main.c).
const clientFlag = "--client"

// Client implements [backend.Proxy]. Any process can have such a command line, so what it tells counts only of a process of
// the tenant's user, and is only shown.
func (b *Backend) Client(t backend.Tenant, pid int) int {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
	if err != nil {
		return 0
	}
	client := clientIn(text)
	if client == 0 || process.Owner(pid) != t.User() || process.Owner(client) != t.UID {
		return 0
	}
	return client
}

// clientIn is the client that a command line tells, 0 for none.
func clientIn(line []byte) int {
	words := bytes.Split(bytes.TrimSuffix(line, []byte{0}), []byte{0})
	if len(words) < 2 || string(words[len(words)-2]) != clientFlag {
		return 0
	}
	client, err := strconv.ParseInt(string(words[len(words)-1]), 10, 32)
	if err != nil || client < 1 {
		return 0
	}
	return int(client)
}

// needsName is a file beside the socket in which a worker writes for a client that asked for what it cannot have
// (lib/remote/worker/unserved.c).
const needsName = "needs-local"

// needsLocal is what lists say of a share with something in such a file.
const needsLocal = "needs a local share: a program asked for tables of the driver that nobody documents, as the CUDA runtime library does, and backend remote has none; use backend slice, or from another host --on in place of --remote"

// Look implements [backend.Backend].
func (b *Backend) Look(ctx context.Context, t backend.Tenant) (backend.Figures, error) {
	f, err := b.Backend.Look(ctx, t)
	if said, missing := os.Lstat(filepath.Join(t.Dir, clientName, needsName)); missing == nil && said.Size() > 0 {
		f.Needs = needsLocal
	}
	return f, err
}
