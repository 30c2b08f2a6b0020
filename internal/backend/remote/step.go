package remote

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/divvy-gpu/divvy/internal/backend/slice"
	"github.com/divvy-gpu/divvy/internal/driver"
)

// makeClient makes the folder with the client's libraries, in which the worker's socket is.
type makeClient struct {
	Path string `json:"makeClient"`
	// UID is whose folder it is, because the worker is that user's and makes its socket there; -1 leaves it the agent's.
	UID int `json:"uid"`
	// Runpath is where programs see the folder, empty for the path itself.
	Runpath string `json:"runpath,omitempty"`
	// Code is the library on which the others stand.
	Code      string          `json:"code"`
	Libraries []clientLibrary `json:"libraries"`
}

// clientLibrary is copied as [slice.ForDriver] does it: it finds the code in the folder wherever it is bound, and has the
// names of the driver's library alone.
type clientLibrary struct {
	Source string         `json:"source"`
	Name   driver.Library `json:"name"`
	// Driver is the driver's library. On a machine that has none the names are all but Lacks.
	Driver string   `json:"driver,omitempty"`
	Lacks  []string `json:"lacks,omitempty"`
}

// Apply implements [backend.Step]. A folder that is the tenant's user's already was made as a whole. What lies in it is that
// user's, so nothing is written there.
func (s makeClient) Apply() error {
	if s.isUsers() {
		return nil
	}
	if err := (makeFolder{Path: s.Path}).Apply(); err != nil {
		return err
	}
	code, err := os.ReadFile(s.Code)
	if err != nil {
		return fmt.Errorf("read Divvy's library: %w: reinstall Divvy", err)
	}
	if err := slice.WriteFile(filepath.Join(s.Path, driver.Remote), code, 0o755); err != nil {
		return err
	}
	for _, l := range s.Libraries {
		if err := l.copy(s.Path, cmp.Or(s.Runpath, s.Path)); err != nil {
			return err
		}
	}
	if s.UID >= 0 {
		if err := os.Lchown(s.Path, s.UID, -1); err != nil {
			return fmt.Errorf("make the client's folder: %w", err)
		}
	}
	return nil
}

// isUsers reports whether the folder was given to another user than the agent's.
func (s makeClient) isUsers() bool {
	info, err := os.Lstat(s.Path)
	if err != nil || s.UID < 0 || s.UID == os.Geteuid() {
		return false
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(stat.Uid) == s.UID
}

// Undo implements [backend.Step].
func (s makeClient) Undo() error { return makeFolder{Path: s.Path}.Undo() }

func (l clientLibrary) copy(folder, runpath string) error {
	image, err := os.ReadFile(l.Source)
	if err != nil {
		return fmt.Errorf("read Divvy's library: %w: reinstall Divvy", err)
	}
	if l.Driver != "" {
		image, err = slice.ForDriver(image, runpath, l.Driver)
	} else {
		image, err = slice.ForNames(image, runpath, func(name string) bool { return !slices.Contains(l.Lacks, name) })
	}
	if err != nil {
		return fmt.Errorf("copy %s: %w", l.Source, err)
	}
	path, bare := filepath.Join(folder, string(l.Name)), filepath.Join(folder, l.Name.Bare())
	if err := slice.WriteFile(path, image, 0o755); err != nil {
		return err
	}
	if target, err := os.Readlink(bare); err == nil && target == string(l.Name) {
		return nil
	}
	if err := os.Symlink(string(l.Name), bare); err != nil {
		return fmt.Errorf("link: %w", err)
	}
	return nil
}

// makeFolder makes an empty folder and those above it in the tenant's directory.
type makeFolder struct {
	Path string `json:"makeFolder"`
}

// Apply implements [backend.Step].
func (s makeFolder) Apply() error {
	if err := os.MkdirAll(s.Path, 0o755); err != nil {
		return fmt.Errorf("make folder: %w", err)
	}
	if err := os.Chmod(s.Path, 0o755); err != nil { // whatever the umask
		return fmt.Errorf("make folder: %w", err)
	}
	return nil
}

// Undo implements [backend.Step].
func (s makeFolder) Undo() error {
	if err := os.RemoveAll(s.Path); err != nil {
		return fmt.Errorf("remove folder: %w", err)
	}
	return nil
}

// makeEmpty makes an empty file, which is the agent's where UID is 0.
type makeEmpty struct {
	Path string      `json:"makeEmpty"`
	Mode os.FileMode `json:"mode"`
	UID  int         `json:"uid,omitempty"`
}

// Apply implements [backend.Step].
func (s makeEmpty) Apply() error {
	if err := slice.WriteFile(s.Path, nil, s.Mode); err != nil || s.UID == 0 {
		return err
	}
	if err := os.Lchown(s.Path, s.UID, -1); err != nil {
		return fmt.Errorf("make empty file: %w", err)
	}
	return nil
}

// Undo implements [backend.Step].
func (s makeEmpty) Undo() error {
	if err := os.Remove(s.Path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove file: %w", err)
	}
	return nil
}
