package slice

import (
	"fmt"
	"os"
	"sync"
	"syscall"

	"github.com/divvy-gpu/divvy/internal/driver"
	"github.com/divvy-gpu/divvy/internal/edits"
)

// memory spares a backend reading the same large files for every tenant: it
// knows what was made of files that have not changed since. The zero value is
// ready; a nil one remembers nothing.
type memory struct {
	mu     sync.Mutex
	made   map[string]made
	driver *driver.Driver
	// chosen is the identity of the driver's chosen files.
	chosen string
	// mounts are of the driver of that version.
	mounts  []edits.Mount
	version string
}

type made struct{ path, identity string }

// identity changes with a file's content, not with the links to it; "" is no
// file's.
func identity(path string) string {
	info, err := os.Stat(path)
	if err != nil {
		return ""
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return ""
	}
	return fmt.Sprint(path, stat.Dev, stat.Ino, stat.Size, stat.Mtim)
}

// of returns the file that was made of source for a purpose, if neither has
// changed.
func (m *memory) of(source, purpose string) (path string, ok bool) {
	if m == nil {
		return "", false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	known, ok := m.made[purpose+identity(source)]
	return known.path, ok && known.identity == identity(known.path)
}

// note remembers that path was made of source.
func (m *memory) note(source, purpose, path string) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.made == nil {
		m.made = map[string]made{}
	}
	m.made[purpose+identity(source)] = made{path, identity(path)}
}

// find returns the driver as it was found, as long as the libraries that were
// chosen and the kernel module are the same: folders of libraries take long to look through.
func (m *memory) find(finder driver.Finder) (*driver.Driver, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.findLocked(finder)
}

// files returns the driver and what a container needs of its files besides.
func (m *memory) files(finder driver.Finder, version string) (*driver.Driver, []edits.Mount, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	found, err := m.findLocked(finder)
	if err != nil {
		return nil, nil, err
	}
	if m.mounts == nil || m.version != version {
		if m.mounts, err = finder.Files(found, version); err != nil {
			return nil, nil, err
		}
		m.version = version
	}
	return found, m.mounts, nil
}

func (m *memory) findLocked(finder driver.Finder) (*driver.Driver, error) {
	if m.driver != nil && m.chosen == chosenIdentity(m.driver) && (finder.Instance != "" || m.driver.Module == finder.Module()) {
		return m.driver, nil
	}
	found, err := finder.Find()
	if err != nil {
		return nil, err
	}
	m.driver, m.chosen, m.mounts = found, chosenIdentity(found), nil
	return found, nil
}

func chosenIdentity(d *driver.Driver) string {
	text := ""
	for _, library := range driver.Libraries {
		text += identity(d.Chosen[library]) + "\n"
	}
	return text
}
