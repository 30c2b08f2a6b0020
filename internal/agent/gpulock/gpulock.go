// Package gpulock keeps two agents from serving one GPU. An agent that serves a GPU
// listens at an abstract unix socket (unix(7)) that is named by the GPU's UUID.
//
// Every user can see such a socket, no directory must be writable for it, none is left
// behind, and the kernel tells who listens. It is seen in its own network namespace alone,
// so the agent also locks a file in /dev/shm, which it removes with the lock.
//
// What neither can do is keep a process that is no agent from taking it. Such a process
// keeps users' own agents away from the GPU, as an own agent could, and is named to them. A system agent does not depend on
// the name: it has a lock in root's own directory, and serves the GPU all the same.
package gpulock

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/process"
	"github.com/divvy-gpu/divvy/internal/rundir"
)

// Kind begins the names of the sockets. In Go "@" stands for the zero byte of an
// abstract name.
type Kind string

// The kinds of GPUs. Those of simulated machines are their users' own affair, and are
// in no list.
const (
	Real      Kind = "@divvy/gpu/"
	Simulated Kind = "@divvy/simgpu/"
)

// askTime bounds a connection to a holder: the kernel makes it without the holder,
// unless very many wait there already.
const askTime = time.Second

// Address is the socket of a GPU.
func (k Kind) Address(uuid string) string { return string(k) + uuid }

// Holder is who holds a GPU, as the kernel tells.
type Holder struct {
	UUID string `json:"uuid"`
	// UID is -1 and PID is 0 where the kernel does not tell.
	UID int `json:"uid"`
	PID int `json:"pid"`
	// User is the name of the user.
	User string `json:"user"`
	// Left is true where no agent holds the GPU, and shares of an agent that was killed go
	// on there, as they say of themselves.
	Left bool `json:"left,omitempty"`
	// BySystem is true for shares that are left and that a system agent granted.
	BySystem bool `json:"bySystem,omitempty"`
	tenant   string
	// System is true for the agent that serves all users.
	System bool `json:"system,omitempty"`
}

// String names the holder.
func (h Holder) String() string {
	switch {
	case h.Left && h.BySystem:
		return "shares that a system agent granted to user " + h.User + ", and that agent is gone"
	case h.Left:
		return "shares of user " + h.User + " whose agent has ended"
	case h.UID < 0:
		return "a process that does not answer"
	case h.System && h.PID == 0: // it lives in a pid namespace that this process does not see
		return "the system agent, a process of another pid namespace"
	case h.System:
		return fmt.Sprintf("the system agent, process %d", h.PID)
	case h.PID == 0:
		return "the agent of user " + h.User
	}
	return fmt.Sprintf("the agent of user %s, process %d", h.User, h.PID)
}

// HeldError says who holds a GPU.
type HeldError struct{ Holder Holder }

// Error implements error. What it advises the reader can do.
func (e *HeldError) Error() string {
	return fmt.Sprintf("GPU %s is held by %s: %s", e.Holder.UUID, e.Holder, e.Holder.Remedy(os.Getuid()))
}

// Remedy is what a user can do to use a GPU that is held.
func (h Holder) Remedy(reader int) string {
	ways := h.Ways(reader)
	last := len(ways) - 1
	if last == 0 {
		return ways[0]
	}
	return strings.Join(ways[:last], ", ") + " or " + ways[last]
}

// Ways are what a user can do, each of which works; [control.AnotherGPU] only where one
// serves them.
func (h Holder) Ways(reader int) []string {
	switch {
	case h.System && reader == 0 && h.PID == 0:
		return []string{"it runs in another pid namespace, such as a container: use it there, or end it there and start `divvy agent` here"}
	case h.System && reader == 0:
		return []string{fmt.Sprintf("it runs, its directory is missing or is another one, and its log says why; if it does not make the directory again, end process %d and start it again (%s)", h.PID, rundir.Start(""))}
	case h.System:
		return []string{"it runs and cannot be reached; ask an administrator to see what is wrong with its directory (`divvy doctor` as root)"}
	case h.BySystem && reader == 0:
		return []string{"start the agent for all users again (" + rundir.Start("") + ")", control.AnotherGPU}
	case h.BySystem:
		return []string{control.AnotherGPU, "wait until these have ended", "ask an administrator to start the agent for all users again (" + rundir.AsRoot() + ")"}
	case h.Left && reader != 0:
		return []string{control.AnotherGPU, "wait until these have ended"}
	case h.UID == reader:
		return []string{"use the run directory of that agent", "end it"}
	case reader == 0:
		return []string{control.AnotherGPU, "start the agent for all users (" + rundir.Start("") + "), which takes it over"}
	}
	return []string{control.AnotherGPU, "wait until their shares there have ended", "ask an administrator to start the agent for all users (" + rundir.AsRoot() + ")"}
}

// Of returns who holds a GPU; ok is false if nobody does.
func (k Kind) Of(ctx context.Context, uuid string) (h Holder, ok bool) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	return k.of(ctx, uuid)
}

func (k Kind) of(ctx context.Context, uuid string) (h Holder, ok bool) {
	h = Holder{UUID: uuid, UID: -1}
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", k.Address(uuid))
	if errors.Is(err, unix.ECONNREFUSED) {
		return k.sharedHolder(uuid)
	}
	if err != nil {
		if h.UID, h.PID = listener(k.Address(uuid)); h.UID >= 0 {
			h.User = process.UserName(h.UID)
		}
		return h, true
	}
	defer conn.Close()
	if c, is := conn.(*net.UnixConn); is {
		if cred, err := control.PeerCredentials(c); err == nil {
			h.UID, h.PID, h.User = int(cred.Uid), int(cred.Pid), process.UserName(int(cred.Uid))
			h.System = h.UID == 0 && k.serves(ctx, uuid)
		}
	}
	return h, true
}

// serves reports whether root's process that holds a GPU is a system agent.
func (k Kind) serves(ctx context.Context, uuid string) bool {
	client, err := control.Dial(ctx, k.Address(uuid))
	if err != nil {
		return false
	}
	ephemeral := client.Info().Ephemeral
	_ = client.Close() // it has told enough
	return !ephemeral
}

// All lists the GPUs of the machine that are held, by UUID.
func (k Kind) All(ctx context.Context) ([]Holder, error) {
	return k.all(ctx, askTime)
}

// all gives all holders together a time to answer: those that hang take it whole.
func (k Kind) all(ctx context.Context, within time.Duration) ([]Holder, error) {
	file, err := os.Open("/proc/net/unix")
	if err != nil {
		return nil, fmt.Errorf("look for agents: %w", err)
	}
	defer file.Close()
	uuids := map[string]bool{}
	left := map[string]Holder{}
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		if _, uuid, found := strings.Cut(lines.Text(), " "+string(k)); found {
			uuids[uuid] = true
		}
		if h, found := k.parseSign(lines.Text()); found {
			left[h.UUID] = h
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("look for agents: %w", err)
	}
	asked, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	all := k.ofEach(asked, uuids)
	for _, h := range k.sharedHolders() {
		if !slices.ContainsFunc(all, func(o Holder) bool { return o.UUID == h.UUID }) {
			all = append(all, h) // in another network namespace
		}
	}
	for _, h := range all {
		delete(left, h.UUID)
	}
	for _, h := range left {
		h.BySystem = rundir.LeftBySystem(h.tenant)
		all = append(all, h)
	}
	slices.SortFunc(all, func(x, y Holder) int { return cmp.Compare(x.UUID, y.UUID) })
	return all, nil
}

// askedAtOnce bounds the holders that are asked at the same time.
const askedAtOnce = 64

// ofEach returns who holds each of the GPUs that somebody holds: of a name there may be only
// the other end of a connection. It asks many at once.
func (k Kind) ofEach(ctx context.Context, uuids map[string]bool) (all []Holder) {
	var mu sync.Mutex
	var asking sync.WaitGroup
	room := make(chan struct{}, askedAtOnce)
	for uuid := range uuids {
		room <- struct{}{}
		asking.Go(func() {
			h, ok := k.of(ctx, uuid)
			if mu.Lock(); ok {
				all = append(all, h)
			}
			mu.Unlock()
			<-room
		})
	}
	asking.Wait()
	return all
}

// Set is what one agent holds.
type Set struct {
	Kind Kind
	// Serve is called with each listener, and returns when that is closed. What it
	// answers is the agent's.
	Serve func(l *net.UnixListener)

	mu   sync.Mutex
	held map[string]hold
}

// hold is what keeps others from a GPU. The file is nil where none can be had.
type hold struct {
	listener *net.UnixListener
	file     *os.File
}

func (h hold) end() {
	h.listener.Close()
	unlockShared(h.file)
}

// Take holds a GPU, which may be held by this set already. It returns a *[HeldError]
// if somebody else holds it.
func (s *Set) Take(ctx context.Context, uuid string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held[uuid].listener != nil {
		return nil
	}
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: s.Kind.Address(uuid), Net: "unix"})
	if errors.Is(err, unix.EADDRINUSE) {
		h, _ := s.Kind.Of(ctx, uuid)
		return &HeldError{h}
	}
	if err != nil {
		return fmt.Errorf("hold GPU %s: %w", uuid, err)
	}
	file, err := lockShared(s.Kind.file(uuid))
	if err != nil {
		listener.Close()
		h, seen := s.Kind.sharedHolder(uuid)
		if !seen {
			h = Holder{UUID: uuid, UID: -1}
		}
		return &HeldError{h}
	}
	if s.held == nil {
		s.held = map[string]hold{}
	}
	s.held[uuid] = hold{listener, file}
	go s.Serve(listener)
	return nil
}

// Has reports whether the set holds a GPU.
func (s *Set) Has(uuid string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.held[uuid].listener != nil
}

// Give lets go of a GPU. That it is not held is no error.
func (s *Set) Give(uuid string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h := s.held[uuid]; h.listener != nil {
		h.end()
		delete(s.held, uuid)
	}
}

// Close lets go of all GPUs.
func (s *Set) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range s.held {
		h.end()
	}
	s.held = nil
}
