package command

import (
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/process"
	"github.com/divvy-gpu/divvy/internal/remote/wire"
)

// ErrDirectory is returned for a directory that is not the same on both hosts.
var ErrDirectory = errors.New("the directory is not the same on both hosts")

// proofName begins the name of the file by which a server knows a directory.
const proofName = ".divvy-run-"

// network are the types of file systems whose source means the same on every host that mounts them.
var network = []string{"nfs", "nfs4", "cifs", "smb3", "lustre", "ceph", "beegfs", "gpfs", "9p", "afs", "orangefs", "pvfs2"}

// Here describes the current directory for a server. forget removes what was made in it for that; it may be called at once
// when the server has answered.
func Here() (d wire.Directory, forget func(), err error) {
	path, err := os.Getwd()
	if err != nil {
		return d, nil, fmt.Errorf("find the current directory: %w", err)
	}
	d = wire.Directory{Path: wire.ExactText(path)}
	proof := filepath.Join(path, proofName+rand.Text())
	secret := rand.Text()
	err = os.WriteFile(proof, []byte(secret), 0o644) // readable, because users may have another number on the file server
	switch {
	case err == nil:
		d.Proof, d.Secret = filepath.Base(proof), secret
		return d, func() { _ = os.Remove(proof) }, nil
	case !errors.Is(err, fs.ErrPermission) && !errors.Is(err, unix.EROFS):
		_ = os.Remove(proof) // which may be there without its content
		return d, nil, fmt.Errorf("make the file by which the other host knows the directory: %w", err)
	}
	source, kind, inode, err := mounted(path)
	if err != nil {
		return d, nil, err
	}
	d.Source, d.Type, d.Inode = wire.ExactText(source), kind, inode
	if !slices.Contains(network, d.Type) {
		return d, nil, fmt.Errorf("%w: you cannot write to %s, and its file system (%s) is this host's alone", ErrDirectory, path, d.Type)
	}
	return d, func() {}, nil
}

// mounted tells of the mount of a directory, and its inode's number.
func mounted(path string) (source, kind string, inode uint64, err error) {
	on, err := process.FileSystemOf(path)
	if err != nil {
		return "", "", 0, err
	}
	var stat unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, path, unix.AT_STATX_FORCE_SYNC, unix.STATX_INO, &stat); err != nil {
		return "", "", 0, fmt.Errorf("look at %s: %w", path, err)
	}
	return on.Source, on.Type, stat.Ino, nil
}

// Enter makes the directory of a client this process's own, if it is the same one.
func Enter(d wire.Directory) error {
	path := string(d.Path)
	if !filepath.IsAbs(path) || strings.ContainsRune(path, 0) {
		return fmt.Errorf("%w: %q is no path", ErrDirectory, path)
	}
	if err := os.Chdir(path); err != nil {
		return fmt.Errorf("%w: %w: use one that both have from the same file server", ErrDirectory, err)
	}
	if d.Proof != "" {
		return prove(d)
	}
	source, kind, inode, err := mounted(path)
	if err != nil {
		return err
	}
	if source != string(d.Source) || kind != d.Type || inode != d.Inode || !slices.Contains(network, kind) {
		return fmt.Errorf("%w: %s is on %s (%s) there and on %s (%s) here", ErrDirectory, path, d.Source, d.Type, source, kind)
	}
	return nil
}

// prove looks for the client's file in the current directory.
func prove(d wire.Directory) error {
	if d.Proof != filepath.Base(d.Proof) || !strings.HasPrefix(d.Proof, proofName) || len(d.Secret) < 16 {
		return fmt.Errorf("%w: %q is no name of a proof", ErrDirectory, d.Proof)
	}
	// Nothing else than a plain file of the directory is opened, and none that could make this process wait.
	file, err := os.OpenFile(d.Proof, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return fmt.Errorf("%w: %s has other files there than here: use one that both have from the same file server", ErrDirectory, d.Path)
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, int64(len(d.Secret)+1)))
	if err != nil || subtle.ConstantTimeCompare(text, []byte(d.Secret)) != 1 {
		return fmt.Errorf("%w: %s has another file %s here", ErrDirectory, d.Path, d.Proof)
	}
	return nil
}
