package relay

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/backend/slice"
	"github.com/divvy-gpu/divvy/internal/checkpoint"
	"github.com/divvy-gpu/divvy/internal/process"
	"github.com/divvy-gpu/divvy/internal/rundir"
)

// State is what has become of a share.
type State string

// The states.
const (
	// StateReady waits for the first process to use a GPU, which takes the share.
	StateReady State = "ready"
	// StateTaken has a share.
	StateTaken State = "taken"
	// StateEnded has had one, and its command still runs.
	StateEnded State = "ended"
	// StateUnknown is a share whose record cannot be read.
	StateUnknown State = "unknown"
)

// Record is what a relay tells lists of its share.
type Record struct {
	Name  string `json:"name"`
	State State  `json:"state"`
	// Hosts are those that were named, and Host is that on which the share is or was.
	Hosts []string `json:"hosts"`
	Host  string   `json:"host,omitempty"`
	// Share is its name in the host's lists.
	Share string `json:"share,omitempty"`
	GPUs  []GPU  `json:"gpus,omitempty"`
	// Memory is in bytes and Cores in percent, of each GPU.
	Memory uint64 `json:"memory,omitempty"`
	Cores  int    `json:"cores,omitempty"`
	// Since is when it was taken, or when the command began where it was not.
	Since time.Time `json:"since"`
	// Ended is when it ended, and Why says why.
	Ended *time.Time `json:"ended,omitempty"`
	Why   string     `json:"why,omitempty"`
	// Command runs in the process Process, and Processes are those that use a GPU.
	Command   []string   `json:"command,omitempty"`
	Process   process.ID `json:"process"`
	Processes []int      `json:"processes,omitempty"`
}

// GPU is one of another host.
type GPU struct {
	UUID  string `json:"uuid"`
	Index int    `json:"index"`
	Model string `json:"model,omitempty"`
}

// Names in the folder of a share, and that of all of them.
const (
	// RecordName is the folder in which a share's relay keeps what it tells.
	RecordName = "record"
	// PlaceName is the folder of shares' folders in a run directory.
	PlaceName = "remote"

	recordFile = "share.json"
	lockName   = "lock"
)

// RecordFolder is the folder of what the relay of a share tells.
func RecordFolder(dir string) string { return filepath.Join(dir, RecordName) }

func recordOf(dir string) *checkpoint.File[Record] {
	return checkpoint.NewFile[Record](filepath.Join(RecordFolder(dir), recordFile), "remote share", 1)
}

// Places are the directories in which a user's shares on other hosts have their folders, the usual one first; the others
// are for a machine where nothing may be executed there.
func Places() []string {
	usual := filepath.Join(rundir.Own(), PlaceName)
	if os.Getenv(rundir.Variable) != "" {
		return []string{usual}
	}
	places := []string{usual}
	for _, tenants := range rundir.TenantsOf(os.Getuid())[1:] {
		places = append(places, filepath.Join(filepath.Dir(tenants), PlaceName))
	}
	return places
}

// Place makes the directory for the folders of this user's shares.
func Place() (string, error) {
	var faults []error
	for _, dir := range Places() {
		err := rundir.MakeBelow(dir, 0o700)
		if err == nil {
			dir, err = filepath.EvalSymlinks(dir)
		}
		if err == nil {
			if dir, err = slice.ChoosePlace([]string{dir}); err == nil {
				return dir, nil
			}
		}
		faults = append(faults, err)
	}
	return "", errors.Join(faults...)
}

// Listed is a share as lists show it.
type Listed struct {
	Record
	// Dir is its folder.
	Dir string `json:"-"`
}

// lost is what is said of a share whose relay has ended before its command.
const lost = "the process that kept its connection has ended"

// List returns the shares in a directory, in the order of their folders. Of one whose record cannot be read it says so.
func List(place string) ([]Listed, error) {
	entries, err := os.ReadDir(place)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) { // in another's place there is none of this user's
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list shares on other hosts: %w", err)
	}
	var all []Listed
	for _, entry := range entries {
		dir := filepath.Join(place, entry.Name())
		r, err := recordOf(dir).Load()
		switch {
		case err != nil:
			r = Record{Name: entry.Name(), State: StateUnknown, Why: err.Error()}
		case r.Process.PID == 0: // it is being made, or taken away
			continue
		case r.State != StateEnded && isFree(dir):
			r.State, r.Why, r.Processes = StateEnded, lost, nil
		}
		all = append(all, Listed{r, dir})
	}
	return all, nil
}

// Lock makes the lock of a share's folder and takes it. Who has the file, or inherits it, has the lock.
func Lock(dir string) (*os.File, error) {
	file, err := os.OpenFile(filepath.Join(RecordFolder(dir), lockName), os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err == nil {
		err = unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	}
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", dir, err)
	}
	return file, nil
}

// Locked reports whether a relay has the lock of a share's folder. Known is false where there is no lock that can be read.
func Locked(dir string) (locked, known bool) {
	file, err := os.OpenFile(filepath.Join(RecordFolder(dir), lockName), os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return false, false
	}
	defer file.Close()
	return unix.Flock(int(file.Fd()), unix.LOCK_SH|unix.LOCK_NB) != nil, true
}

// isFree reports whether nobody has the lock of a share's folder.
func isFree(dir string) bool {
	locked, known := Locked(dir)
	return known && !locked
}

// ReadRecord reads what the relay of a share tells; it is empty where it tells nothing yet.
func ReadRecord(dir string) (Record, error) { return recordOf(dir).Load() }

// Sweep removes the folders of shares whose relay was killed and whose command has ended. A folder without a record is left
// until it is old: it is being made.
func Sweep(place string, now time.Time) error {
	const old = time.Minute
	entries, err := os.ReadDir(place)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove folders of shares: %w", err)
	}
	var faults []error
	for _, entry := range entries {
		dir := filepath.Join(place, entry.Name())
		info, err := entry.Info()
		r, unread := recordOf(dir).Load()
		dead := unread == nil && r.Process.PID != 0 && !r.Process.Alive() && isFree(dir)
		aged := unread == nil && r.Process.PID == 0 && err == nil && now.Sub(info.ModTime()) > old
		if dead || aged && !strings.HasPrefix(entry.Name(), ".") {
			faults = append(faults, os.RemoveAll(dir))
		}
	}
	return errors.Join(faults...)
}
