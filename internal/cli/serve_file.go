package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/process"
	"github.com/divvy-gpu/divvy/internal/servefile"
)

// serveFile is a server's file, which is read again when it changes.
type serveFile struct {
	path  string
	users servefile.Users
	// content and fault are what was read last, and what was wrong with reading it.
	content []byte
	fault   string

	asked chan struct{} // has something when somebody asks for a look
	ended chan struct{} // closed when nobody looks any more
	mu    sync.Mutex    // guards the rest
	next  chan struct{} // closed after the next look; nil where nobody waits for it
}

func newServeFile(path string, users servefile.Users) *serveFile {
	return &serveFile{path: path, users: users, asked: make(chan struct{}, 1), ended: make(chan struct{})}
}

// read reads the file, which nobody but root or its user may be able to change: it says who may run what.
func (f *serveFile) read() (*servefile.File, error) {
	file, err := os.OpenFile(f.path, os.O_RDONLY|unix.O_NONBLOCK, 0) // a pipe holds nobody up
	if err != nil {
		return nil, fmt.Errorf("read the file of the server: %w: put it back, or have `divvy serve init --renew` make one without clients", err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, fmt.Errorf("read the file of the server: %w", err)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", f.path)
	}
	folder, err := os.Stat(filepath.Dir(f.path)) // who can write there can put an older file in its place
	if err != nil {
		return nil, fmt.Errorf("read the file of the server: %w", err)
	}
	if err := errors.Join(onlyOurs(f.path, info), onlyOurs(filepath.Dir(f.path), folder)); err != nil {
		return nil, err
	}
	content, err := io.ReadAll(io.LimitReader(file, servefile.MaxBytes+1))
	if err != nil {
		return nil, fmt.Errorf("read the file of the server: %w", err)
	}
	f.content = content
	return servefile.Parse(f.path, content, f.users)
}

// rootText warns of a client that is root here, empty for any other one.
func rootText(c servefile.Client) string {
	local, err := user.Lookup(c.User)
	switch {
	case c.User == "" || err != nil || local.Uid != "0":
		return ""
	case c.Commands:
		return "client " + c.Name + " is root on this machine: its commands can do anything here, and no limits of agent.yaml count for it: give it another user if it need not"
	}
	return "client " + c.Name + " is root on this machine, for whom no limits of agent.yaml count: give it another user if it need not be"
}

// warnOf logs what is risky in a file.
func warnOf(ctx context.Context, log *slog.Logger, file *servefile.File) {
	for _, name := range slices.Sorted(maps.Keys(file.Clients)) {
		if text := rootText(file.Clients[name]); text != "" {
			log.WarnContext(ctx, text)
		}
	}
}

// onlyOurs returns why somebody else could change a file or a directory.
func onlyOurs(path string, info fs.FileInfo) error {
	stat, ok := info.Sys().(*syscall.Stat_t)
	switch {
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

// lookPause is between two looks at the file for which nobody asks, and askPause between any two: so clients that the file does
// not have cause few looks, however many connect.
const (
	lookPause = time.Second
	askPause  = 250 * time.Millisecond
)

// Look returns after a look at the file that began after the call, and when nobody follows the file any more.
func (f *serveFile) Look() {
	f.mu.Lock()
	if f.next == nil {
		f.next = make(chan struct{})
	}
	next := f.next
	f.mu.Unlock()
	select {
	case f.asked <- struct{}{}:
	default: // somebody else has asked
	}
	select {
	case <-next:
	case <-f.ended:
	}
}

// follow has changes of the file count until the context is done. A faulty file changes nothing.
func (f *serveFile) follow(ctx context.Context, log *slog.Logger, replace func(*servefile.File)) {
	defer close(f.ended)
	ticker := time.NewTicker(lookPause)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-f.asked:
		case <-ctx.Done():
			return
		}
		f.look(ctx, log, replace)
		select {
		case <-time.After(askPause):
		case <-ctx.Done():
			return
		}
	}
}

// look reads the file, and has it count if it has changed.
func (f *serveFile) look(ctx context.Context, log *slog.Logger, replace func(*servefile.File)) {
	f.mu.Lock()
	waiting := f.next
	f.next = nil
	f.mu.Unlock()
	if waiting != nil {
		defer close(waiting)
	}
	before := f.content
	file, err := f.read()
	switch {
	case err != nil:
		if text := err.Error(); text != f.fault {
			f.fault = text
			log.ErrorContext(ctx, "the file of the server cannot be read: what it said before counts", "error", err)
		}
	case !bytes.Equal(before, f.content) || f.fault != "":
		f.fault = ""
		log.InfoContext(ctx, "the file of the server has changed", "clients", len(file.Clients))
		replace(file)
	}
}
