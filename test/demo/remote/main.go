// Command remote shows two hosts, of which one has a GPU: a program on the other one uses a share of it, is refused at its limit,
// asks for more than its host may have, and hears when the server dies. Both hosts are namespaces of this machine, made without
// root. It checks what it shows, prints a summary, and fails if a check failed. Everything it starts it stops.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/divvy-gpu/divvy/test/demo/screen"
)

func main() {
	prefix := flag.String("prefix", "build", "where Divvy was built")
	inside := flag.Bool("inside", false, "be in the namespaces already")
	flag.Parse()
	var err error
	if *inside {
		err = play(*prefix)
	} else {
		err = enter(*prefix)
	}
	var ended *exec.ExitError
	if err != nil && !errors.As(err, &ended) { // one that ended has said why
		fmt.Fprintln(os.Stderr, "demo-remote:", err)
	}
	if err != nil {
		os.Exit(1)
	}
}

// enter runs this program as root of a user namespace of its own, in which it can make hosts.
func enter(prefix string) error {
	prefix, err := filepath.Abs(prefix)
	if err != nil {
		return err
	}
	for _, program := range []string{"ip", "mount", "unshare", "nsenter"} {
		if _, err := exec.LookPath(program); err != nil {
			return fmt.Errorf("%w: it is of iproute2 or util-linux", err)
		}
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	hosts := exec.CommandContext(ctx, self, "-prefix", prefix, "-inside")
	hosts.Stdin, hosts.Stdout, hosts.Stderr = os.Stdin, os.Stdout, os.Stderr
	hosts.Cancel = func() error { return hosts.Process.Signal(syscall.SIGTERM) }
	hosts.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS | syscall.CLONE_NEWNET | syscall.CLONE_NEWUTS,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
		Pdeathsig:   syscall.SIGTERM,
	}
	if err := hosts.Start(); errors.Is(err, syscall.EPERM) {
		return fmt.Errorf("make namespaces: %w: this machine lets no user do that", err)
	} else if err != nil {
		return fmt.Errorf("make namespaces: %w", err)
	}
	return hosts.Wait()
}

// play makes the hosts and runs the scenes.
func play(prefix string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	h, err := open(ctx, prefix)
	if err != nil {
		return err
	}
	s := &show{hosts: h, screen: screen.New(os.Stdout)}
	err = s.play(ctx)
	s.screen.Rest()
	if ctx.Err() != nil {
		err = errors.New("interrupted")
	}
	err = errors.Join(err, h.close(context.WithoutCancel(ctx)))
	if passed := s.screen.Summary(); !passed && err == nil {
		err = errors.New("a check failed")
	}
	return err
}
