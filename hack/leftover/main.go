// Command leftover runs a command and fails if the command leaves processes running.
//
// It becomes the subreaper of everything that the command starts: an orphan becomes its child, whatever session,
// environment or namespace it has. After the command has ended, every process below this one was left by it. Other
// processes of the machine do not matter. What is left is named, killed and waited for.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

func main() {
	grace := flag.Duration("grace", time.Minute, "how long processes may take to end after the command")
	flag.Parse()
	if flag.NArg() == 0 {
		fmt.Fprintln(os.Stderr, "usage: leftover [-grace TIME] COMMAND [ARGUMENT...]")
		os.Exit(2)
	}
	status, err := run(flag.Args(), *grace)
	if err != nil {
		fmt.Fprintln(os.Stderr, "leftover:", err)
		status = max(status, 1)
	}
	os.Exit(status)
}

func run(args []string, grace time.Duration) (status int, err error) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return 1, fmt.Errorf("become the subreaper: %w", err)
	}
	program, err := exec.LookPath(args[0])
	if err != nil {
		return 1, fmt.Errorf("find %s: %w", args[0], err)
	}
	started, err := os.StartProcess(program, args, &os.ProcAttr{Files: []*os.File{os.Stdin, os.Stdout, os.Stderr}})
	if err != nil {
		return 1, fmt.Errorf("start %s: %w", args[0], err)
	}
	if status, err = waitFor(started.Pid); err != nil {
		return 1, err
	}
	left := remaining(time.Now().Add(grace))
	if len(left) == 0 {
		return status, nil
	}
	names := describe(left)
	kill()
	return status, fmt.Errorf("%s left %d processes running, which are killed now:\n%s", args[0], len(left), names)
}

// waitFor collects every child that ends, until it is the one with that number. It returns that one's exit status.
func waitFor(pid int) (int, error) {
	for {
		var status unix.WaitStatus
		ended, err := unix.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return 1, fmt.Errorf("wait for the command: %w", err)
		case ended == pid && status.Signaled():
			return 128 + int(status.Signal()), nil
		case ended == pid:
			return status.ExitStatus(), nil
		}
	}
}

// remaining waits until no descendant is left, or until the end, and returns those left.
func remaining(end time.Time) []int {
	for {
		collect()
		left := descendants(os.Getpid())
		if len(left) == 0 || time.Now().After(end) {
			return left
		}
		time.Sleep(100 * time.Millisecond) //nolint:forbidigo // nothing tells of the end of a process that is no child
	}
}

// collect takes the exit statuses of children that have ended.
func collect() {
	for {
		ended, err := unix.Wait4(-1, nil, unix.WNOHANG, nil)
		if ended <= 0 && !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// kill ends all descendants. A killed process leaves its children to this one, so it goes round until none is left.
func kill() {
	for range 3000 {
		left := descendants(os.Getpid())
		if len(left) == 0 {
			return
		}
		for _, pid := range left {
			_ = unix.Kill(pid, unix.SIGKILL) // it may have ended by now
		}
		time.Sleep(10 * time.Millisecond) //nolint:forbidigo // as above
		collect()
	}
}

// descendants are the processes below one, by /proc.
func descendants(of int) []int {
	children := map[int][]int{}
	stats, _ := filepath.Glob("/proc/[0-9]*/stat") // the pattern is well formed
	for _, path := range stats {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		// The second field is the name in brackets and may itself hold spaces and brackets.
		end := strings.LastIndexByte(string(text), ')')
		fields := strings.Fields(string(text[end+1:]))
		if len(fields) < 2 {
			continue
		}
		parent, _ := strconv.Atoi(fields[1])
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		children[parent] = append(children[parent], pid)
	}
	var all []int
	for next := children[of]; len(next) > 0; {
		pid := next[0]
		all = append(all, pid)
		next = append(next[1:], children[pid]...)
	}
	slices.Sort(all)
	return all
}

func describe(pids []int) string {
	var lines []string
	for _, pid := range pids {
		command, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		folder, _ := os.Readlink(fmt.Sprintf("/proc/%d/cwd", pid))
		words := strings.TrimSpace(strings.ReplaceAll(string(command), "\x00", " "))
		lines = append(lines, fmt.Sprintf("  %d: %s (in %s)", pid, words, folder))
	}
	return strings.Join(lines, "\n")
}
