package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/process"
	"github.com/divvy-gpu/divvy/internal/servefile"
)

// serveFileName is the server's file in its directory, beside its certificates.
const serveFileName = "serve.yaml"

// serveFolder is the directory of the server that root runs.
const serveFolder = "/etc/divvy/serve"

// addServeDir adds the flag of the directory with the server's file and certificates.
func addServeDir(command *cobra.Command, dir *string) {
	command.Flags().Var(&word{"DIR", dir}, "dir", "directory of the server's file and certificates (default: "+serveFolder+", of a user ~/.config/divvy/serve)")
}

// serveDir is the directory that a flag names, or the usual one.
func serveDir(named string) (string, error) {
	if named != "" {
		return filepath.Abs(named)
	}
	if os.Getuid() == 0 {
		return serveFolder, nil
	}
	config, err := os.UserConfigDir()
	if err != nil {
		return "", fmt.Errorf("find the directory of the server: %w: give --dir", err)
	}
	return filepath.Join(config, "divvy", "serve"), nil
}

// serveUsers looks up the users that a server's file names; nil for a server that runs as a user.
func serveUsers() servefile.Users {
	if os.Getuid() != 0 {
		return nil
	}
	return func(name string) error {
		_, err := user.Lookup(name)
		var unknown user.UnknownUserError
		if errors.As(err, &unknown) {
			return fmt.Errorf("there is no user %q", name)
		}
		return err
	}
}

// readServeFile reads the server's file, which nobody but root or its user may be able to change: it says who may run what.
func readServeFile(dir string) (content []byte, parsed *servefile.File, err error) {
	path := filepath.Join(dir, serveFileName)
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0) // a pipe holds nobody up
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, fmt.Errorf("there is no %s: run `divvy serve init` first", path)
	} else if err != nil {
		return nil, nil, fmt.Errorf("read the server's file: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, nil, fmt.Errorf("read the server's file: %w", err)
	}
	if err := onlyOurs(path, info); err != nil {
		return nil, nil, err
	}
	if content, err = io.ReadAll(io.LimitReader(f, servefile.MaxBytes+1)); err != nil {
		return nil, nil, fmt.Errorf("read the server's file: %w", err)
	}
	parsed, err = servefile.Parse(path, content, serveUsers())
	return content, parsed, err
}

// onlyOurs returns why somebody else could change a file.
func onlyOurs(path string, info fs.FileInfo) error {
	stat, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s is not a regular file", path)
	case !ok:
		return fmt.Errorf("the system does not tell whose %s is", path)
	case stat.Uid != 0 && int(stat.Uid) != os.Geteuid():
		return fmt.Errorf("%s belongs to user %s, who could change it: run chown on it", path, process.UserName(int(stat.Uid)))
	case info.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("others can write to %s: run chmod go-w %s", path, path)
	}
	return nil
}

// lockServe keeps other commands from changing a server's files until the returned function is called.
func lockServe(dir string) (unlock func(), err error) {
	f, err := os.Open(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("there is no %s: run `divvy serve init` first", dir)
	} else if err != nil {
		return nil, fmt.Errorf("open the server's directory: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		return nil, errors.Join(fmt.Errorf("lock the server's directory: %w", err), f.Close())
	}
	return func() { _ = f.Close() }, nil // closing lets go of the lock
}
