package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"time"

	"github.com/divvy-gpu/divvy/internal/process"

	"github.com/divvy-gpu/divvy/test/multiuser"
)

// stopped is the state of a process that got SIGSTOP (proc_pid_stat(5)).
const stopped = 'T'

// stateOf is the state of a process, 0 if there is none.
func stateOf(pid int) byte {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	_, rest, found := bytes.Cut(text[bytes.LastIndexByte(text, ')')+1:], []byte(" "))
	if !found || len(rest) == 0 {
		return 0
	}
	return rest[0]
}

// processes are the living ones of a user on the server.
func (s *server) processes(user string) (pids []int) {
	for _, id := range process.Of(multiuser.UID(user)) {
		if s.Has(id.PID) {
			pids = append(pids, id.PID)
		}
	}
	return pids
}

// untilStopped is the time from the moment at which the program passed its limit until
// all processes of the share were stopped. The program's own must be one of them.
func (a *attacker) untilStopped(ctx context.Context, share func() []int) float64 {
	for begin := time.Now(); time.Since(begin).Seconds() < never; {
		if stateOf(a.pid) == stopped && allStopped(share()) {
			return time.Since(time.Unix(0, a.passed)).Seconds()
		}
		if !pause(ctx, 2*time.Millisecond) {
			break
		}
	}
	return never
}

// allStopped passes over those that ended meanwhile.
func allStopped(pids []int) bool {
	for _, pid := range pids {
		if state := stateOf(pid); state != stopped && state != 0 && state != 'Z' && state != 'X' {
			return false
		}
	}
	return len(pids) > 0
}
