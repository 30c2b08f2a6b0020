package cluster

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// space is the namespaces and the cgroup of a machine of the cluster. Its first
// process holds them; they end with it.
type space struct {
	pid    int
	kinds  map[string]*os.File // by their names below /proc/PID/ns
	groups []hierarchy
	group  string // cgroup of its processes; empty: the test's own
}

// Kinds of namespaces in the order in which a thread can enter them: the mount
// namespace last, for it takes /proc away.
var (
	controlKinds = []string{"net", "pid"}
	nodeKinds    = []string{"net", "ipc", "uts", "cgroup", "pid", "mnt"}
)

// openSpace takes hold of a process's namespaces.
func openSpace(pid int, kinds []string) (*space, error) {
	s := &space{pid: pid, kinds: make(map[string]*os.File)}
	for _, kind := range kinds {
		file, err := os.Open("/proc/" + strconv.Itoa(pid) + "/ns/" + kind)
		if err != nil {
			s.close()
			return nil, fmt.Errorf("open namespaces: %w", err)
		}
		s.kinds[kind] = file
	}
	return s, nil
}

func (s *space) close() {
	for _, file := range s.kinds {
		file.Close()
	}
}

// enter moves the calling thread into those of the namespaces that the space
// has. Processes that it starts then are in them.
func (s *space) enter(kinds []string) error {
	for _, kind := range kinds {
		file, ok := s.kinds[kind]
		if !ok {
			continue
		}
		if kind == "mnt" {
			// A thread that shares its root with others cannot change it.
			if err := unix.Unshare(unix.CLONE_FS); err != nil {
				return fmt.Errorf("unshare root: %w", err)
			}
		}
		if err := unix.Setns(int(file.Fd()), 0); err != nil {
			return fmt.Errorf("enter %s namespace: %w", kind, err)
		}
	}
	return nil
}

// start starts a command in the given namespaces of the space.
func (s *space) start(cmd *exec.Cmd, kinds []string) error {
	return onThread(func() error {
		if s.group != "" {
			open, err := prepareIn(s.groups, s.group, cmd)
			defer func() {
				for _, file := range open {
					file.Close()
				}
			}()
			if err != nil {
				return err
			}
		}
		if err := s.enter(kinds); err != nil {
			return err
		}
		return cmd.Start()
	})
}

// dial connects from within the network namespace. The address must be numeric:
// a name would be looked up on another thread.
func (s *space) dial(ctx context.Context, network, address string) (net.Conn, error) {
	var conn net.Conn
	err := onThread(func() error {
		if err := s.enter([]string{"net"}); err != nil {
			return err
		}
		var dialer net.Dialer
		var err error
		conn, err = dialer.DialContext(ctx, network, address)
		return err
	})
	return conn, err
}

// output runs a command to its end in the given namespaces and returns what it
// prints. What it says besides is part of the error.
func (s *space) output(cmd *exec.Cmd, kinds []string) (string, error) {
	var out, said strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &said
	err := s.start(cmd, kinds)
	if err == nil {
		err = cmd.Wait()
	}
	if err != nil {
		return out.String(), fmt.Errorf("%s %s: %w: %s", filepath.Base(cmd.Path), strings.Join(cmd.Args[1:], " "), err,
			strings.TrimSpace(said.String()))
	}
	return out.String(), nil
}
