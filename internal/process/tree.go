package process

import (
	"os"
	"strconv"
)

// Descendants returns the children of processes, their children, and so on.
func Descendants(pids ...int) []ID {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	children := map[int][]ID{}
	for _, entry := range entries {
		child, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		if s, err := read(child); err == nil && !s.dead {
			children[s.parent] = append(children[s.parent], ID{PID: child, Start: s.start})
		}
	}
	var found []ID
	for _, pid := range pids {
		found = append(found, children[pid]...)
		delete(children, pid)
	}
	for i := 0; i < len(found); i++ {
		next := found[i].PID
		found = append(found, children[next]...)
		delete(children, next) // the tree is read piecemeal and may have a loop
	}
	return found
}

// Of returns the living processes of a user.
func Of(uid int) []ID {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var found []ID
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil || Owner(pid) != uid {
			continue
		}
		if s, err := read(pid); err == nil && !s.dead {
			found = append(found, ID{PID: pid, Start: s.start})
		}
	}
	return found
}
