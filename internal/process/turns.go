package process

import (
	"bytes"
	"cmp"
	"container/heap"
	"os"
	"strconv"
	"strings"
)

// turns has the parts that wait, by whose they are: a tree of cgroups from the outermost on, with the users in each of them. At each
// level the one is next at whose processes was looked least, so that whoever makes more processes, users or cgroups takes turns
// from nobody outside of the own cgroup.
type turns struct {
	name  string
	spent int
	above *turns
	below map[string]*turns
	// waiting are those below for which parts wait, as a heap. Place is where this one is among those of above, none if it is not.
	waiting inTurn
	place   int
	// parts are those of a user in a cgroup.
	parts []part
}

// none is the place of who waits for nothing.
const none = -1

// deepest is how many cgroups are told apart below one another: containers have fewer around them.
const deepest = 12

// of finds whose turns a path leads to.
func (t *turns) of(path ...string) *turns {
	for _, name := range path {
		next := t.below[name]
		if next == nil {
			next = &turns{name: name, above: t, place: none}
			if t.below == nil {
				t.below = map[string]*turns{}
			}
			t.below[name] = next
		}
		t = next
	}
	return t
}

// put has a part wait.
func (t *turns) put(p part) {
	for t.parts = append(t.parts, p); t.above != nil && t.place == none; t = t.above {
		heap.Push(&t.above.waiting, t)
	}
}

// take takes the next part out, of all that wait below.
func (t *turns) take() (p part, found bool) {
	for len(t.waiting) > 0 {
		t = t.waiting[0]
	}
	if len(t.parts) == 0 {
		return p, false
	}
	p, t.parts = t.parts[0], t.parts[1:]
	for ; t.above != nil && len(t.parts) == 0 && len(t.waiting) == 0; t = t.above {
		heap.Remove(&t.above.waiting, t.place)
	}
	return p, true
}

// spend notes what a part has cost.
func (t *turns) spend(cost int) {
	for ; t != nil; t = t.above {
		if t.spent += cost; t.above != nil && t.place != none {
			heap.Fix(&t.above.waiting, t.place)
		}
	}
}

// inTurn is a heap of those who wait, see [heap.Interface].
type inTurn []*turns

func (w inTurn) Len() int { return len(w) }

func (w inTurn) Less(i, j int) bool {
	return cmp.Or(cmp.Compare(w[i].spent, w[j].spent), cmp.Compare(w[i].name, w[j].name)) < 0
}

func (w inTurn) Swap(i, j int) {
	w[i], w[j] = w[j], w[i]
	w[i].place, w[j].place = i, j
}

func (w *inTurn) Push(x any) {
	t, _ := x.(*turns)
	t.place = len(*w)
	*w = append(*w, t)
}

func (w *inTurn) Pop() any {
	last := len(*w) - 1
	t := (*w)[last]
	t.place = none
	*w = (*w)[:last]
	return t
}

// party tells whose a process is: its cgroups from the outermost on, and its user; and for how many descriptors it has room.
func party(pid int) (path []string, room int) {
	var data [statusSize]byte
	status, err := beginningOf(pid, "status", data[:])
	if err != nil {
		status = nil
	}
	real, _ := parseUsers(status)
	groups, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cgroup")
	if err != nil {
		groups = nil // then it is told by its user alone
	}
	return append(groupsOf(string(groups)), "user "+strconv.Itoa(owner(pid, real))), roomIn(status)
}

// groupsOf reads /proc/PID/cgroup (cgroups(7)): of several hierarchies that one in which the process is deepest.
func groupsOf(text string) (path []string) {
	for line := range strings.Lines(text) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if names := strings.Split(strings.Trim(fields[len(fields)-1], "/"), "/"); names[0] != "" && len(names) > len(path) {
			path = names
		}
	}
	return path[:min(len(path), deepest):min(len(path), deepest)]
}

// roomIn is the number in the line FDSize of /proc/PID/status (proc_pid_status(5)), 0 where there is none.
func roomIn(status []byte) int {
	for line := range bytes.Lines(status) {
		if number, is := bytes.CutPrefix(line, []byte("FDSize:")); is {
			room, err := strconv.Atoi(string(bytes.TrimSpace(number)))
			if err != nil {
				return 0
			}
			return room
		}
	}
	return 0
}
