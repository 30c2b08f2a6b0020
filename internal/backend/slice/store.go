package slice

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/divvy-gpu/divvy/internal/install"
)

// installProgram puts a program of ours where the host finds it. It stays, as
// all containers use it.
type installProgram struct {
	Source string `json:"installProgram"`
	Path   string `json:"path"`
	memory *memory
}

func (s installProgram) Apply() error {
	if path, ok := s.memory.of(s.Source, "program"); ok && path == s.Path {
		return nil
	}
	image, err := os.ReadFile(s.Source)
	if err != nil {
		return fmt.Errorf("read Divvy's program: %w: reinstall Divvy", err)
	}
	if present, err := os.ReadFile(s.Path); err != nil || !bytes.Equal(present, image) {
		if err := WriteFile(s.Path, image, 0o755); err != nil {
			return err
		}
	}
	s.memory.note(s.Source, "program", s.Path)
	return nil
}

// InstallCover puts the program that limits containers beside the places for tenants, as the backend does for its own, and returns its
// path.
func InstallCover(tree install.Tree, tenants string) (string, error) {
	path := filepath.Join(filepath.Dir(tenants), coverProgram)
	return path, installProgram{Source: tree.Program(coverProgram), Path: path}.Apply()
}

func (s installProgram) Undo() error { return nil }

// linkLibrary gives a container a library of ours. All containers look for the
// driver's in the same place, so that one copy in the store does for all: a
// node's memory holds it once.
type linkLibrary struct {
	Source  string `json:"linkLibrary"`
	Store   string `json:"store"`
	Path    string `json:"path"`
	Runpath string `json:"runpath"`
	Driver  string `json:"driver"`
	memory  *memory
}

func (s linkLibrary) Apply() error {
	if stored, ok := s.memory.of(s.Source, s.purpose()); ok {
		return s.link(stored)
	}
	image, err := os.ReadFile(s.Source)
	if err != nil {
		return fmt.Errorf("read Divvy's library: %w: reinstall Divvy", err)
	}
	patched, err := ForDriver(image, s.Runpath, s.Driver)
	if err != nil {
		return fmt.Errorf("copy %s: %w", s.Source, err)
	}
	stored, err := s.keep(patched)
	if err != nil {
		return err
	}
	if err := s.link(stored); err != nil {
		return err
	}
	s.memory.note(s.Source, s.purpose(), stored)
	return nil
}

// purpose is all that a stored library depends on besides its source.
func (s linkLibrary) purpose() string {
	return s.Store + s.Runpath + identity(s.Driver)
}

func (s linkLibrary) Undo() error {
	return remove(s.Path)
}

// keep puts the library into the store under a name that tells its content, and
// takes away those of an earlier Divvy that nobody has any more.
func (s linkLibrary) keep(image []byte) (path string, err error) {
	if err := os.MkdirAll(s.Store, 0o755); err != nil {
		return "", fmt.Errorf("make store of libraries: %w", err)
	}
	digest := sha256.Sum256(image)
	path = filepath.Join(s.Store, hex.EncodeToString(digest[:8])+"-"+filepath.Base(s.Path))
	if present, err := os.ReadFile(path); err == nil && bytes.Equal(present, image) {
		return path, nil
	}
	if err := WriteFile(path, image, 0o755); err != nil {
		return "", err
	}
	return path, s.prune(path)
}

func (s linkLibrary) prune(keep string) error {
	entries, err := os.ReadDir(s.Store)
	if err != nil {
		return fmt.Errorf("look into the store of libraries: %w", err)
	}
	for _, entry := range entries {
		path := filepath.Join(s.Store, entry.Name())
		if path == keep || !strings.HasSuffix(entry.Name(), "-"+filepath.Base(s.Path)) {
			continue
		}
		info, err := entry.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("look into the store of libraries: %w", err)
		}
		if stat, ok := info.Sys().(*syscall.Stat_t); ok && stat.Nlink == 1 {
			if err := remove(path); err != nil {
				return err
			}
		}
	}
	return nil
}

// link makes the tenant's name of the stored library.
func (s linkLibrary) link(stored string) error {
	wanted, err := os.Lstat(stored)
	if err != nil {
		return fmt.Errorf("link library: %w", err)
	}
	if present, err := os.Lstat(s.Path); err == nil && os.SameFile(wanted, present) {
		return nil
	}
	temporary := s.Path + ".new"
	if err := remove(temporary); err != nil {
		return err
	}
	if err := os.Link(stored, temporary); err != nil {
		return fmt.Errorf("link library: %w", err)
	}
	if err := os.Rename(temporary, s.Path); err != nil {
		return errors.Join(fmt.Errorf("link library: %w", err), remove(temporary))
	}
	return nil
}
