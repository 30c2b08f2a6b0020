package identity

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// file is one that is to be written.
type file struct {
	name    string
	content []byte
	mode    os.FileMode
}

// create writes a file that must not be there.
func (f file) create(dir string) error {
	return WriteNew(filepath.Join(dir, f.name), f.content, f.mode)
}

// replace writes a file, in place of one that may be there.
func (f file) replace(dir string) error {
	path := filepath.Join(dir, f.name)
	draft, err := writeDraft(path, f.content, f.mode)
	if err != nil {
		return err
	}
	if err := os.Rename(draft, path); err != nil {
		return errors.Join(fmt.Errorf("write %s: %w", path, err), os.Remove(draft))
	}
	return syncDir(filepath.Dir(path))
}

// Replace writes a file whole, in place of one that may be there: a reader sees the old or the new one.
func Replace(path string, content []byte, mode os.FileMode) error {
	return file{filepath.Base(path), content, mode}.replace(filepath.Dir(path))
}

// WriteNew writes a file whole or not at all. One that is there is [ErrExists].
func WriteNew(path string, content []byte, mode os.FileMode) error {
	draft, err := writeDraft(path, content, mode)
	if err != nil {
		return err
	}
	err = os.Link(draft, path) // unlike rename(2) it replaces nothing
	if errors.Is(err, fs.ErrExist) {
		err = fmt.Errorf("%s %w", path, ErrExists)
	} else if err != nil {
		err = fmt.Errorf("write %s: %w", path, err)
	}
	return errors.Join(err, os.Remove(draft), syncDir(filepath.Dir(path)))
}

// writeDraft writes what is to become a file beside it.
func writeDraft(path string, content []byte, mode os.FileMode) (string, error) {
	draft, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return "", fmt.Errorf("write %s: %w", path, err)
	}
	_, err = draft.Write(content)
	err = errors.Join(err, draft.Chmod(mode), draft.Sync(), draft.Close())
	if err != nil {
		return "", errors.Join(fmt.Errorf("write %s: %w", path, err), os.Remove(draft.Name()))
	}
	return draft.Name(), nil
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("write %s: %w", dir, err)
	}
	return errors.Join(d.Sync(), d.Close())
}

// readFile reads a file; of one that is secret it checks that only who may can read it.
func readFile(path string, secret bool) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("read %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("read %w", err)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("read %s: %w: it is no file", path, ErrInvalid)
	}
	if secret {
		if err := private(path, info); err != nil {
			return nil, err
		}
	}
	content, err := io.ReadAll(io.LimitReader(f, mostBytes+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read %s: %w", path, err)
	case len(content) > mostBytes:
		return nil, fmt.Errorf("read %s: %w: larger than %d bytes", path, ErrInvalid, mostBytes)
	}
	return content, nil
}

// private returns why a file is no place for a private key, nil if it is one. Root may let a group read it.
func private(path string, info fs.FileInfo) error {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return fmt.Errorf("%s: %w: the system does not tell its owner", path, ErrOpen)
	}
	allowed := os.FileMode(0o700)
	if stat.Uid == 0 {
		allowed |= 0o040
	}
	if open := info.Mode().Perm() &^ allowed; open != 0 {
		return fmt.Errorf("%s: %w: its mode is %04o: run `chmod 600 %s`, and have a new one made if somebody may have read it", path, ErrOpen, info.Mode().Perm(), path)
	}
	if stat.Uid != 0 && int(stat.Uid) != os.Getuid() {
		return fmt.Errorf("%s: %w: it belongs to user %d: use a copy of your own", path, ErrOpen, stat.Uid)
	}
	return nil
}
