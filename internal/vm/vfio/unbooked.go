package vfio

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/divvy-gpu/divvy/internal/checkpoint"
	"github.com/divvy-gpu/divvy/internal/pci"
	"github.com/divvy-gpu/divvy/internal/vm/binding"
	"github.com/divvy-gpu/divvy/internal/vm/facts"
)

// Unbooked is a book in memory in place of one that cannot be read: it has what receipts beside that tell, and what else is known to
// be given. It is for [Book.ByHand] alone.
func Unbooked(c Config, given []Entry) *Book {
	b := Broken(c, nil)
	for _, e := range append(b.receipts(), given...) {
		e.Begun, e.Phase = len(e.Plan.Steps), Bound
		for i := range e.Plan.Steps {
			if s := &e.Plan.Steps[i]; s.After == "" && s.Kind != binding.Unbind {
				s.After, _ = c.Machine.State(s.State) // what cannot be read is left
			}
		}
		b.jobs = append(b.jobs, newJob(e))
	}
	return b
}

// receipts are the steps that stand by their receipts, an entry for each owner and device.
func (b *Book) receipts() (all []Entry) {
	found, _ := filepath.Glob(filepath.Join(filepath.Dir(b.config.Path), receiptsFolder, "*")) // the pattern is right
	for _, file := range found {
		name := strings.TrimSuffix(filepath.Base(file), unfinished)
		at := strings.LastIndexByte(name, '-')
		device, err := pci.ParseAddress(name[:max(at, 0)])
		if err != nil {
			continue
		}
		s, is := binding.UnbookedStep(binding.Kind(name[at+1:]), device)
		r, there := readReceipt(file)
		if !is || !there {
			continue
		}
		form := binding.FormVGPU
		if s.Kind == binding.Enable || s.Kind == binding.Withhold {
			form = binding.FormFunctions
		}
		mine := slices.IndexFunc(all, func(e Entry) bool { return e.Plan.Device == device && e.Owner == r.Owner })
		if mine < 0 {
			mine = len(all)
			all = append(all, Entry{Owner: r.Owner, Plan: binding.Plan{Form: form, Device: device, Group: facts.NoGroup}})
		}
		steps := &all[mine].Plan.Steps
		if !slices.ContainsFunc(*steps, func(other binding.Step) bool { return other.Kind == s.Kind }) {
			*steps = append(*steps, s)
		}
	}
	for i := range all { // an instance is behind a function before its type, and drivers are kept away before there are functions
		slices.SortFunc(all[i].Plan.Steps, func(x, y binding.Step) int { return made(x.Kind) - made(y.Kind) })
	}
	return all
}

func made(k binding.Kind) int {
	if k == binding.Type || k == binding.Enable {
		return 1
	}
	return 0
}

// Emptied is the command by which the book in a directory has nothing any more, once all was put back. One that is gone is not taken for
// an empty one while claims have devices.
func Emptied(dir string) string {
	file := filepath.Join(dir, FileName)
	empty, _ := checkpoint.NewFile[[]Entry](file, "vfio", 1).Encode([]Entry{}) // an empty list has no error
	return fmt.Sprintf("rm -rf %s %s && %s >%[1]s", Quoted(file), Quoted(filepath.Join(dir, receiptsFolder)), "echo "+Quoted(strings.TrimSpace(string(empty))))
}

// Given are the functions on [binding.Driver].
func Given(root string) (all []pci.Address) {
	found, _ := filepath.Glob(filepath.Join(root, "sys/bus/pci/drivers", binding.Driver, "*:*")) // the pattern is right
	for _, link := range found {
		if at, err := pci.ParseAddress(filepath.Base(link)); err == nil && isLink(link) {
			all = append(all, at)
		}
	}
	return all
}

func isLink(name string) bool {
	_, err := os.Readlink(name)
	return err == nil
}
