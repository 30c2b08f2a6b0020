package vmtest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/divvy-gpu/divvy/internal/pci"
	"github.com/divvy-gpu/divvy/internal/vm/binding"
)

// untouched is when the files of a [Shell] were last changed that nobody wrote.
var untouched = time.Unix(1, 0)

// Shell runs command lines on a machine of a [Kernel]: below Root are the files that it shows, and what is written there it gets.
type Shell struct {
	Root   string
	Kernel *Kernel
}

// Run runs lines that are joined by &&, the next one only after one that succeeded.
func (s Shell) Run(ctx context.Context, lines []string) error {
	for _, line := range lines {
		if err := s.Show(); err != nil {
			return err
		}
		if err := errors.Join(s.Line(ctx, line), s.pass()); err != nil {
			return err
		}
	}
	return s.Show()
}

// Line runs one line on the files below Root.
func (s Shell) Line(ctx context.Context, line string) error {
	line = strings.TrimSuffix(line, " &&")
	script := strings.NewReplacer("/sys/", s.Root+"/sys/", "/dev/null", "/dev/null", "/dev/", s.Root+"/dev/").Replace(line)
	if out, err := exec.CommandContext(ctx, "sh", "-c", script).CombinedOutput(); err != nil { //nolint:gosec // a test's
		return fmt.Errorf("%s: %w: %s", line, err, out)
	}
	return nil
}

// Show writes down what the kernel shows now.
func (s Shell) Show() error {
	s.Kernel.mu.Lock()
	defer s.Kernel.mu.Unlock()
	if err := os.RemoveAll(filepath.Join(s.Root, "sys/bus")); err != nil {
		return err
	}
	t := tree{root: filepath.Join(s.Root, "sys")}
	t.file("bus/pci/drivers_probe", "")
	for name := range s.Kernel.drivers {
		t.file("bus/pci/drivers/"+name+"/bind", "")
		t.file("bus/pci/drivers/"+name+"/unbind", "")
	}
	for at, f := range s.Kernel.functions {
		t.function(at, f)
	}
	return errors.Join(t.faults...)
}

type tree struct {
	root   string
	faults []error
}

func (t *tree) function(at pci.Address, f *function) {
	folder := binding.DeviceFolder(at)
	t.file(folder+"/driver_override", f.override+"\n")
	t.file(folder+"/reset", "")
	if f.driver != "" {
		t.link(folder+"/driver", "../../drivers/"+f.driver)
		t.link("bus/pci/drivers/"+f.driver+"/"+at.String(), "../../devices/"+at.String())
	}
	if f.virtual == nil {
		return
	}
	for _, name := range []string{"sriov_numvfs", "sriov_drivers_autoprobe"} {
		now, err := f.virtual.state(folder, name)
		t.faults = append(t.faults, err)
		t.file(folder+"/"+name, now+"\n")
	}
	for n := range f.virtual.now {
		t.link(fmt.Sprintf("%s/virtfn%d", folder, n), "../"+Virtual(at, n+1).String())
	}
}

func (t *tree) place(name string) string {
	place := filepath.Join(t.root, name)
	t.faults = append(t.faults, os.MkdirAll(filepath.Dir(place), 0o700))
	return place
}

func (t *tree) file(name, content string) {
	place := t.place(name)
	t.faults = append(t.faults, os.WriteFile(place, []byte(content), 0o600), os.Chtimes(place, untouched, untouched))
}

func (t *tree) link(name, to string) { t.faults = append(t.faults, os.Symlink(to, t.place(name))) }

// pass gives the kernel what was written.
func (s Shell) pass() error {
	sys := filepath.Join(s.Root, "sys")
	return filepath.WalkDir(sys, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		info, err := entry.Info()
		if err != nil || info.ModTime().Equal(untouched) {
			return err
		}
		value, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(sys, path)
		if err != nil {
			return err
		}
		return s.Kernel.Write(binding.Write{Path: name, Value: strings.TrimSuffix(string(value), "\n")})
	})
}
