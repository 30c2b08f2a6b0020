package simulated

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// clockTick is the unit of /proc/PID/stat (USER_HZ).
const clockTick = 10 * time.Millisecond

// Spent is what a process has used of processors in user and kernel mode, in steps of 10 ms.
func Spent(pid int) (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, fmt.Errorf("read the processor time of process %d: %w", pid, err)
	}
	// After the name in brackets: state is field 3, utime 14 and stime 15 (proc(5)).
	fields := strings.Fields(string(text[slices.Index(text, ')')+1:]))
	sum := 0
	for _, field := range fields[11:13] {
		ticks, err := strconv.Atoi(field)
		if err != nil {
			return 0, fmt.Errorf("read the processor time of process %d: %w", pid, err)
		}
		sum += ticks
	}
	return time.Duration(sum) * clockTick, nil
}

// SpentByAgent is what an agent and the helpers that ask the driver for it have used, in steps of 10 ms.
func SpentByAgent(pid int) (time.Duration, error) {
	family, err := withHelpers(pid)
	if err != nil {
		return 0, err
	}
	var sum time.Duration
	for _, pid := range family {
		one, err := Spent(pid)
		if err != nil {
			return 0, err
		}
		sum += one
	}
	return sum, nil
}

// Memory is what processes have in memory, in bytes.
type Memory struct {
	// Resident counts what several of them have in common for each (Rss), Proportional once among all processes that have it,
	// also others (Pss).
	Resident, Proportional uint64
}

// MemoryOfAgent is that of an agent and of the helpers that ask the driver for it.
func MemoryOfAgent(pid int) (sum Memory, err error) {
	family, err := withHelpers(pid)
	if err != nil {
		return sum, err
	}
	for _, pid := range family {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
		if err != nil {
			return sum, fmt.Errorf("read the memory of process %d: %w", pid, err)
		}
		for line := range strings.Lines(string(text)) {
			for name, of := range map[string]*uint64{"Rss:": &sum.Resident, "Pss:": &sum.Proportional} {
				if fields := strings.Fields(line); len(fields) == 3 && fields[0] == name {
					kib, err := strconv.ParseUint(fields[1], 10, 64)
					if err != nil {
						return sum, fmt.Errorf("read the memory of process %d: %w", pid, err)
					}
					*of += kib << 10
				}
			}
		}
	}
	return sum, nil
}

// withHelpers are an agent and its children.
func withHelpers(pid int) ([]int, error) {
	lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil {
		return nil, fmt.Errorf("look for the agent's helpers: %w", err)
	}
	family := []int{pid}
	for _, list := range lists {
		text, err := os.ReadFile(list)
		if errors.Is(err, os.ErrNotExist) {
			continue // a thread that ended meanwhile has no children
		}
		if err != nil {
			return nil, fmt.Errorf("look for the agent's helpers: %w", err)
		}
		for child := range strings.FieldsSeq(string(text)) {
			number, err := strconv.Atoi(child)
			if err != nil {
				return nil, fmt.Errorf("look for the agent's helpers: %w", err)
			}
			family = append(family, number)
		}
	}
	return family, nil
}
