package slice

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/ldcache"
	"github.com/divvy-gpu/divvy/internal/page"
	"github.com/divvy-gpu/divvy/internal/rundir"
	"github.com/divvy-gpu/divvy/internal/tenantdir"
)

// makeTenant makes the tenant directory and its pages. Undoing it removes all
// that is in the directory.
type makeTenant struct {
	Dir    tenantdir.Dir    `json:"makeTenant"`
	Access tenantdir.Access `json:"access"`
	UID    int              `json:"uid"`
	// Asker is the tenant's user, who may be root, where the pages are its worker's; nil otherwise.
	Asker *int   `json:"asker,omitempty"`
	Flags uint32 `json:"flags,omitempty"`
	// Shares is the part of the config page that people read in a printed plan.
	Shares []shownShare `json:"shares"`
	config page.Config
	shares []backend.Share
	record []byte
}

type shownShare struct {
	UUID         string `json:"uuid"`
	Limit        uint64 `json:"limit"`
	ContextBytes uint64 `json:"contextBytes"`
	Cores        uint32 `json:"cores"`
	MaxCores     uint32 `json:"maxCores"`
	Policy       uint32 `json:"policy"`
	Weight       uint32 `json:"weight"`
	Class        uint32 `json:"class"`
}

func (s makeTenant) Apply() error {
	if err := s.Dir.Make(&s.config, s.record, s.Access, s.UID); err != nil {
		return err
	}
	if s.Asker != nil {
		if err := s.Dir.NoteAsker(*s.Asker); err != nil {
			return err
		}
	}
	return s.Dir.Owe(&s.config, s.shares)
}

func (s makeTenant) Undo() error {
	return s.Dir.Remove()
}

// makePlace makes a directory for tenant directories, which stays.
type makePlace struct {
	Path string      `json:"makePlace"`
	Mode os.FileMode `json:"mode"`
}

func (s makePlace) Apply() error {
	if err := rundir.Make(s.Path, s.Mode); err != nil {
		return fmt.Errorf("make directory of tenants: %w", err)
	}
	return nil
}

func (s makePlace) Undo() error { return nil }

// copyLibrary copies a library of ours with its search path set to the tenant
// directory, and the names of the driver's library.
type copyLibrary struct {
	Source  string `json:"copyLibrary"`
	Path    string `json:"path"`
	Runpath string `json:"runpath"`
	Driver  string `json:"driver"`
}

func (s copyLibrary) Apply() error {
	image, err := os.ReadFile(s.Source)
	if err != nil {
		return fmt.Errorf("read Divvy's library: %w: reinstall Divvy", err)
	}
	patched, err := ForDriver(image, s.Runpath, s.Driver)
	if err != nil {
		return fmt.Errorf("copy %s: %w", s.Source, err)
	}
	return WriteFile(s.Path, patched, 0o755)
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
	return WriteFile(s.Path, nil, 0o644)
}

func (s makeFile) Undo() error {
	return remove(s.Path)
}

// writeCache makes a copy of the linker's cache in which our libraries come first.
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
	return WriteFile(s.Path, cache.Encode(), 0o644)
}

func (s writeCache) Undo() error {
	return remove(s.Path)
}

// WriteFile replaces a file as a whole, whatever the umask. Nobody else can read it before it has its mode.
func WriteFile(path string, data []byte, mode os.FileMode) error {
	temporary := path + ".new"
	err := os.WriteFile(temporary, data, 0o600)
	if err == nil {
		err = os.Chmod(temporary, mode)
	}
	if err == nil {
		err = os.Rename(temporary, path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("write %s: %w", filepath.Base(path), err), remove(temporary))
	}
	return nil
}

func remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove: %w", err)
	}
	return nil
}
