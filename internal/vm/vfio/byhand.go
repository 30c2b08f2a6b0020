package vfio

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/divvy-gpu/divvy/internal/vm/binding"
)

// ByHand are the commands by which root puts back without Divvy what an entry of the book has, in their order. Each is to be run
// only if those before it succeeded.
type ByHand struct {
	Entry    Entry
	Commands []string
	// Left is what somebody else has changed, which no command touches.
	Left []Foreign
}

// ByHand is how all entries come back, in the order in which they must: what has virtual functions comes after what has one of
// them. It goes by what the machine tells now.
func (b *Book) ByHand() (all []ByHand) {
	entries := b.Entries()
	slices.Reverse(entries)
	slices.SortStableFunc(entries, func(x, y Entry) int { return rank(x) - rank(y) })
	for _, e := range entries {
		all = append(all, b.byHand(e))
	}
	return all
}

func rank(e Entry) int {
	if e.Plan.Form == binding.FormFunctions {
		return 1
	}
	return 0
}

// hand works the commands of one entry out.
type hand struct {
	book *Book
	// now is what each state tells after the commands so far.
	now map[binding.State]string
	job job
	out []string
}

func (b *Book) byHand(e Entry) ByHand {
	h := hand{book: b, now: map[binding.State]string{}, job: job{entry: e}}
	for i := e.Begun - 1; i >= 0; i-- {
		h.undo(e.Plan.Steps[i])
	}
	return ByHand{Entry: e, Commands: h.out, Left: h.job.left}
}

// state is what a state tells after the commands so far. What cannot be read is taken for what it should be.
func (h *hand) state(s binding.State, otherwise string) string {
	if now, known := h.now[s]; known {
		return now
	}
	now, err := h.book.config.Machine.State(s)
	if err != nil {
		now = otherwise
	}
	h.now[s] = now
	return now
}

func (h *hand) set(s binding.State, now string) { h.now[s] = now }

// undo is the commands by which one step is undone, under the conditions of [Book.back].
func (h *hand) undo(s binding.Step) {
	if !h.book.config.Machine.Exists(binding.DeviceFolder(s.Device)) {
		h.job.leave(Foreign{Device: s.Device, What: "device", Found: "gone", Before: "there"})
		return
	}
	driver := binding.State{Path: binding.DeviceFolder(s.Device) + "/driver", Link: true}
	if s.State.Path == "" {
		if h.state(driver, "") == "" { // else somebody else has bound it
			h.out = append(h.out, "("+echo(s.Undo.Value, "", s.Undo.Path)+" || true)")
		}
		return
	}
	found := h.state(s.State, s.After)
	switch {
	case found == s.Before:
		return
	case found != s.After, !h.book.isOurs(h.job.entry.Owner, s):
		h.job.leave(Foreign{Device: s.Device, What: path.Base(s.State.Path), Found: found, Before: s.Before})
		return
	case s.Kind == binding.Unbind && !h.mayBind(s):
		h.job.leave(Foreign{Device: s.Device, What: "driver", Before: s.Before})
		return
	case s.Kind == binding.Enable:
		h.out = append(h.out, unusedFunctions(s)...)
	}
	h.out = append(h.out, echo(s.Undo.Value, h.node(s.Undo.Group), s.Undo.Path))
	h.set(s.State, s.Before)
}

// mayBind tells whether a driver is there that can have its function back.
func (h *hand) mayBind(s binding.Step) bool {
	override := h.state(binding.State{Path: binding.DeviceFolder(s.Device) + "/driver_override"}, "")
	return h.book.config.Machine.Exists(path.Dir(s.Undo.Path)) && (override == "" || override == s.Before)
}

// node is the node that nobody may have open, or "".
func (h *hand) node(group string) string {
	if group == "" {
		return ""
	}
	return h.book.config.Machine.Node(group)
}

// unusedFunctions fail, and name what is in use, where one of a device's virtual functions is: with a driver other than the one that
// makes vGPUs, with a type, or with a mediated device.
func unusedFunctions(s binding.Step) []string {
	all := "/sys/" + binding.DeviceFolder(s.Device) + "/virtfn*"
	return []string{
		"! ls -l " + all + "/driver 2>/dev/null | grep -v '/" + binding.VGPUDriver + "$'",
		"! grep -sv '^0$' " + all + "/nvidia/current_vgpu_type /dev/null",
		"! ls -d " + all + "/mdev_supported_types/*/devices/* 2>/dev/null",
	}
}

// echo writes a value to a file of sysfs. Where a node is named the shell opens it first and holds it meanwhile: the kernel lets one
// process at a time do that, so while somebody has it open nothing is written.
func echo(value, node, file string) string {
	words := []string{"echo"}
	if value = strings.TrimSuffix(value, "\n"); value != "" {
		words = append(words, Quoted(value))
	}
	if strings.HasPrefix(value, "-") || strings.Contains(value, `\`) {
		words[0] = `printf '%s\n'`
	}
	if node != "" {
		words = append(words, "3<"+Quoted(node))
	}
	return fmt.Sprintf("%s >%s", strings.Join(words, " "), Quoted("/sys/"+file))
}

var plain = regexp.MustCompile(`^[A-Za-z0-9_.:/=-]+$`)

// Quoted is a word for a shell.
func Quoted(word string) string {
	if plain.MatchString(word) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
