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

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/process"
	"github.com/divvy-gpu/divvy/internal/vm/binding"
	"github.com/divvy-gpu/divvy/internal/vm/facts"
)

// openers are the processes that have open what a plan gives.
func (b *Book) openers(p binding.Plan) (all []facts.Holder, err error) {
	if p.Form != binding.FormVGPU {
		if all, err = b.config.Machine.Holders(p.Members); err != nil {
			return nil, err
		}
	}
	seen := map[string]bool{}
	for _, s := range p.Steps {
		if group := s.Undo.Group; group != "" && !seen[group] {
			seen[group] = true
			found, err := b.config.Machine.Openers(group)
			if err != nil {
				return nil, err
			}
			for _, h := range found {
				if !slices.ContainsFunc(all, func(other facts.Holder) bool { return other.PID == h.PID }) {
					all = append(all, h)
				}
			}
		}
	}
	return all, nil
}

// openError says who keeps a write from being made, which the kernel told without a name.
func (b *Book) openError(p binding.Plan, err error) error {
	switch holders, _ := b.openers(p); { // the kernel has told that there is one
	case len(holders) > 0:
		return fmt.Errorf("%w: %s", err, binding.Named(holders))
	case b.config.Machine.Unseen() != "":
		return fmt.Errorf("%w: a process that is not seen from here: %s", err, b.config.Machine.Unseen())
	}
	return fmt.Errorf("%w: a process that is not seen from here", err)
}

// Openers implements [Machine].
func (h Host) Openers(group string) ([]facts.Holder, error) {
	number, err := groupOf(h.Root, group)
	if err != nil || number == noGroup {
		return nil, err
	}
	node := nodeOf(h.Root, number)
	found, err := process.Holders(node)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, missing(h.Root, number)
	case err != nil:
		return nil, fmt.Errorf("find who has %s open: %w", node, err)
	}
	var all []facts.Holder
	for _, id := range found {
		all = append(all, facts.Holder{PID: id.PID, Name: process.Command(id.PID), Node: "vfio/" + number})
	}
	return all, nil
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
