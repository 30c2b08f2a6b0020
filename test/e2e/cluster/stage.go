package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// stageVariable tells a copy of the test's own program which part it plays.
const stageVariable = "DIVVY_CLUSTER_STAGE"

// order is what a stage is told on its standard input.
type order struct {
	Dir    string      `json:"dir"`   // the cluster's directory
	Group  string      `json:"group"` // cgroup
	Groups []hierarchy `json:"groups"`
	Root   *rootSpec   `json:"root,omitempty"` // of a node
}

// report is what a stage says on its standard output once it is ready.
type report struct {
	PID   int    `json:"pid,omitempty"`
	Error string `json:"error,omitempty"`
}

// The copies are started by the program's own path and never reach its main
// function, so that a test binary needs no preparation to start clusters.
func init() {
	stages := map[string]func(order) error{"supervisor": supervise, "control": hold, "node": holdNode}
	name := os.Getenv(stageVariable)
	stage, ok := stages[name]
	switch {
	case name == "parent":
		os.Exit(parent())
	case !ok:
		return
	}
	// A namespace that this thread enters is the process's: it is the first thread.
	runtime.LockOSThread()
	var o order
	err := json.NewDecoder(os.Stdin).Decode(&o)
	if err == nil {
		err = stage(o)
	}
	if err != nil {
		_ = json.NewEncoder(os.Stdout).Encode(report{Error: err.Error()})
		os.Exit(1)
	}
	os.Exit(0)
}

// stageCommand is a copy of this program for a stage. Its end of the returned
// pipe must stay open: when it closes, the stage ends.
func stageCommand(stage string) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), stageVariable+"="+stage)
	cmd.Stderr = os.Stderr
	return cmd, nil
}

// startStage starts one and waits until it is ready. The pipe that it returns
// holds the stage.
func startStage(cmd *exec.Cmd, o order, start func(*exec.Cmd) error) (held io.WriteCloser, said report, err error) {
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, said, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, said, err
	}
	if err := start(cmd); err != nil {
		return nil, said, err
	}
	err = json.NewEncoder(in).Encode(o)
	if err == nil {
		err = json.NewDecoder(out).Decode(&said)
	}
	if err == nil && said.Error != "" {
		err = errors.New(said.Error)
	}
	if err != nil {
		return nil, said, errors.Join(err, in.Close(), cmd.Wait())
	}
	return in, said, nil
}

// supervise holds the cluster's pid namespace until the test closes the pipe or
// ends, and then removes all that is left of the cluster.
func supervise(o order) error {
	// The terminal's Ctrl-C is for the test alone.
	signal.Ignore(unix.SIGINT, unix.SIGHUP, unix.SIGTERM)
	lock, err := lockDir(o.Dir)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := makeGroup(o.Groups, o.Group); err != nil {
		return err
	}
	cmd, err := stageCommand("control")
	if err != nil {
		return err
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNET}
	held, _, err := startStage(cmd, o, (*exec.Cmd).Start)
	if err != nil {
		return errors.Join(fmt.Errorf("start the cluster's first process: %w", err), clean(o))
	}
	_ = json.NewEncoder(os.Stdout).Encode(report{PID: cmd.Process.Pid})
	_, _ = io.Copy(io.Discard, os.Stdin)
	// The kernel ends every process of the namespace before this one is reaped.
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	_ = held.Close()
	return clean(o)
}

// clean removes what the end of all processes leaves.
func clean(o order) error {
	return errors.Join(removeGroup(o.Groups, o.Group), os.RemoveAll(o.Dir))
}

// lockName is the file in a cluster's directory whose lock its supervisor holds.
const lockName = "lock"

// lockDir locks the directory of a cluster that begins. The file gets its name once it is locked: whoever begins another cluster
// meanwhile removes what has one that nobody locks.
func lockDir(dir string) (*os.File, error) {
	path := filepath.Join(dir, lockName)
	lock, err := flock(path+".new", os.O_CREATE)
	if err != nil {
		return nil, err
	}
	if err := os.Rename(path+".new", path); err != nil {
		lock.Close()
		return nil, err
	}
	return lock, nil
}

// abandoned locks the directory of a cluster whose supervisor does so no more. It makes no file: the directory may just be going.
func abandoned(dir string) (*os.File, error) {
	return flock(filepath.Join(dir, lockName), 0)
}

func flock(path string, flags int) (*os.File, error) {
	lock, err := os.OpenFile(path, os.O_RDWR|flags, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		lock.Close()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return lock, nil
}

// hold is the first process of the control plane's namespaces: it reaps whom
// nobody waits for, and ends with the pipe.
func hold(order) error {
	children := make(chan os.Signal, 1)
	signal.Notify(children, unix.SIGCHLD)
	closed := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(closed)
	}()
	if err := json.NewEncoder(os.Stdout).Encode(report{PID: os.Getpid()}); err != nil {
		return err
	}
	for {
		select {
		case <-children:
			reap()
		case <-closed:
			return nil
		}
	}
}

// reap collects every child that has ended.
func reap() {
	for {
		pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil)
		if pid <= 0 && !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// parent starts the first process of a node, in pid and other namespaces of its
// own, and waits for its end. It is there because only a process that is itself
// in the cluster's pid namespace can make one below that.
func parent() int {
	cmd, err := stageCommand("node")
	if err == nil {
		cmd.Stdin, cmd.Stdout = os.Stdin, os.Stdout
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNET |
			unix.CLONE_NEWNS | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS}
		err = cmd.Run()
	}
	if err != nil {
		_ = json.NewEncoder(os.Stdout).Encode(report{Error: err.Error()})
		return 1
	}
	return 0
}

// childOf finds the only child of a process, by its id on the host.
func childOf(pid int) (int, error) {
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil {
		return 0, err
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return 0, err
		}
		if fields := strings.Fields(string(text)); len(fields) > 0 {
			return strconv.Atoi(fields[0])
		}
	}
	return 0, fmt.Errorf("process %d has no child", pid)
}

// holdNode is the first process of a node: it makes the node's cgroup and root
// its own first.
func holdNode(o order) error {
	if err := makeGroup(o.Groups, o.Group); err != nil {
		return err
	}
	if err := joinGroup(o.Groups, o.Group); err != nil {
		return err
	}
	if err := unix.Unshare(unix.CLONE_NEWCGROUP); err != nil {
		return fmt.Errorf("unshare cgroup namespace: %w", err)
	}
	if err := settle(o.Groups, o.Group); err != nil {
		return err
	}
	if err := o.Root.enter(o.Groups); err != nil {
		return err
	}
	return hold(o)
}
