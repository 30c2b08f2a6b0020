// Package host gives shares of this machine's GPUs to the clients of `divvy serve`. Each share has a process that holds it, as
// `divvy run` would, and the machine's agent grants, limits and shows it like any other.
package host

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/remote/identity"
	"github.com/divvy-gpu/divvy/internal/remote/server"
	"github.com/divvy-gpu/divvy/internal/remote/wire"
	"github.com/divvy-gpu/divvy/internal/servefile"
	"github.com/divvy-gpu/divvy/internal/visible"
)

// Options say what there is to give.
type Options struct {
	// Agent connects to the machine's agent.
	Agent func(ctx context.Context) (*control.Client, error)
	// Simgpu is the directory of the simulated machine whose GPUs are given, empty for the real machine.
	Simgpu string
	// GPUs name those that are given, as requests name GPUs; nil is those that the file names.
	GPUs []string
	// Holder is the command that holds a share, Attendant the one that is the parent of a client's command, and Run the one that
	// becomes that command. Env is their environment but for what is its user's, see [Environment].
	Holder, Attendant, Run []string
	Env                    []string
	// Lacks are the functions of Divvy's client libraries that the driver does not have, of the simulated machine in this
	// directory if there is one.
	Lacks func(simgpu string) ([]string, error)
	// Look, if not nil, has the file be looked at now, and a changed one replace the other before it returns.
	Look func()
	// Version is Divvy's.
	Version string
	Log     *slog.Logger
}

// Host gives shares within the bounds of a file.
type Host struct {
	options Options
	book    book
	lines   server.Lines // of what holds shares: each process of a client can have its worker write one

	mu    sync.Mutex // guards the rest
	agent *control.Client
	lacks []string
	known string // whose lacks they are
}

var _ server.Host = (*Host)(nil)

// New returns a host with the clients of a file.
func New(o Options, f *servefile.File) *Host {
	return &Host{options: o, book: book{file: f, held: map[string]map[*entry]bool{}}}
}

// Replace has another file count from now on. Shares of clients that it no longer has end.
func (h *Host) Replace(f *servefile.File) {
	for _, end := range h.book.replace(f) {
		end()
	}
}

// Name is the client at the other end of a connection whose handshake is done. One that the file does not have, or no longer with
// this certificate, is refused.
func (h *Host) Name(state tls.ConnectionState) (string, error) {
	name, err := identity.Client(state)
	if err != nil {
		return "", err
	}
	who := server.Client{Name: name, Issued: identity.Issued(state)}
	_, _, err = h.book.left(who)
	if err != nil && h.options.Look != nil { // it may have been admitted a moment ago
		h.options.Look()
		_, _, err = h.book.left(who)
	}
	return name, err
}

// Close ends the connection with the agent.
func (h *Host) Close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.agent == nil {
		return nil
	}
	return h.agent.Close()
}

// list asks the agent, and keeps the connection, so that an agent which ends with its last share does not.
func (h *Host) list(ctx context.Context) (*control.Listing, error) {
	for last := false; ; last = true {
		client, err := h.reach(ctx)
		if err != nil {
			return nil, err
		}
		list, err := client.List(ctx)
		if !errors.Is(err, control.ErrGone) || last {
			return list, err
		}
	}
}

func (h *Host) reach(ctx context.Context) (*control.Client, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.agent != nil {
		select {
		case <-h.agent.Done():
			_ = h.agent.Close()
		default:
			return h.agent, nil
		}
	}
	client, err := h.options.Agent(ctx)
	h.agent = client
	return client, err
}

// lacking are the functions that the driver of an agent's GPUs does not have. The driver may be replaced while this runs.
func (h *Host) lacking(agent control.Info) ([]string, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	driver := agent.Simgpu + "|" + agent.Driver
	if h.known == driver {
		return h.lacks, nil
	}
	lacks, err := h.options.Lacks(agent.Simgpu)
	if err == nil {
		h.lacks, h.known = lacks, driver
	}
	return lacks, err
}

// served are the GPUs of a listing that are given to clients.
func (h *Host) served(list *control.Listing) ([]visible.GPU, error) {
	all := make([]visible.GPU, 0, len(list.GPUs))
	for _, gpu := range list.GPUs {
		all = append(all, visible.GPU{Index: gpu.Index, UUID: gpu.UUID})
	}
	names := h.options.GPUs
	if names == nil {
		names = h.book.gpus()
	}
	if names == nil {
		return all, nil
	}
	uuids, err := visible.Resolve(all, names)
	if err != nil {
		return nil, fmt.Errorf("find the GPUs that are given to clients: %w", err)
	}
	return slices.DeleteFunc(all, func(gpu visible.GPU) bool { return !slices.Contains(uuids, gpu.UUID) }), nil
}

// Check finds out whether the GPUs are there that are to be given, and returns how many.
func (h *Host) Check(ctx context.Context) (int, error) {
	list, err := h.list(ctx)
	if err != nil {
		return 0, err
	}
	served, err := h.served(list)
	if err == nil {
		_, err = h.lacking(list.Info)
	}
	return len(served), err
}

// Inventory implements [server.Host].
func (h *Host) Inventory(ctx context.Context, who server.Client) (*wire.Inventory, error) {
	client, left, err := h.book.left(who)
	if err != nil {
		return nil, err
	}
	list, err := h.list(ctx)
	if err != nil {
		return nil, err
	}
	served, err := h.served(list)
	if err != nil {
		return nil, err
	}
	lacks, err := h.lacking(list.Info)
	if err != nil {
		return nil, err
	}
	name, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("find this host's name: %w", err)
	}
	inventory := &wire.Inventory{
		Host: name, Version: h.options.Version, Driver: list.Info.Driver, CUDA: list.Info.CUDA, Lacks: lacks,
		Left: wire.Left(left), Commands: client.Commands,
	}
	for _, gpu := range list.Allocatable() {
		if slices.ContainsFunc(served, func(s visible.GPU) bool { return s.UUID == gpu.UUID }) {
			inventory.GPUs = append(inventory.GPUs, gpu)
		}
	}
	return inventory, nil
}

// Take implements [server.Host].
func (h *Host) Take(ctx context.Context, who server.Client, take wire.Take, told func(wire.Queued)) (server.Share, error) {
	list, err := h.list(ctx)
	if err != nil {
		return nil, err
	}
	served, err := h.served(list)
	if err != nil {
		return nil, err
	}
	if take.Request, err = h.decided(take.Request, served, who.Name); err != nil {
		return nil, err
	}
	lacks, err := h.lacking(list.Info)
	if err != nil {
		return nil, err
	}
	e, client, err := h.book.count(ctx, who, take, largest(list, take.Request.Among), told)
	if err != nil {
		return nil, err
	}
	s, err := h.hold(ctx, client, who, take, told)
	if s == nil {
		h.book.release(e)
		return nil, err
	}
	s.granted.Lacks = lacks
	go func() { // a worker in a call of the driver may have memory for longer than the process that holds the share
		<-s.silent
		h.book.release(e)
	}()
	if err != nil {
		return nil, err
	}
	if why := h.book.grant(e, s); why != "" {
		s.End()
		return nil, &wire.Refused{Code: wire.CodeClient, Text: why}
	}
	return s, nil
}

// largest is the largest memory that one of some GPUs has for tenants.
func largest(list *control.Listing, uuids []string) (memory uint64) {
	for _, gpu := range list.GPUs {
		if slices.Contains(uuids, gpu.UUID) {
			memory = max(memory, gpu.Capacity)
		}
	}
	return memory
}

// decided is a client's request as this host understands it: of backend remote, on GPUs that are given.
func (h *Host) decided(r v1alpha1.ShareRequest, served []visible.GPU, client string) (v1alpha1.ShareRequest, error) {
	switch r.Backend {
	case "", v1alpha1.BackendAuto, v1alpha1.BackendRemote:
		r.Backend = v1alpha1.BackendRemote
	default:
		return r, &wire.Refused{Code: string(control.CodeInvalid), Text: fmt.Sprintf("a share that is used from another host has backend remote, and this one would have %q: leave out --backend", string(r.Backend))}
	}
	return h.among(r, served, client)
}

// among is a client's request, of whatever backend, on GPUs that are given.
func (h *Host) among(r v1alpha1.ShareRequest, served []visible.GPU, client string) (v1alpha1.ShareRequest, error) {
	r.Class = h.book.class(client, r.Class)
	if len(r.Among) == 0 {
		if r.GPUs == 0 { // it is left out
			r.GPUs = 1
		}
		for _, gpu := range served {
			r.Among = append(r.Among, gpu.UUID)
		}
	}
	if len(r.Among) > v1alpha1.MaxGPUs {
		return r, &wire.Refused{Code: string(control.CodeInvalid), Text: fmt.Sprintf("%d GPUs are named: name at most %d", len(r.Among), v1alpha1.MaxGPUs)}
	}
	among, err := visible.Resolve(served, r.Among)
	if err != nil {
		return r, &wire.Refused{Code: string(control.CodeNotFound), Text: "of the GPUs that are given to clients: " + err.Error()}
	}
	r.Among = among
	r.Default()
	if err := r.Validate(); err != nil {
		return r, &wire.Refused{Code: string(control.CodeInvalid), Text: err.Error()}
	}
	return r, nil
}
