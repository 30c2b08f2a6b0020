package slice

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/divvy-gpu/divvy/internal/ldcache"
	"github.com/divvy-gpu/divvy/internal/page"
	"github.com/divvy-gpu/divvy/internal/rundir"
)

// makeDir makes the tenant directory. Undoing it removes all that is in it.
type makeDir struct {
	Path string      `json:"makeDir"`
	Mode os.FileMode `json:"mode"`
}

func (s makeDir) Apply() error {
	if err := os.MkdirAll(s.Path, s.Mode); err != nil {
		return fmt.Errorf("make tenant directory: %w", err)
	}
	if err := os.Chmod(s.Path, s.Mode); err != nil { // whatever the umask
		return fmt.Errorf("make tenant directory: %w", err)
	}
	return nil
}

func (s makeDir) Undo() error {
	return os.RemoveAll(s.Path)
}

// makePlace makes a directory for tenant directories, which stays.
type makePlace struct {
	Path string      `json:"makePlace"`
	Mode os.FileMode `json:"mode"`
}

func (s makePlace) Apply() error {
	if err := rundir.Make(s.Path, s.Mode); err != nil {
		return fmt.Errorf("make place for tenants: %w", err)
	}
	return nil
}

func (s makePlace) Undo() error { return nil }

// writeConfig makes the config page, unless the tenant has one: that may have
// been changed since.
type writeConfig struct {
	Path   string      `json:"writeConfig"`
	Mode   os.FileMode `json:"mode"`
	Config page.Config `json:"-"`
	// Shown is the part of Config that people read in a printed plan.
	Shown []shownShare `json:"shares"`
	Flags uint32       `json:"flags,omitempty"`
}

type shownShare struct {
	UUID         string `json:"uuid"`
	Limit        uint64 `json:"limit"`
	ContextBytes uint64 `json:"contextBytes"`
	Cores        uint32 `json:"cores"`
	Policy       uint32 `json:"policy"`
	Weight       uint32 `json:"weight"`
	Class        uint32 `json:"class"`
}

func (s writeConfig) Apply() error {
	if _, err := page.ReadConfig(s.Path); err == nil {
		return nil
	}
	return page.WriteConfig(s.Path, s.Config, s.Mode)
}

func (s writeConfig) Undo() error {
	return remove(s.Path)
}

// makeState makes the state page, which the tenant writes.
type makeState struct {
	Path    string `json:"makeState"`
	Devices int    `json:"devices"`
	UID     int    `json:"uid"`
}

func (s makeState) Apply() error {
	return page.CreateState(s.Path, s.Devices, s.UID)
}

func (s makeState) Undo() error {
	return remove(s.Path)
}

// makeOpenState makes the state page of a container, whose processes are of any
// user.
type makeOpenState struct {
	Path    string `json:"makeOpenState"`
	Devices int    `json:"devices"`
}

func (s makeOpenState) Apply() error {
	return page.CreateOpenState(s.Path, s.Devices)
}

func (s makeOpenState) Undo() error {
	return remove(s.Path)
}

// makeOpenPulse makes the page in which a container tells that it has work.
type makeOpenPulse struct {
	Path string `json:"makeOpenPulse"`
}

func (s makeOpenPulse) Apply() error {
	return page.CreateOpenPulse(s.Path)
}

func (s makeOpenPulse) Undo() error {
	return remove(s.Path)
}

// copyLibrary copies a library of ours with its search path set to the tenant
// directory.
type copyLibrary struct {
	Source  string `json:"copyLibrary"`
	Path    string `json:"path"`
	Runpath string `json:"runpath"`
}

func (s copyLibrary) Apply() error {
	image, err := os.ReadFile(s.Source)
	if err != nil {
		return fmt.Errorf("read Divvy's library: %w: reinstall Divvy", err)
	}
	patched, err := withRunpath(image, s.Runpath)
	if err != nil {
		return fmt.Errorf("copy %s: %w: reinstall Divvy", s.Source, err)
	}
	return writeFile(s.Path, patched, 0o755)
}

func (s copyLibrary) Undo() error {
	return remove(s.Path)
}

// link makes a symbolic link.
type link struct {
	Path   string `json:"link"`
	Target string `json:"target"`
}

func (s link) Apply() error {
	if target, err := os.Readlink(s.Path); err == nil && target == s.Target {
		return nil
	}
	if err := remove(s.Path); err != nil {
		return err
	}
	if err := os.Symlink(s.Target, s.Path); err != nil {
		return fmt.Errorf("link: %w", err)
	}
	return nil
}

func (s link) Undo() error {
	return remove(s.Path)
}

// makeFile makes an empty file for something to be bound over.
type makeFile struct {
	Path string `json:"makeFile"`
}

// Apply leaves a file that is there: replacing it would take away what is
// mounted over it in a running container (the kernel detaches such mounts).
func (s makeFile) Apply() error {
	if info, err := os.Lstat(s.Path); err == nil && info.Mode().IsRegular() {
		return nil
	}
	return writeFile(s.Path, nil, 0o644)
}

func (s makeFile) Undo() error {
	return remove(s.Path)
}

// writeCache makes a copy of the linker's cache that leads to our libraries.
type writeCache struct {
	Source  string          `json:"writeCache"`
	Path    string          `json:"path"`
	Entries []ldcache.Entry `json:"entries"`
}

func (s writeCache) Apply() error {
	data, err := os.ReadFile(s.Source)
	if err != nil {
		return fmt.Errorf("read the linker's cache: %w", err)
	}
	cache, err := ldcache.Parse(data)
	if err != nil {
		return fmt.Errorf("read %s: %w", s.Source, err)
	}
	cache.Add(s.Entries...)
	return writeFile(s.Path, cache.Encode(), 0o644)
}

func (s writeCache) Undo() error {
	return remove(s.Path)
}

// writeFile replaces a file as a whole, whatever the umask.
func writeFile(path string, data []byte, mode os.FileMode) error {
	temporary := path + ".new"
	if err := os.WriteFile(temporary, data, mode); err != nil {
		return errors.Join(fmt.Errorf("write %s: %w", filepath.Base(path), err), remove(temporary))
	}
	if err := os.Chmod(temporary, mode); err != nil {
		return fmt.Errorf("write %s: %w", filepath.Base(path), err)
	}
	if err := os.Rename(temporary, path); err != nil {
		return fmt.Errorf("write %s: %w", filepath.Base(path), err)
	}
	return nil
}

func remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove: %w", err)
	}
	return nil
}
