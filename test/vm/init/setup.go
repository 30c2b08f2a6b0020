//go:build linux

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/test/vm/machine"
)

// mounted makes the file systems that programs expect.
func mounted() error {
	for _, mount := range []struct{ kind, at string }{
		{"proc", "/proc"}, {"sysfs", "/sys"}, {"devtmpfs", "/dev"}, {"tmpfs", "/tmp"}, {"tmpfs", "/run"},
		{"devpts", "/dev/pts"}, {"tmpfs", "/dev/shm"}, {"cgroup2", "/sys/fs/cgroup"}, {"debugfs", "/sys/kernel/debug"},
	} {
		if err := os.MkdirAll(mount.at, 0o755); err != nil { //nolint:gosec // folders that every system has
			return fmt.Errorf("make %s: %w", mount.at, err)
		}
		if err := unix.Mount(mount.kind, mount.at, mount.kind, 0, ""); err != nil {
			return fmt.Errorf("mount %s: %w", mount.at, err)
		}
	}
	return os.Chmod("/tmp", 0o777|os.ModeSticky)
}

// tokened returns an error where the kernel was not started by the kit.
func tokened() error {
	words, err := os.ReadFile("/proc/cmdline")
	if err != nil {
		return fmt.Errorf("read the kernel's command line: %w", err)
	}
	if !slices.Contains(strings.Fields(string(words)), machine.Token) {
		return errors.New("the kernel's command line lacks the token of the kit")
	}
	return nil
}

// loaded loads the kernel's modules in the order that a file has them in.
func loaded(order string) error {
	text, err := os.ReadFile(order) //nolint:gosec // the one file of the guest's
	if err != nil {
		return fmt.Errorf("read the list of modules: %w", err)
	}
	for name := range strings.FieldsSeq(string(text)) {
		file, err := os.Open(filepath.Join(filepath.Dir(order), name))
		if err != nil {
			return fmt.Errorf("load a module: %w", err)
		}
		err = unix.FinitModule(int(file.Fd()), "", 0)
		_ = file.Close()
		if err != nil {
			return fmt.Errorf("load the module %s: %w", name, err)
		}
	}
	return nil
}

// looped turns the loopback device on.
func looped() error {
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err != nil {
		return fmt.Errorf("turn on the loopback device: %w", err)
	}
	defer func() { _ = unix.Close(socket) }()
	request, err := unix.NewIfreq("lo")
	if err != nil {
		return fmt.Errorf("turn on the loopback device: %w", err)
	}
	request.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	if err := unix.IoctlIfreq(socket, unix.SIOCSIFFLAGS, request); err != nil {
		return fmt.Errorf("turn on the loopback device: %w", err)
	}
	return nil
}
