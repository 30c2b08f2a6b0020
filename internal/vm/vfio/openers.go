package vfio

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/process"
	"github.com/divvy-gpu/divvy/internal/vm/binding"
	"github.com/divvy-gpu/divvy/internal/vm/facts"
)

// openers are the processes that have open what a plan gives.
func (b *Book) openers(p binding.Plan) (all facts.Held, err error) {
	if p.Form != binding.FormVGPU {
		if all, err = b.config.Machine.Holders(p.Members); err != nil {
			return all, err
		}
	}
	seen := map[string]bool{}
	for _, s := range p.Steps {
		if group := s.Undo.Group; group != "" && !seen[group] {
			seen[group] = true
			found, err := b.config.Machine.Openers(group)
			if err != nil {
				return all, err
			}
			all = joined(all, found)
		}
	}
	return all, nil
}

// joined are those who have one of two things open, each once.
func joined(a, b facts.Held) facts.Held {
	for _, h := range b.Holders {
		if !slices.ContainsFunc(a.Holders, func(other facts.Holder) bool { return other.PID == h.PID }) {
			a.Holders = append(a.Holders, h)
		}
	}
	for _, why := range b.Unseen {
		if !slices.Contains(a.Unseen, why) {
			a.Unseen = append(a.Unseen, why)
		}
	}
	return a
}

// openError says who keeps a write from being made, which the kernel told without a name.
func (b *Book) openError(p binding.Plan, err error) error {
	switch held, _ := b.openers(p); { // the kernel has told that there is one
	case len(held.Holders) > 0:
		return fmt.Errorf("%w: %s", err, binding.Named(held.Holders))
	case len(held.Unseen) > 0:
		return fmt.Errorf("%w: a process that is not seen from here: %s", err, strings.Join(held.Unseen, "; "))
	}
	return fmt.Errorf("%w: a process that is not seen from here: %s", err, inNoList)
}

// Openers implements [Machine].
func (h Host) Openers(group string) (held facts.Held, err error) {
	number, err := groupOf(h.Root, group)
	if err != nil || number == noGroup {
		return held, err
	}
	node := nodeOf(h.Root, number)
	if _, err := os.Stat(node); errors.Is(err, fs.ErrNotExist) {
		return held, missing(h.Root, number)
	} else if err != nil {
		return held, fmt.Errorf("find who has %s open: %w", node, err)
	}
	told := process.Look(node)
	for _, id := range told.By[0] {
		held.Holders = append(held.Holders, facts.Holder{PID: id.PID, Name: process.Command(id.PID), Node: "vfio/" + number})
	}
	held.Unseen = append(unseenIn(told), facts.Hidden(Files(h.Root))...)
	return held, nil
}

// Node implements [Machine].
func (h Host) Node(group string) string {
	number, err := groupOf(h.Root, group)
	if err != nil || number == noGroup {
		return ""
	}
	node := "/dev/vfio/" + number
	if _, err := os.Lstat(nodeOf(h.Root, number)); err != nil && missing(h.Root, number) == nil {
		return ""
	}
	return node
}

// noGroup is the number of no group.
const noGroup = ""

// groupOf is the number of the IOMMU group to which a link below /sys leads, [noGroup] where there is no such link.
func groupOf(root, group string) (string, error) {
	if !fs.ValidPath(group) {
		return "", fmt.Errorf("find %q below sys: %w", group, fs.ErrInvalid)
	}
	target, err := os.Readlink(filepath.Join(root, "sys", group))
	if errors.Is(err, fs.ErrNotExist) {
		return noGroup, nil
	}
	if err != nil {
		return "", fmt.Errorf("find an IOMMU group: %w", err)
	}
	number, err := strconv.ParseUint(filepath.Base(target), 10, 31)
	if err != nil {
		return "", fmt.Errorf("find an IOMMU group: %w", err)
	}
	return strconv.FormatUint(number, 10), nil
}

// nodeOf is the VFIO node of a group.
func nodeOf(root, number string) string { return filepath.Join(root, "dev/vfio", number) }

// missing tells what it means that a group's node is not there: nothing where the kernel has none, because no driver gives a
// function of the group to anybody; else that this process does not see the machine's nodes, as in a container.
func missing(root, number string) error {
	for _, name := range []string{number, "noiommu-" + number} {
		if _, err := os.Lstat(filepath.Join(root, "sys/class/vfio", name)); !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%w: group %s", ErrUnseen, number)
		}
	}
	return nil
}

// nothing is the node of no group.
type nothing struct{}

func (nothing) Close() error { return nil }

// shut keeps everybody from opening a group until it is closed. The kernel lets one process at a time have a group's node open,
// so that it can be opened tells that nobody has it, in whatever namespace.
func shut(root, group string) (io.Closer, error) {
	if group == "" {
		return nothing{}, nil
	}
	number, err := groupOf(root, group)
	if err != nil {
		return nil, err
	}
	if number == noGroup {
		return nothing{}, nil
	}
	file, err := os.OpenFile(nodeOf(root, number), os.O_RDWR, 0)
	switch {
	case errors.Is(err, unix.EBUSY):
		return nil, fmt.Errorf("%w: %w", ErrOpen, err)
	case errors.Is(err, fs.ErrNotExist):
		return nothing{}, missing(root, number)
	case errors.Is(err, unix.ENODEV), errors.Is(err, unix.ENXIO): // a node without a driver behind it
		return nothing{}, nil
	case err != nil:
		return nil, err
	}
	return file, nil
}
