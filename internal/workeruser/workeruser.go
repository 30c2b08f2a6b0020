// Package workeruser knows which numbers of users are nobody's, so that the worker of a share can have one of its own: of
// two different users neither signals, traces nor reads the other's processes.
package workeruser

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/process"
)

// ErrNone is returned where each user of a range is somebody's.
var ErrNone = errors.New("no user is left for a worker")

// errAccount is returned for a user that somebody was given since.
var errAccount = errors.New("it is an account's by now")

// Pool is a range of numbers that nobody is meant to have.
type Pool struct {
	First, Count int

	next int // where the next search begins, counted from First
	// machine is what is asked; tests have one of their own.
	machine machine
}

// machine tells whose a number is.
type machine interface {
	// present are the users that processes are.
	present() (map[int]bool, error)
	// owners are the users that left something where everybody may: files, and memory of System V.
	owners() map[int]bool
	// lent are the ranges that users may use in user namespaces of theirs, each as the first number and how many.
	lent() [][2]int
	// account reports whether a user or group with that number is known. An error says that it could not be asked.
	account(id int) (bool, error)
}

// New returns a pool that searches from a number that nobody can tell in advance: a number is used again as late as can be,
// by the next agent too.
func New(first, count int) *Pool {
	return &Pool{First: first, Count: count, next: rand.IntN(max(count, 1)), machine: host{}}
}

// Take returns a user of the pool that is nobody's, and none of held. It is for one caller at a time, who holds what was
// taken before the next one asks.
func (p *Pool) Take(held map[int]bool) (uid int, err error) {
	present, err := p.machine.present()
	if err != nil {
		return 0, err
	}
	owners, lent := p.machine.owners(), p.machine.lent()
	theirs := 0
	for i := range p.Count {
		at := (p.next + i) % p.Count
		uid := p.First + at
		switch {
		case held[uid]:
			continue
		case present[uid] || owners[uid] || within(lent, uid):
			theirs++
			continue
		}
		known, err := p.machine.account(uid)
		if err != nil {
			return 0, fmt.Errorf("ask whether user %d is somebody's: %w", uid, err)
		}
		if !known {
			p.next = at + 1
			return uid, nil
		}
		theirs++
	}
	return 0, fmt.Errorf("%w: of users %d to %d workers have %d, and %d are others' or have left processes or files", ErrNone, p.First, p.First+p.Count-1, p.Count-theirs, theirs)
}

func within(ranges [][2]int, uid int) bool {
	for _, r := range ranges {
		if uid >= r[0] && uid-r[0] < r[1] {
			return true
		}
	}
	return false
}

// endPause is the time between two looks whether a user's processes have ended.
const endPause = time.Millisecond

// End kills all processes of a user of any pool, and returns when there are none, or with the error of ctx: one inside the
// driver ends when that returns. A user that has become an account's since is left alone.
func (p *Pool) End(ctx context.Context, uid int) error {
	for {
		left := process.Of(uid)
		if len(left) == 0 {
			return nil
		}
		known, err := p.machine.account(uid)
		if err == nil && known {
			err = errAccount
		}
		if err != nil {
			return fmt.Errorf("end the processes of user %d: %w", uid, err)
		}
		for _, id := range left {
			_ = id.SignalIf(unix.SIGKILL, func(id process.ID) bool { return id.BelongsTo(uid) }) // it may have ended by itself
		}
		select {
		case <-time.After(endPause):
		case <-ctx.Done():
			return fmt.Errorf("end the processes of user %d: %w", uid, ctx.Err())
		}
	}
}

// host is this machine.
type host struct{}

func (host) present() (map[int]bool, error) { return process.UsersPresent() }

// open are folders in which every user may leave files.
var open = []string{"/dev/shm", "/tmp", "/var/tmp", "/dev/mqueue", "/run/lock", "/var/lock"}

// mostFiles bounds what is looked at of each of them.
const mostFiles = 1 << 16

func (host) owners() map[int]bool {
	owners := map[int]bool{}
	for _, folder := range open {
		dir, err := os.Open(folder)
		if err != nil {
			continue
		}
		names, _ := dir.Readdirnames(mostFiles) // what cannot be read holds nobody's files
		_ = dir.Close()
		for _, name := range names {
			var stat unix.Stat_t
			if unix.Lstat(filepath.Join(folder, name), &stat) == nil {
				owners[int(stat.Uid)] = true
			}
		}
	}
	for _, kind := range []string{"shm", "sem", "msg"} {
		text, err := os.ReadFile("/proc/sysvipc/" + kind)
		if err == nil {
			ownersOfIPC(text, owners)
		}
	}
	return owners
}

// ownersOfIPC reads the columns of users in a table of /proc/sysvipc (sysvipc(7)).
func ownersOfIPC(table []byte, owners map[int]bool) {
	var columns []int
	for line := range bytes.Lines(table) {
		fields := strings.Fields(string(line))
		if columns == nil {
			columns = []int{}
			for i, name := range fields {
				if name == "uid" || name == "cuid" {
					columns = append(columns, i)
				}
			}
			continue
		}
		for _, column := range columns {
			if column >= len(fields) {
				continue
			}
			if uid, err := strconv.Atoi(fields[column]); err == nil {
				owners[uid] = true
			}
		}
	}
}

// lent reads who may use which numbers in user namespaces (subuid(5), subgid(5)).
func (host) lent() (ranges [][2]int) {
	for _, path := range []string{"/etc/subuid", "/etc/subgid"} {
		if text, err := os.ReadFile(path); err == nil {
			ranges = append(ranges, parseLent(text)...)
		}
	}
	return ranges
}

func parseLent(text []byte) (ranges [][2]int) {
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		fields := strings.Split(lines.Text(), ":")
		if len(fields) != 3 {
			continue
		}
		first, err := strconv.Atoi(strings.TrimSpace(fields[1]))
		count, countErr := strconv.Atoi(strings.TrimSpace(fields[2]))
		if err == nil && countErr == nil {
			ranges = append(ranges, [2]int{first, count})
		}
	}
	return ranges
}

// account also asks the machine's directory services.
func (host) account(id int) (bool, error) {
	number := strconv.Itoa(id)
	_, err := user.LookupId(number)
	var unknown user.UnknownUserIdError
	if err == nil || !errors.As(err, &unknown) {
		return err == nil, err
	}
	_, err = user.LookupGroupId(number)
	var unknownGroup user.UnknownGroupIdError
	if err == nil || !errors.As(err, &unknownGroup) {
		return err == nil, err
	}
	return false, nil
}
