package mps

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// listenVariable makes the test program listen at a socket until it is killed.
const listenVariable = "DIVVY_TEST_MPS_LISTEN"

// silentVariable makes it connect to a socket some times, and say nothing until it is killed.
const silentVariable = "DIVVY_TEST_MPS_SILENT"

// silences is how many connections that are.
const silences = 3

func beSilent(path string) {
	for range silences {
		if _, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: path, Net: "unixpacket"}); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	fmt.Println("silent")
	select {}
}

func TestMain(m *testing.M) {
	if path := os.Getenv(listenVariable); path != "" {
		listening, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		_ = unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(syscall.SIGKILL), 0, 0, 0)
		fmt.Println("listens")
		for {
			if _, err := listening.Accept(); err != nil {
				os.Exit(1)
			}
		}
	}
	if path := os.Getenv(silentVariable); path != "" {
		_ = unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(syscall.SIGKILL), 0, 0, 0)
		beSilent(path)
	}
	os.Exit(m.Run())
}

// listens starts a process of a user that listens in a pipe directory as a daemon does. The test ends it.
func listens(t *testing.T, pipe string, uid int) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = []string{listenVariable + "=" + filepath.Join(pipe, controlSocket)}
	if uid != os.Geteuid() {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
	}
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatalf("it does not listen: %v", err)
	}
	return cmd
}

// pipeOf is a pipe directory in which every user can make a socket, at a path that is short.
func pipeOf(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "mps")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	return dir
}

var zombie = regexp.MustCompile(`\) [ZX] `)

// lives reports whether a child that this process waits for later has not ended.
func lives(cmd *exec.Cmd) bool {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(cmd.Process.Pid) + "/stat")
	return err == nil && !zombie.Match(text)
}

// What a user left where the daemon of an own agent should be costs nobody but that user anything, and no time.
func TestEndOfHostilePipes(t *testing.T) {
	const user, another = 12345, 12346
	if os.Geteuid() != 0 {
		t.Skip("processes of two users need root")
	}
	for name, c := range map[string]struct {
		make func(pipe string) (*exec.Cmd, error)
		want error
		ends bool
	}{
		"nothing": {func(string) (*exec.Cmd, error) { return nil, nil }, ErrAbsent, false},
		"the user's daemon": {func(pipe string) (*exec.Cmd, error) {
			return listens(t, pipe, user), nil
		}, nil, true},
		"another user's": {func(pipe string) (*exec.Cmd, error) {
			return listens(t, pipe, another), nil
		}, ErrForeign, false},
		"root's": {func(pipe string) (*exec.Cmd, error) {
			return listens(t, pipe, 0), nil
		}, ErrForeign, false},
		"a FIFO": {func(pipe string) (*exec.Cmd, error) {
			return nil, unix.Mkfifo(filepath.Join(pipe, controlSocket), 0o777)
		}, ErrAbsent, false},
		"a file": {func(pipe string) (*exec.Cmd, error) {
			return nil, os.WriteFile(filepath.Join(pipe, controlSocket), nil, 0o666)
		}, ErrAbsent, false},
		"a link to root's": {func(pipe string) (*exec.Cmd, error) {
			elsewhere := pipeOf(t)
			return listens(t, elsewhere, 0), os.Symlink(filepath.Join(elsewhere, controlSocket), filepath.Join(pipe, controlSocket))
		}, ErrForeign, false},
		"another's directory in its place": {func(pipe string) (*exec.Cmd, error) {
			elsewhere := pipeOf(t)
			cmd := listens(t, elsewhere, another)
			return cmd, errors.Join(os.Remove(pipe), os.Symlink(elsewhere, pipe))
		}, ErrForeign, false},
	} {
		t.Run(name, func(t *testing.T) {
			pipe := pipeOf(t)
			cmd, err := c.make(pipe)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if err := EndOf(ctx, pipe, user); !errors.Is(err, c.want) || c.want == nil && err != nil {
				t.Errorf("%v, want %v", err, c.want)
			}
			if cmd != nil && lives(cmd) == c.ends {
				t.Errorf("it lives: %v", !c.ends)
			}
		})
	}
}

// A socket whose connections nobody accepts keeps nobody waiting.
func TestEndOfFullSocket(t *testing.T) {
	pipe := pipeOf(t)
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	at := &unix.SockaddrUnix{Name: filepath.Join(pipe, controlSocket)}
	if err := errors.Join(unix.Bind(fd, at), unix.Listen(fd, 0)); err != nil {
		t.Fatal(err)
	}
	for {
		one, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(one)
		if err := unix.Connect(one, at); errors.Is(err, unix.EAGAIN) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	done := make(chan error, 1)
	go func() { done <- EndOf(t.Context(), pipe, 12345) }()
	select {
	case err := <-done:
		if err == nil {
			t.Error("a daemon of nobody's was ended")
		}
	case <-time.After(time.Minute):
		t.Fatal("it waits")
	}
}
