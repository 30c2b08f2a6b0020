package vfio_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/vm/binding"
	"github.com/divvy-gpu/divvy/internal/vm/vfio"
)

func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == vfio.Command {
		if err := vfio.Main(os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func self(t *testing.T, root string) vfio.Host {
	t.Helper()
	program, err := os.Executable()
	must(t, err)
	return vfio.Host{Root: root, Program: program, Args: []string{vfio.Command}}
}

func TestWriter(t *testing.T) {
	root := t.TempDir()
	must(t, os.MkdirAll(filepath.Join(root, "sys/bus"), 0o700))
	must(t, os.WriteFile(filepath.Join(root, "sys/bus/file"), nil, 0o600))
	must(t, os.WriteFile(filepath.Join(root, "outside"), nil, 0o600))
	fd, err := unix.Open(os.DevNull, unix.O_RDWR, 0) // a library's, which every child inherits
	must(t, err)
	defer unix.Close(fd)
	w, err := self(t, root).Start()
	must(t, err)
	t.Cleanup(func() {
		w.Close()
		<-w.Ended()
	})
	for _, c := range []struct {
		path string
		want error
	}{{"bus/file", nil}, {"bus/none", syscall.ENOENT}, {"bus", syscall.EISDIR}, {"bus/file", nil}} {
		if err := <-w.Write(binding.Write{Path: c.path, Value: "text\n"}); !errors.Is(err, c.want) {
			t.Errorf("write %s: %v, want %v", c.path, err, c.want)
		}
	}
	if err := <-w.Write(binding.Write{Path: "../outside", Value: "text"}); err == nil || !strings.Contains(err.Error(), fs.ErrInvalid.Error()) {
		t.Errorf("a path that leads out of sys: %v", err)
	}
	for name, want := range map[string]string{"sys/bus/file": "text\n", "outside": ""} {
		if got, err := os.ReadFile(filepath.Join(root, name)); err != nil || string(got) != want {
			t.Errorf("%s has %q, %v; want %q", name, got, err, want)
		}
	}
	id := w.ID()
	if session, err := unix.Getsid(id.PID); err != nil || session != id.PID {
		t.Errorf("its session is %d, %v; want its own, %d", session, err, id.PID)
	}
	links, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", id.PID))
	must(t, err)
	for _, link := range links {
		target, err := os.Readlink(link)
		must(t, err)
		if filepath.Base(link) > "2" && target == os.DevNull {
			t.Errorf("it has %s as %s", target, link)
		}
	}
	w.Close()
	<-w.Ended()
	if id.Alive() {
		t.Error("it lives after it was closed")
	}
}

func TestStates(t *testing.T) {
	root := t.TempDir()
	folder := filepath.Join(root, "sys", binding.DeviceFolder(gpu))
	must(t, os.MkdirAll(folder, 0o700))
	must(t, os.Symlink("../../../bus/pci/drivers/nvidia", filepath.Join(folder, "driver")))
	must(t, os.WriteFile(filepath.Join(folder, "driver_override"), []byte("(null)\n"), 0o600))
	must(t, os.WriteFile(filepath.Join(folder, "type"), []byte("471\n"), 0o600))
	h := vfio.Host{Root: root}
	for _, c := range []struct {
		state binding.State
		want  string
	}{
		{binding.State{Path: binding.DeviceFolder(gpu) + "/driver", Link: true}, "nvidia"},
		{binding.State{Path: binding.DeviceFolder(audio) + "/driver", Link: true}, ""},
		{binding.State{Path: binding.DeviceFolder(gpu) + "/driver_override"}, ""},
		{binding.State{Path: binding.DeviceFolder(gpu) + "/type"}, "471"},
	} {
		if got, err := h.State(c.state); err != nil || got != c.want {
			t.Errorf("%s is %q, %v; want %q", c.state.Path, got, err, c.want)
		}
	}
	if _, err := h.State(binding.State{Path: "../x"}); !errors.Is(err, fs.ErrInvalid) {
		t.Errorf("a path that leads out of sys: %v", err)
	}
	if !h.Exists(binding.DeviceFolder(gpu)) || h.Exists(binding.DeviceFolder(audio)) || h.Exists("..") {
		t.Error("what exists is told wrongly")
	}
}
