package process

import (
	"os"
	"slices"
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

// DescendsFrom reports whether a process has another among its parents, and both live. The
// parents are read twice: while they are read one may end and its number become another
// process's, but then its child has another parent.
func (id ID) DescendsFrom(other ID) bool {
	parents := Ancestors(id.PID)
	return slices.Contains(parents, other.PID) && slices.Equal(parents, Ancestors(id.PID)) && id.Alive() && other.Alive()
}

// InSession returns the living processes of the session that a process began, which may have ended. The kernel gives its
// number to no other process while the session lasts.
func InSession(leader ID) []ID {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var found []ID
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		if s, err := read(pid); err == nil && !s.dead && s.session == leader.PID && s.start >= leader.Start {
			found = append(found, ID{PID: pid, Start: s.start})
		}
	}
	return found
}

// Of returns the living processes of a user.
func Of(uid int) []ID {
	return living(func(pid int) bool { return Owner(pid) == uid })
}

// All returns all living processes.
func All() []ID {
	return living(func(int) bool { return true })
}

// living are the living processes whose numbers are wanted.
func living(wanted func(pid int) bool) []ID {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var found []ID
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil || !wanted(pid) {
			continue
		}
		if s, err := read(pid); err == nil && !s.dead {
			found = append(found, ID{PID: pid, Start: s.start})
		}
	}
	return found
}
