package process

import (
	"bytes"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// Ending reports whether the process has ended or can only end: the kernel gives back what it had, one thing after the other, and
// the process does nothing by itself.
func (id ID) Ending() bool {
	if !id.Alive() {
		return true
	}
	tasks := "/proc/" + strconv.Itoa(id.PID) + "/task"
	entries, err := os.ReadDir(tasks)
	for _, entry := range entries {
		if !threadEnding(id.PID, entry.Name()) {
			return false
		}
	}
	return err == nil || !id.Alive()
}

// threadEnding reports whether a thread has begun to end, or will before it runs again.
func threadEnding(pid int, thread string) bool {
	var data [statSize]byte
	text, gone := beginningOf(pid, "task/"+thread+"/stat", data[:])
	if gone != nil {
		return true
	}
	if s, err := parse(text); err == nil && s.exiting {
		return true
	}
	// The first thread of a process that ends has the kernel kill the others.
	status, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/task/" + thread + "/status")
	return err != nil || pending(status, "SigPnd") || pending(status, "ShdPnd")
}

// pending reports whether SIGKILL is among the signals of a line of a status (proc_pid_status(5)).
func pending(status []byte, line string) bool {
	_, rest, _ := bytes.Cut(status, []byte("\n"+line+":\t"))
	mask, _, _ := bytes.Cut(rest, []byte("\n"))
	signals, err := strconv.ParseUint(string(mask), 16, 64)
	return err == nil && signals&(1<<(unix.SIGKILL-1)) != 0
}
